//! How the signal handler treats a system call in which the thread waits for signals, or waits under another mask.
//!
//! | the thread is | stage | what the handler does with the signal |
//! |---|---|---|
//! | in our hook of the call, or before it | none | may hold the signal back, because the hook finds held signals |
//! | after the hook, up to the `syscall` | before | may skip the call, and set its result |
//! | after the `syscall`, with EINTR | interrupted | lets the call end, or makes it again |

use tiptoe_sys::raw::{call, nr};

use super::{Context, Info, OURS, RAX, RIP, RSI};
use crate::tls::{self, Call, Mask};

const EINTR: i64 = -4;
/// Offsets from the hook's return address: where the program's registers are restored, and where the jump to the call
/// ends.
const AFTER_HOOK: u64 = 8;
const CALL_MADE: u64 = 24;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MaskLocation {
    /// A register with the mask's address, by its index in a ucontext.
    Set(usize),
    /// A register with the address of a pair: the mask's address, and its length.
    Pair(usize),
    /// A register with the address of the set of signals for which the call waits. The set is no mask.
    Wanted(usize),
}

impl MaskLocation {
    pub fn of(number: usize) -> Option<MaskLocation> {
        const R8: usize = 0;
        const R9: usize = 1;
        const R10: usize = 2;
        const RDI: usize = 8;
        Some(match number {
            nr::RT_SIGSUSPEND => MaskLocation::Set(RDI),
            nr::PPOLL => MaskLocation::Set(R10),
            nr::PSELECT6 => MaskLocation::Pair(R9),
            nr::EPOLL_PWAIT | nr::EPOLL_PWAIT2 => MaskLocation::Set(R8),
            nr::RT_SIGTIMEDWAIT => MaskLocation::Wanted(RDI),
            _ => return None,
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Before,
    Interrupted,
}

pub(super) struct Wait {
    call: Call,
    stage: Stage,
    mask_location: MaskLocation,
}

impl Wait {
    pub(super) fn of(context: &Context) -> Option<Wait> {
        let call = tls::call();
        let (rip, rax) = (context.register(RIP), context.register(RAX) as i64);
        let before = call.trampoline + AFTER_HOOK..call.trampoline + CALL_MADE;
        let stage = if rip == call.return_address && rax == EINTR {
            Stage::Interrupted
        } else if rip.wrapping_add(2) == call.return_address || before.contains(&rip) {
            Stage::Before
        } else {
            return None;
        };
        let mask_location = MaskLocation::of(call.number as usize)?;
        (call.return_address != 0).then_some(Wait {
            call,
            stage,
            mask_location,
        })
    }

    /// Returns the program's mask for the wait, which may contain our signals.
    pub(super) fn mask(&self, context: &Context) -> Option<u64> {
        let mask = match self.mask_location {
            MaskLocation::Set(at) => Mask::at(context.register(at)),
            MaskLocation::Pair(at) => Mask::at(context.register(at).wrapping_sub(8)),
            MaskLocation::Wanted(_) => None,
        };
        mask.map(|mask| mask.given())
    }

    /// If the thread is about to make a sigtimedwait for this signal, skips the call, and makes the signal its result.
    /// During the call the kernel itself takes the signal.
    pub(super) fn take(&self, bit: u64, info: &Info, context: &mut Context) -> bool {
        let (MaskLocation::Wanted(at), Stage::Before) = (self.mask_location, self.stage) else {
            return false;
        };
        // SAFETY: the hook has read the set at this address, for the same call.
        let set = unsafe { (context.register(at) as *const u64).as_ref() };
        if set.is_none_or(|set| set & bit == 0) {
            return false;
        }
        // SAFETY: the program passes NULL or room for a siginfo.
        if let Some(out) = unsafe { (context.register(RSI) as *mut Info).as_mut() } {
            *out = *info;
        }
        self.end(info.signal.into(), context);
        true
    }

    /// Ends the call, because a handler ran. Otherwise the call would sleep although its signal has arrived.
    pub(super) fn interrupt(&self, context: &mut Context) {
        self.end(EINTR, context);
    }

    fn end(&self, result: i64, context: &mut Context) {
        context.set_register(RAX, result as u64);
        context.set_register(RIP, self.call.return_address);
    }

    /// Continues as if no signal had arrived. Makes an interrupted call again, unless another pending signal would
    /// interrupt it.
    pub(super) fn go_on(&self, context: &mut Context) {
        let mut pending = 0u64;
        let at = &raw mut pending as usize;
        // SAFETY: the kernel writes 8 bytes.
        let result = unsafe { call(nr::RT_SIGPENDING, [at, 8, 0, 0, 0, 0]) };
        if self.stage == Stage::Interrupted
            && result.is_ok()
            && pending & !context.mask & !OURS == 0
        {
            context.set_register(RAX, self.call.number);
            context.set_register(RIP, self.call.return_address - 2);
        }
    }
}
