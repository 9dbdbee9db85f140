//! How long a thread holds the one lock that the user named.
//!
//! The hooks see calls of libc's functions that take and release it, but not their returns. A hold
//! begins with the call, or with the end of the last wait inside it, and ends with the releasing
//! call. Whether a call that may fail ([`LockOperation::Tries`]) took the lock is known only at the
//! release. A condition wait releases the lock, which libc may also report through an unlock
//! function; from the wait's end on the thread holds it again.

use tiptoe_wire::Words;
use tiptoe_wire::futex::head::HELD;
use tiptoe_wire::futex::hold;

use crate::walk::Caller;

const LOCK: usize = HELD as usize;
const SITE: usize = LOCK + 1;
const FRAME: usize = LOCK + 2;
const SINCE: usize = LOCK + 3;
const TIMES: usize = LOCK + 4;

/// What a function does with the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOperation {
    /// Takes it.
    Takes,
    /// Takes it, or fails.
    Tries,
    /// Releases it.
    Gives,
    /// Releases it until a condition holds, then takes it again.
    Leaves,
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
            _ => None,
        }
    }
}

/// A hold that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedHold {
    /// The call site that took the lock.
    pub site: u64,
    /// Its duration in ticks.
    pub ticks: u64,
}

/// The hold in a thread's words.
#[derive(Clone, Copy)]
pub struct Holds<'a>(Words<'a>);

impl<'a> Holds<'a> {
    /// Returns the hold in a thread's words.
    pub fn new(words: Words<'a>) -> Self {
        Holds(words)
    }

    /// Records a call that does `operation` with `lock`. Returns the hold that it ends.
    pub fn record(
        &self,
        operation: LockOperation,
        lock: u64,
        caller: &Caller,
        now: u64,
    ) -> Option<EndedHold> {
        let holds = self.0.load(LOCK) == lock;
        let timed = holds && self.0.load(SINCE) != 0;
        let times = if timed { self.0.load(TIMES) } else { 0 };
        match operation {
            // A recursive lock: only the outermost calls count.
            LockOperation::Takes if times > 0 => self.0.store(TIMES, times + 1),
            LockOperation::Tries if times > 0 => {}
            LockOperation::Takes => self.begins(lock, caller, now, 1),
            LockOperation::Tries => self.begins(lock, caller, now, 0),
            LockOperation::Gives if times > 1 => self.0.store(TIMES, times - 1),
            LockOperation::Gives if timed => {
                self.0.store(LOCK, 0);
                return self.ends(now);
            }
            LockOperation::Gives => {}
            LockOperation::Leaves => {
                let held = timed.then(|| self.ends(now)).flatten();
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

    fn ends(&self, now: u64) -> Option<EndedHold> {
        let since = self.0.load(SINCE);
        self.0.store(SINCE, 0);
        (since != 0).then(|| EndedHold {
            site: self.0.load(SITE),
            ticks: now.saturating_sub(since),
        })
    }

    /// Restarts the hold when a wait ends inside the taking call, because the thread holds the lock
    /// only from then on.
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

    /// Runs (turn, lock, call site, time), and returns ended holds as (call site, ticks).
    fn holds(operations: &[(LockOperation, u64, u64, u64)]) -> Vec<(u64, u64)> {
        let words: Vec<_> = (0..16).map(|_| AtomicU64::new(0)).collect();
        let holds = Holds::new(Words::new(&words));
        let each = operations.iter();
        let ended = each.filter_map(|(operation, lock, site, now)| {
            holds.record(*operation, *lock, &from(*site), *now)
        });
        ended.map(|held| (held.site, held.ticks)).collect()
    }

    use LockOperation::{Gives, Leaves, Takes, Tries};

    #[test]
    fn from_the_call_that_takes_to_the_one_that_gives() {
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
    fn waiting_is_not_holding() {
        let words: Vec<_> = (0..16).map(|_| AtomicU64::new(0)).collect();
        let holds = Holds::new(Words::new(&words));
        let waited = |site: u64, now| holds.waited(site, from(site).frame, || now);
        waited(0, 5);
        holds.record(Takes, LOCK, &from(1), 10);
        waited(1, 40);
        waited(9, 45); // for another lock
        let held = holds
            .record(Leaves, LOCK, &from(2), 50)
            .expect("first hold");
        assert_eq!((held.site, held.ticks), (1, 10));
        assert_eq!(holds.record(Gives, LOCK, &from(2), 51), None);
        waited(2, 90);
        let held = holds
            .record(Gives, LOCK, &from(3), 95)
            .expect("second hold");
        assert_eq!((held.site, held.ticks), (2, 5));
        // The condition held at once, so the new hold's beginning is unknown.
        holds.record(Leaves, LOCK, &from(2), 100);
        assert_eq!(holds.record(Gives, LOCK, &from(3), 110), None);
        holds.record(Takes, LOCK, &from(1), 120);
        let held = holds
            .record(Gives, LOCK, &from(3), 130)
            .expect("third hold");
        assert_eq!((held.site, held.ticks), (1, 10));
    }
}
