//! What a futex call does, by its operation, and how it ended, by its result.

use tiptoe_wire::futex::{TOLD, entry};

/// What a futex call does, by its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It may wait.
    Wait,
    /// It wakes whoever waits.
    Wake,
    /// Neither.
    Other,
}

impl Kind {
    /// Of an operation as the kernel has it, flags and all.
    #[inline(always)]
    pub fn of(operation: u32) -> Kind {
        // By bits, as a jump by a table is not foretold right behind all that the kernel did.
        const fn set(operations: &[u32]) -> u64 {
            let (mut bits, mut index) = (0, 0);
            while index < operations.len() {
                bits |= 1 << operations[index];
                index += 1;
            }
            bits
        }
        const WAITS: u64 = set(&[0, 6, 9, 11, 13]);
        const WAKES: u64 = set(&[1, 3, 4, 5, 7, 10, 12]);
        let operation = operation & 0x7f;
        let is_in = |bits: u64| operation < u64::BITS && bits >> operation & 1 != 0;
        if is_in(WAITS) || operation == TOLD {
            Kind::Wait
        } else if is_in(WAKES) {
            Kind::Wake
        } else {
            Kind::Other
        }
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum End {
    /// Somebody ended it.
    Woken = entry::WOKEN,
    /// The word had changed before it began.
    AtOnce = entry::AT_ONCE,
    /// Its time was over.
    TimedOut = entry::TIMED_OUT,
    /// A signal came.
    Interrupted = entry::INTERRUPTED,
    /// An error.
    Other = entry::OTHER,
}

impl End {
    /// By what the system call returned.
    pub fn of(result: i64) -> End {
        match result {
            0.. => End::Woken,
            -11 => End::AtOnce,
            -110 => End::TimedOut,
            -4 => End::Interrupted,
            _ => End::Other,
        }
    }

    /// Where it is counted.
    pub(crate) fn word(self) -> u32 {
        self as u32
    }
}
