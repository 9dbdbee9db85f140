//! Times how long a thread holds the lock that `--hold` names.
//!
//! Hooks see calls of libc's functions that take and release the lock, but not the functions' returns. A hold begins
//! with the call that takes the lock, or at the end of the last wait inside this call. The hold ends with the call that
//! releases the lock. If a call may fail ([`LockOperation::Tries`]), only a release shows that the call took the lock.
//! A condition wait releases the lock and takes it again; calls of an unlock function inside are ignored.
//!
//! No hook sees how long a call spins. But each release stores its time where all threads can read it, and an exclusive
//! hold begins no earlier than the lock's last release. A spin lock's function may jump back to its start, where the
//! hook is, for each try. So the hold begins with the last try.

use tiptoe_wire::Words;
use tiptoe_wire::futex::head::MEASURED_HOLD;
use tiptoe_wire::futex::hold;

use crate::paths::Caller;

const LOCK: usize = MEASURED_HOLD as usize;
const SITE: usize = LOCK + 1;
const FRAME: usize = LOCK + 2;
const SINCE: usize = LOCK + 3;
const TIMES: usize = LOCK + 4;

/// What a libc function does with the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOperation {
    /// Takes the lock.
    Takes,
    /// Takes the lock, or fails.
    Tries,
    /// Releases a lock that may have several holders.
    Gives,
    /// Releases the lock, waits for a condition, and takes the lock again.
    Leaves,
    /// Takes the lock by spinning; the hook may run for each try.
    Spins,
    /// Releases a lock with one holder.
    Frees,
}

impl LockOperation {
    /// Decodes the hook's argument; `None` for a futex call.
    #[inline]
    pub fn of(what: i32) -> Option<LockOperation> {
        match what & tiptoe_wire::futex::HOLD {
            hold::TAKES => Some(LockOperation::Takes),
            hold::TRIES => Some(LockOperation::Tries),
            hold::GIVES => Some(LockOperation::Gives),
            hold::LEAVES => Some(LockOperation::Leaves),
            hold::SPINS => Some(LockOperation::Spins),
            hold::FREES => Some(LockOperation::Frees),
            _ => None,
        }
    }
}

/// An ended hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedHold {
    /// The call site that took the lock.
    pub site: u64,
    /// The duration in ticks.
    pub ticks: u64,
}

/// A thread's hold.
#[derive(Clone, Copy)]
pub struct Holds<'a>(Words<'a>);

impl<'a> Holds<'a> {
    /// Returns the hold in a thread's slab (its own counters).
    pub fn new(words: Words<'a>) -> Self {
        Holds(words)
    }

    /// Records a call, and returns the hold that it ends. `released` is the time of the lock's last release; 0 if
    /// unknown, or if the lock is not exclusive.
    pub fn record(
        &self,
        operation: LockOperation,
        lock: u64,
        caller: &Caller,
        now: u64,
        released: u64,
    ) -> Option<EndedHold> {
        let holds = self.0.load(LOCK) == lock;
        let timed = holds && self.0.load(SINCE) != 0;
        let times = if timed { self.0.load(TIMES) } else { 0 };
        match operation {
            // Recursion: only the outermost calls count.
            LockOperation::Takes if times > 0 => self.0.store(TIMES, times + 1),
            LockOperation::Tries if times > 0 => {}
            LockOperation::Takes | LockOperation::Spins => self.begins(lock, caller, now, 1),
            LockOperation::Tries => self.begins(lock, caller, now, 0),
            LockOperation::Gives | LockOperation::Frees if times > 1 => {
                self.0.store(TIMES, times - 1);
            }
            LockOperation::Gives | LockOperation::Frees if timed => {
                self.0.store(LOCK, 0);
                return self.ends(now, released);
            }
            LockOperation::Gives | LockOperation::Frees => {}
            LockOperation::Leaves => {
                let held = timed.then(|| self.ends(now, released)).flatten();
                self.begins(lock, caller, 0, 1);
                return held;
            }
        }
        None
    }

    fn begins(&self, lock: u64, caller: &Caller, now: u64, times: u64) {
        self.0.store(SITE, caller.site);
        self.0.store(FRAME, caller.frame);
        self.0.store(SINCE, now);
        self.0.store(TIMES, times);
        self.0.store(LOCK, lock);
    }

    fn ends(&self, now: u64, released: u64) -> Option<EndedHold> {
        let since = self.0.load(SINCE);
        self.0.store(SINCE, 0);
        (since != 0).then(|| EndedHold {
            site: self.0.load(SITE),
            ticks: now.saturating_sub(since.max(released)),
        })
    }

    /// Returns whether a recursive lock is still held.
    pub fn is_held_on(&self, lock: u64) -> bool {
        self.0.load(LOCK) == lock && self.0.load(TIMES) > 0
    }

    /// Restarts the hold at the end of a wait inside the call that takes the lock.
    #[inline]
    pub fn waited(&self, site: u64, frame: u64, clock: impl FnOnce() -> u64) {
        if self.0.load(LOCK) != 0 && self.0.load(SITE) == site && self.0.load(FRAME) == frame {
            self.0.store(SINCE, clock());
        }
    }
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;
    extern crate std;
    use core::sync::atomic::AtomicU64;
    use std::vec::Vec;

