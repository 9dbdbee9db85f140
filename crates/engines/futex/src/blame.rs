//! Charges a wait to those who held the lock during it.
//!
//! A wait reads the holder at its begin. Each later hand-over was recorded by a thread that woke up at it: see
//! [`crate::history`]. So the time from one to the next belongs to one holder, and the release that ends it gives the
//! holder's call site. What no thread has seen is charged to [`holder::UNKNOWN`].
//!
//! | time | charged to |
//! |---|---|
//! | until the first hand-over | the holder that the wait found at its begin |
//! | from one hand-over to the next | the holder from then on |
//! | from a release to the wake-up of the thread that gets the lock | [`holder::UNSEEN`] |
//! | the same, if another thread was faster | that thread |
//!
//! A release reads the clock only if its thread slept for the lock. The time from any other release to the wake-up
//! belongs to the thread that released.
//!
//! A thread that takes a free lock writes nothing here. So a lock that is free when a waiter wakes up may have been
//! taken and released since the last release, many times where the waiter waited for a CPU.
//!
//! The holder is read directly after the clock. A thread may be preempted anywhere else, and would otherwise record at
//! an old time which thread holds the lock now.

use tiptoe_wire::futex::history::{NOBODY, READERS};
use tiptoe_wire::futex::{head, holder};

use crate::activities::Activity;
use crate::calls::{Call, Thread};
use crate::entries::Entry;
use crate::history::{HandOver, History, InOrder, Release};
use crate::operation::End;
use crate::owner::{self, LockState, OwnedLock};

/// A timed wait that has ended.
pub(crate) struct EndedWait {
    pub(crate) lock: OwnedLock,
    pub(crate) since: u64,
    pub(crate) now: u64,
    pub(crate) end: End,
    /// The lock's holder, as read at `now`.
    pub(crate) lock_state: LockState,
    /// The wake that ended the wait.
    pub(crate) release: Release,
}

/// Returns the part of a lock's address that identifies the lock in [`head::THREAD`], in the upper half as there.
fn short(lock: u64) -> u64 {
    (lock >> 2) << 32
}

/// A wait that is charged part by part, from its end back to its begin.
struct Parts<'c, C> {
    /// The time at which the part that is charged next ends.
    until: u64,
    /// The release at the end of that part.
    release: Release,
    /// The thread that took the lock after that release, if it was faster than the woken thread.
    faster: Option<u32>,
    charge: &'c C,
}

impl<C: Fn(u64, u64)> Parts<'_, C> {
    /// Charges the time from `since` to the holder from then on.
    fn add(&mut self, holder: u32, since: u64) {
        // The counter may go back, as when a virtual machine moves.
        let ticks = self.until.saturating_sub(since);
        self.until = since;
        let thread = |id: u32| holder::THREAD | u64::from(id);
        let key = match (holder, self.faster) {
            // The holder is unknown if a thread was just taking or releasing the lock. If that thread's release is
            // known, that release's call site is charged.
            (0, _) if self.release.site != 0 => self.release.site,
            (0, _) => holder::UNKNOWN,
            (READERS, _) | (NOBODY, Some(READERS)) => holder::READERS,
            (NOBODY, Some(id)) => thread(id),
            (NOBODY, None) => holder::UNSEEN,
            (id, _) if id == self.release.thread && self.release.site != 0 => self.release.site,
            (id, _) => thread(id),
        };
        if ticks > 0 {
            (self.charge)(key, ticks);
        }
    }
}

