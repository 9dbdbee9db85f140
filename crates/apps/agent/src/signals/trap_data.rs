//! The data of a signal that a breakpoint raised.

use super::{Context, Info, RIP};

pub struct TrapData {
    /// The value with which the event was opened.
    pub data: u64,
    pub address: u64,
    /// Whether the signal was blocked at the access. The thread then ran on, so the registers are of a later moment.
    pub is_late: bool,
    pub ip: u64,
    pub flags: u64,
    /// The thread's registers by their numbers in machine code.
    pub registers: [u64; 16],
}

impl TrapData {
    pub(super) fn of(info: &Info, context: &Context) -> Option<TrapData> {
        const ASYNC: u32 = 1;
        /// The indices of %rax, %rcx and so on in a ucontext.
        const NUMBERS: [usize; 16] = [13, 14, 12, 11, 15, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7];
        const EFL: usize = 17;
        if !info.is_of_perf_event() {
            return None;
        }
        let [_, address, address_above, data, data_above, _, flags, ..] = info.rest;
        let word = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        Some(TrapData {
            data: word(data, data_above),
            address: word(address, address_above),
            is_late: flags & ASYNC != 0,
            ip: context.register(RIP),
            flags: context.register(EFL),
            registers: NUMBERS.map(|number| context.register(number)),
        })
    }
}