    const LOCK: u64 = 0x1000;
    const OTHER: u64 = 0x2000;

    fn from(site: u64) -> Caller {
        Caller {
            site,
            via: 0,
            frame: 0x7000 + site,
        }
    }

    /// Records each (operation, lock, site, time); returns each hold's (site, ticks).
    fn holds(operations: &[(LockOperation, u64, u64, u64)]) -> Vec<(u64, u64)> {
        let words: Vec<_> = (0..16).map(|_| AtomicU64::new(0)).collect();
        let holds = Holds::new(Words::new(&words));
        let each = operations.iter();
        let ended = each.filter_map(|(operation, lock, site, now)| {
            holds.record(*operation, *lock, &from(*site), *now, 0)
        });
        ended.map(|held| (held.site, held.ticks)).collect()
    }

    use LockOperation::{Frees, Gives, Leaves, Spins, Takes, Tries};

    #[test]
    fn a_hold_lasts_from_the_call_that_takes_to_the_one_that_releases() {
        let once = [
            (Takes, LOCK, 1, 10),
            (Gives, LOCK, 2, 25),
            (Gives, LOCK, 2, 30),
        ];
        assert_eq!(holds(&once), [(1, 15)]);
        let other = [(Takes, LOCK, 1, 10), (Gives, OTHER, 2, 25)];
        assert_eq!(holds(&other), []);
    }

    #[test]
    fn recursion_is_one_hold_and_a_failed_try_none() {
        let twice = [
            (Takes, LOCK, 1, 10),
            (Takes, LOCK, 2, 11),
            (Tries, LOCK, 3, 12),
            (Gives, LOCK, 2, 20),
            (Gives, LOCK, 1, 30),
        ];
        assert_eq!(holds(&twice), [(1, 20)]);
        let tried = [
            (Tries, LOCK, 1, 10),
            (Takes, LOCK, 2, 50),
            (Gives, LOCK, 2, 60),
        ];
        assert_eq!(holds(&tried), [(2, 10)]);
        let got = [(Tries, LOCK, 1, 10), (Gives, LOCK, 2, 60)];
        assert_eq!(holds(&got), [(1, 50)]);
    }

    #[test]
    fn the_last_try_of_a_spin_lock_begins_its_hold() {
        let spun = [
            (Spins, LOCK, 1, 10),
            (Spins, LOCK, 1, 20),
            (Spins, LOCK, 1, 30),
            (Frees, LOCK, 2, 45),
            (Spins, LOCK, 1, 50),
            (Frees, LOCK, 2, 51),
        ];
        assert_eq!(holds(&spun), [(1, 15), (1, 1)]);
    }

    #[test]
    fn a_hold_begins_after_the_last_release() {
        let words: Vec<_> = (0..16).map(|_| AtomicU64::new(0)).collect();
        let holds = Holds::new(Words::new(&words));
        for (operation, released, ticks) in [(Frees, 40, 60), (Frees, 5, 90), (Leaves, 70, 30)] {
            assert_eq!(holds.record(Takes, LOCK, &from(1), 10, released), None);
            let held = holds.record(operation, LOCK, &from(2), 100, released);
            assert_eq!(held, Some(EndedHold { site: 1, ticks }));
        }
        // The last release of a recursive lock frees it.
        let words: Vec<_> = (0..16).map(|_| AtomicU64::new(0)).collect();
        let holds = Holds::new(Words::new(&words));
        for (operation, is_held) in [(Takes, true), (Takes, true), (Frees, true), (Frees, false)] {
            holds.record(operation, LOCK, &from(1), 10, 0);
            assert_eq!(holds.is_held_on(LOCK), is_held);
        }
    }

    #[test]
    fn waiting_is_not_holding() {
        let words: Vec<_> = (0..16).map(|_| AtomicU64::new(0)).collect();
        let holds = Holds::new(Words::new(&words));
        let waited = |site: u64, now| holds.waited(site, from(site).frame, || now);
        waited(0, 5);
        holds.record(Takes, LOCK, &from(1), 10, 0);
        waited(1, 40);
        waited(9, 45); // another lock
        let held = holds
            .record(Leaves, LOCK, &from(2), 50, 0)
            .expect("first hold");
        assert_eq!((held.site, held.ticks), (1, 10));
        assert_eq!(holds.record(Gives, LOCK, &from(2), 51, 0), None);
        waited(2, 90);
        let held = holds
            .record(Gives, LOCK, &from(3), 95, 0)
            .expect("second hold");
        assert_eq!((held.site, held.ticks), (2, 5));
        // Without a futex wait, no hook saw the new hold's start.
        holds.record(Leaves, LOCK, &from(2), 100, 0);
        assert_eq!(holds.record(Gives, LOCK, &from(3), 110, 0), None);
        holds.record(Takes, LOCK, &from(1), 120, 0);
        let held = holds
            .record(Gives, LOCK, &from(3), 130, 0)
            .expect("third hold");
        assert_eq!((held.site, held.ticks), (1, 10));
    }
}
