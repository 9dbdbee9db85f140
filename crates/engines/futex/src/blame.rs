//! Charges a wait's time to the threads that held the lock during the wait.
//!
//! A thread reads the lock's holder before it waits. A woken thread records a hand-over: which thread holds the lock
//! from then on ([`crate::history`]). The time between two hand-overs is charged to the call site where the holder
//! released the lock; if it is unknown, to the holder's id; if this is unknown, to [`holder::UNKNOWN`].
//!
//! | time | charged to |
//! |---|---|
//! | until the first hand-over | the holder at the beginning |
//! | from one hand-over to the next | the holder that the first hand-over names |
//! | from a release to the wake-up of the next holder | [`holder::UNSEEN`] |
//! | from a release to the wake-up, if another thread took the lock first | that thread |
//!
//! A thread that releases a lock reads the clock only if it slept before it took the lock. Otherwise the time of the
//! release is unknown, so the releasing thread is charged until the wake-up.
//!
//! A thread that takes a free lock records nothing. So several threads may have held the lock between the release and
//! the wake-up.
//!
//! A thread reads the clock, then the holder. If it is preempted in between, which is rare, a later holder is charged
//! too much time.

use tiptoe_wire::futex::history::{NOBODY, READERS};
use tiptoe_wire::futex::{head, holder};

use crate::activities::Activity;
use crate::calls::{Call, EndedWait, Thread};
use crate::entries::Entry;
use crate::history::{HandOver, History, InOrder, Release};
use crate::operation::End;
use crate::owner::{self, LockState, OwnedLock};

/// Returns a lock's bits in [`head::THREAD`].
fn short(lock: u64) -> u64 {
    (lock >> 2) << 32
}

/// The parts of a wait, charged from the last to the first.
struct Parts<'c, C> {
    /// The end of the part that is charged next.
    until: u64,
    /// The release of the lock that ended this part.
    release: Release,
    /// The holder that the woken thread found at `until`, if not itself.
    faster: Option<u32>,
    charge: &'c C,
}

impl<C: Fn(u64, u64)> Parts<'_, C> {
    fn add(&mut self, holder: u32, since: u64) {
        // The clock may go back, for example when a virtual machine moves to another host.
        let ticks = self.until.saturating_sub(since);
        self.until = since;
        let thread = |id: u32| holder::THREAD | u64::from(id);
        let key = match (holder, self.faster) {
            // The holder reads as 0 while a thread is taking or releasing the lock.
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

    /// Records the lock that this thread has taken after a sleep, or 0.
    fn takes(&self, lock: u64) {
        let taken = short(lock) | u64::from(self.id());
        self.own().store(head::THREAD as usize, taken);
    }

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
        // The state names a faster thread, or readers (among them this thread), or no holder.
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
        // Recorded before charging, which takes long, because other waiters need the record.
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
            match hand_overs.is_empty() {
                true => parts.add(wait.holder(), ended.since),
                false => {
                    let hand_overs = InOrder::new(hand_overs);
                    charge_parts(parts, hand_overs, ended.since, wait.holder());
                }
            }
        }
    }

    /// Records the present holder if this thread waits again for a lock that it recorded as taken: another thread was
    /// faster.
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

    /// Records a release if the call wakes the waiters of the lock that this thread took after a sleep.
    #[cold]
    #[inline(never)]
    pub(crate) fn releases(&self, call: &Call, taken: u64, clock: impl FnOnce() -> u64) {
        // A rwlock's futexes are among its first four words.
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

/// Charges a wait that began at `since`, when `first` held the lock.
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