impl Thread<'_> {
    pub(crate) fn history(&self) -> History<'_> {
        History::new(self.shared())
    }

    fn id(&self) -> u32 {
        self.own().load(head::THREAD as usize) as u32
    }

    /// Remembers that the thread took a lock after a sleep; 0 for none.
    fn takes(&self, lock: u64) {
        let taken = short(lock) | u64::from(self.id());
        self.own().store(head::THREAD as usize, taken);
    }

    /// Charges a wait that slept, and records who has the lock now.
    #[cold]
    #[inline(never)]
    pub(crate) fn charge(
        &self,
        wait: &Activity,
        ended: &EndedWait,
        entry: Option<(&Entry, u64)>,
        ns: impl Fn(u64) -> u64,
    ) {
        let lock = ended.lock.address(wait.address);
        let me = self.id();
        // If another thread was faster, that thread is the holder. So it is with readers, which hold the lock beside
        // this thread.
        let after = match (ended.end, ended.lock) {
            (End::Woken, OwnedLock::Inheriting) => me,
            (End::Woken, _) => match owner::holder(ended.lock_state) {
                0 => me,
                other => other,
            },
            _ => 0,
        };
        let faster = Some(after).filter(|after| *after != me && *after != 0);
        let hand_overs = self.history().since(lock, wait.mark(), ended.since);
        // The hand-over must be recorded before the wait is charged. Charging takes longer, and other waiters need the
        // record.
        if ended.end == End::Woken {
            let hand_over = HandOver {
                at: ended.now,
                holder: after,
                is_own: faster.is_none(),
                release: ended.release,
            };
            self.history().push(lock, &hand_over);
            self.takes(if faster.is_none() { lock } else { 0 });
        }
        if let Some((entry, weight)) = entry {
            let mut parts = Parts {
                until: ended.now,
                release: ended.release,
                faster,
                charge: &|key, ticks| entry.held_by(key, ns(ticks), weight),
            };
            // Most waits have one holder.
            match hand_overs.is_empty() {
                true => parts.add(wait.holder(), ended.since),
                false => {
                    let hand_overs = InOrder::new(hand_overs);
                    charge_parts(parts, hand_overs, ended.since, wait.holder());
                }
            }
        }
    }

    /// If the thread recorded itself as the lock's holder when it woke up, but waits for the lock again, records that
    /// another thread was faster.
    #[inline(always)]
    pub(crate) fn waits_again(&self, call: &Call, lock_state: LockState, now: u64) {
        if self.own().load(head::THREAD as usize) >> 32 != 0 {
            self.waits_again_slow(call, lock_state, now);
        }
    }

    #[cold]
    #[inline(never)]
    fn waits_again_slow(&self, call: &Call, lock_state: LockState, now: u64) {
        let Some(kind) = OwnedLock::decode((lock_state >> owner::LOCK_SHIFT).into()) else {
            return;
        };
        let lock = kind.address(call.address);
        if short(lock) != self.own().load(head::THREAD as usize) >> 32 << 32 {
            return;
        }
        let hand_over = HandOver {
            at: now,
            holder: owner::holder(lock_state),
            ..HandOver::default()
        };
        self.history().push(lock, &hand_over);
        self.takes(0);
    }

    /// Records that the thread releases the lock which it took after a sleep, if this wake is for that lock.
    #[cold]
    #[inline(never)]
    pub(crate) fn releases(&self, call: &Call, taken: u64, clock: impl FnOnce() -> u64) {
        // A rwlock's futexes follow its first word.
        let words = ((call.address >> 2) as u32).wrapping_sub((taken >> 32) as u32);
        if words > 3 {
            return;
        }
        let hand_over = HandOver {
            at: clock(),
            holder: NOBODY,
            is_own: true,
            release: Release {
                thread: taken as u32,
                site: call.caller.site,
            },
        };
        let lock = call.address.wrapping_sub(u64::from(words) * 4);
        self.history().push(lock, &hand_over);
        self.takes(0);
    }
}

/// Charges the parts of a wait since `since`, at whose begin `first` held the lock.
fn charge_parts<C: Fn(u64, u64)>(
    mut parts: Parts<'_, C>,
    mut hand_overs: InOrder<'_>,
    since: u64,
    first: u32,
) {
    for hand_over in &mut hand_overs {
        if hand_over.at < parts.until {
            parts.add(hand_over.holder, hand_over.at);
            parts.release = hand_over.release;
            parts.faster = (!hand_over.is_own).then_some(hand_over.holder);
        }
    }
    if hand_overs.is_cut() {
        parts.release = Release::default();
        return parts.add(0, since);
    }
    parts.add(first, since);
}
