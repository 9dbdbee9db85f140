//! Reads which thread holds a lock, if the lock records its holder.
//!
//! glibc's mutexes and rwlocks contain the id of the thread that holds them exclusively. These layouts cannot change,
//! because public headers compile them into programs. Semaphores, Rust's locks and libc's internal locks record no
//! holder.
//!
//! A lock's word may contain anything, so readers must check that it can be a thread's id.

use tiptoe_wire::futex::frames::owner;
use tiptoe_wire::futex::history::{HOLDER, NOBODY, READERS};

use crate::rwlock;

/// Offset of a mutex's holder from its futex.
pub const MUTEX_OWNER: u64 = 8;
/// The holder's bits in a FUTEX_LOCK_PI word (futex(2)).
pub const PI_OWNER: u32 = 0x3fff_ffff;
/// The kernel's ids are below 2^22 (proc(5), pid_max).
const MOST_THREAD: u32 = READERS - 1;
/// The futex of a mutex with waiters. A robust mutex has its holder's id and [`WAITERS`] there instead.
const CONTENDED: u32 = 2;
const WAITERS: u32 = 1 << 31;

const FUTEX_WAIT: u32 = 0;
const FUTEX_LOCK_PI: u32 = 6;
const FUTEX_LOCK_PI2: u32 = 13;

/// A kind of lock that records its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum OwnedLock {
    /// A mutex.
    Mutex = 1,
    /// A mutex with priority inheritance, whose holder the kernel changes.
    Inheriting = 2,
    /// A rwlock, if the thread waits at an inner word.
    Rwlock = 3,
    /// A rwlock, if the thread waits at its first word.
    RwlockItself = 4,
}

pub(crate) const LOCK_SHIFT: u32 = HOLDER;
/// In [`LockState`]: the lower bits are a thread's id, not the number of readers.
const IS_THREAD: u32 = 1 << (HOLDER - 1);

/// The lock's state as a waiting thread found it. Upper bits: the kind of a lock that records its holder, or 0. Lower
/// bits: the holder or the number of readers.
pub type LockState = u32;

impl OwnedLock {
    /// Returns for which kind of lock a futex call waits; `None` if the lock records no holder. `function` is the
    /// calling libc function's [`owner`] value.
    #[inline(always)]
    pub fn of(function: u64, address: u64, operation: u32, value: u32) -> Option<OwnedLock> {
        let operation = operation & 0x7f;
        let inherits = matches!(operation, FUTEX_LOCK_PI | FUTEX_LOCK_PI2);
        match function {
            owner::MUTEX | owner::CONDITION if inherits => Some(OwnedLock::Inheriting),
            owner::MUTEX => Some(OwnedLock::Mutex),
            owner::CONDITION => {
                // A wait for the condition itself has another operation or value.
                let is_mutex =
                    operation == FUTEX_WAIT && (value == CONTENDED || value & WAITERS != 0);
                is_mutex.then_some(OwnedLock::Mutex)
            }
            owner::RWLOCK if rwlock::start_at_wait(address, value) == address => {
                Some(OwnedLock::RwlockItself)
            }
            owner::RWLOCK => Some(OwnedLock::Rwlock),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn decode(bits: u64) -> Option<OwnedLock> {
        const ALL: [OwnedLock; 4] = [
            OwnedLock::Mutex,
            OwnedLock::Inheriting,
            OwnedLock::Rwlock,
            OwnedLock::RwlockItself,
        ];
        ALL.into_iter().find(|lock| *lock as u64 == bits)
    }

    #[inline]
    pub(crate) fn address(self, futex: u64) -> u64 {
        match self {
            OwnedLock::Rwlock => rwlock::start_of(futex),
            _ => futex,
        }
    }

    /// Reads who holds the lock. `load` reads four bytes.
    #[inline(always)]
    pub fn find(self, futex: u64, load: impl Fn(u64) -> u32) -> LockState {
        let thread = |id: u32| match id {
            0..=MOST_THREAD => IS_THREAD | id,
            _ => IS_THREAD,
        };
        let state = match self {
            OwnedLock::Mutex => thread(load(futex.wrapping_add(MUTEX_OWNER))),
            OwnedLock::Inheriting => thread(load(futex) & PI_OWNER),
            OwnedLock::Rwlock | OwnedLock::RwlockItself => {
                let first = self.address(futex);
                match load(first.wrapping_add(rwlock::WRITER)) {
                    0 => rwlock::readers(load(first)).min(MOST_THREAD),
                    writer => thread(writer),
                }
            }
        };
        state | (self as u32) << LOCK_SHIFT
    }
}

/// Returns the number of readers; 0 if the lower bits are a thread's id.
#[inline(always)]
pub(crate) fn readers(state: u32) -> u32 {
    match state & IS_THREAD {
        0 => state & MOST_THREAD,
        _ => 0,
    }
}

/// Returns the holder, encoded as in [`crate::history`]; 0 if unknown.
#[inline]
pub(crate) fn holder(state: u32) -> u32 {
    match (state & IS_THREAD, state & MOST_THREAD) {
        (0, 0) => 0,
        (0, _) => READERS,
        (_, id) => id,
    }
}

const _: () = assert!(MOST_THREAD < READERS && READERS < NOBODY && NOBODY == IS_THREAD);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_of_a_wait_shows_whether_its_lock_records_a_holder() {
        let of = |function, operation, value| OwnedLock::of(function, 0x1008, operation, value);
        assert_eq!(of(owner::MUTEX, 0x80, 2), Some(OwnedLock::Mutex));
        assert_eq!(of(owner::MUTEX, 0x86, 0), Some(OwnedLock::Inheriting));
        assert_eq!(of(owner::CONDITION, 0x80, 2), Some(OwnedLock::Mutex));
        assert_eq!(
            of(owner::CONDITION, 0x80, WAITERS | 7),
            Some(OwnedLock::Mutex)
        );
        assert_eq!(
            of(owner::CONDITION, 0x80, 0),
            None,
            "libc 2.31 waits so for the condition"
        );
        assert_eq!(of(owner::CONDITION, 0x89, 2), None);
        assert_eq!(of(owner::RWLOCK, 0x89, 3), Some(OwnedLock::Rwlock));
        assert_eq!(
            of(owner::RWLOCK, 0x89, 4 | 8),
            Some(OwnedLock::RwlockItself)
        );
        assert_eq!(of(0, 0x80, 2), None);
    }

    #[test]
    fn the_holder_is_read_from_the_lock() {
        let words = |at: u64| match at {
            0x1000 => 3 << 3,
            0x1008 => 77,
            _ => 0,
        };
        let state = |lock: OwnedLock, futex| lock.find(futex, words) & ((1 << HOLDER) - 1);
        let mutex = state(OwnedLock::Mutex, 0x1000);
        assert_eq!((holder(mutex), readers(mutex)), (77, 0));
        let reads = state(OwnedLock::Rwlock, 0x1008);
        assert_eq!((holder(reads), readers(reads)), (READERS, 3));
        assert_eq!(holder(state(OwnedLock::Inheriting, 0x1008)), 77);
        assert_eq!(holder(state(OwnedLock::RwlockItself, 0x2000)), 0);
        let hostile = OwnedLock::Mutex.find(0, |_| u32::MAX) & ((1 << HOLDER) - 1);
        assert_eq!((holder(hostile), readers(hostile)), (0, 0));
    }
}
