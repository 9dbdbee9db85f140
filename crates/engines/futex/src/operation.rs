//! Decodes futex operations and results.

use tiptoe_wire::futex::{REPORTED, entry};

/// What a futex call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// May wait.
    Wait,
    /// Wakes waiters.
    Wake,
    /// Neither waits nor wakes.
    Other,
}

impl Kind {
    /// Classifies an operation, which may have flags.
    #[inline(always)]
    pub fn of(operation: u32) -> Kind {
        // Bit sets instead of a `match`, because the CPU mispredicts a jump table right after a system call.
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
        if is_in(WAITS) || operation == REPORTED {
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
    /// Another thread woke the waiter.
    Woken = entry::WOKEN,
    /// The futex word had changed before the wait.
    AtOnce = entry::AT_ONCE,
    /// The time-out expired.
    TimedOut = entry::TIMED_OUT,
    /// A signal interrupted the wait.
    Interrupted = entry::INTERRUPTED,
    /// Any other error.
    Other = entry::OTHER,
}

impl End {
    /// Classifies the system call's result.
    pub fn of(result: i64) -> End {
        match result {
            0.. => End::Woken,
            -11 => End::AtOnce,
            -110 => End::TimedOut,
            -4 => End::Interrupted,
            _ => End::Other,
        }
    }

    pub(crate) fn word(self) -> u32 {
        self as u32
    }
}
