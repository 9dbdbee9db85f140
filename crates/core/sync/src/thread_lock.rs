//! A lock that a thread may hold for life. The kernel releases it once the thread has ended.
//!
//! The word is the thread's id. The kernel stores it when clone(2) creates the thread (CLONE_PARENT_SETTID), and clears
//! it when the thread has ended (CLONE_CHILD_CLEARTID). So a free word proves that the thread writes nothing more.
//!
//! | word | the lock is |
//! |---|---|
//! | 0 | free |
//! | id with `BORROWED` | held by a thread for a piece of work |
//! | id | held by the thread with this id for life |
//! | id with `REQUESTED` | held for life; another thread has asked the holder to end |
//! | id with `ENDING` | held for life; the holder is ending |

use crate::primitive::{AtomicU32, Ordering};

const BORROWED: u32 = 1 << 31;
const REQUESTED: u32 = 1 << 30;
pub(crate) const ENDING: u32 = 1 << 29;
/// The bits of an id, which is below 2^22 (proc(5), `pid_max`).
const ID: u32 = ENDING - 1;

/// The lock; a word of 0 is free.
#[derive(Clone, Copy, Debug)]
pub struct ThreadLock<'a>(&'a AtomicU32);

/// The result of [`ThreadLock::request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadLockState {
    /// The calling thread has taken the lock.
    Taken,
    /// The caller is a signal handler on the thread that holds the lock.
    Own,
    /// Another thread borrows the lock for a moment.
    Borrowed,
    /// The holder with this id has been asked to end ([`ThreadLock::withdraw`]).
    Requested(u32),
    /// The holder with this id is ending. The caller must wait for the lock and start a new holder, because perhaps no
    /// other thread will.
    Ending(u32),
}

impl<'a> ThreadLock<'a> {
    /// Returns the lock in a word.
    pub const fn new(word: &'a AtomicU32) -> Self {
        ThreadLock(word)
    }

    /// Returns the word, for a clone(2) that starts a thread with the lock. The caller must hold the lock until that
    /// call.
    pub const fn word(&self) -> &'a AtomicU32 {
        self.0
    }

    /// Returns whether no thread holds the lock.
    pub fn is_free(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0 // pairs with `unlock` and with the kernel's store (edge I of `lib.rs`)
    }

    /// Returns whether the calling thread was started with the lock.
    pub fn is_own(&self, id: u32) -> bool {
        self.0.load(Ordering::Relaxed) & !(REQUESTED | ENDING) == id // Relaxed: set before the caller started
    }

    /// Takes the lock for a piece of work, if the lock is free.
    pub fn try_lock(&self, id: u32) -> bool {
        self.exchange(0, id | BORROWED).is_ok()
    }

    /// Releases a borrowed lock.
    pub fn unlock(&self) {
        self.0.store(0, Ordering::Release); // pairs with `exchange` (edge I)
    }

    /// Takes the lock if it is free, and otherwise asks a holder for life to end. A caller that needs the lock must
    /// repeat the request, because another thread may withdraw it.
    pub fn request(&self, id: u32) -> ThreadLockState {
        loop {
            let Err(word) = self.exchange(0, id | BORROWED) else {
                return ThreadLockState::Taken;
            };
            let holder = word & ID;
            match word & !ID {
                BORROWED if holder == id => return ThreadLockState::Own,
                BORROWED => return ThreadLockState::Borrowed,
                ENDING => return ThreadLockState::Ending(holder),
                REQUESTED => return ThreadLockState::Requested(holder),
                _ if self.exchange(holder, holder | REQUESTED).is_ok() => {
                    return ThreadLockState::Requested(holder);
                }
                _ => {}
            }
        }
    }

    /// Withdraws the request to `holder`; `false` if another thread has withdrawn it, or `holder` is ending.
    pub fn withdraw(&self, holder: u32) -> bool {
        self.exchange(holder | REQUESTED, holder).is_ok()
    }

    /// Returns whether the calling thread, which was started with the lock, must end now.
    pub fn must_end(&self, id: u32) -> bool {
        // Relaxed: the load only saves an exchange that would fail.
        self.0.load(Ordering::Relaxed) & REQUESTED != 0
            && self.exchange(id | REQUESTED, id | ENDING).is_ok()
    }

    fn exchange(&self, from: u32, to: u32) -> Result<u32, u32> {
        // Acquire: pairs with `unlock` and with the kernel's store (edge I).
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        self.0.compare_exchange(from, to, success, failure)
    }
}
