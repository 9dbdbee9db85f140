//! Hooks before and after a futex call.
//!
//! A woken thread may find the lock taken and wait again. All waits for one lock in one call by the user's code are an
//! *episode*, which ends when the thread waits for another lock or wakes the lock's waiters.

use tiptoe_wire::Words;
use tiptoe_wire::futex::{HOLDS, OPERATION_SHIFT, entry, head};

use crate::activities::{Activities, Activity};
use crate::board::Board;
use crate::entries::{Entries, Entry, Key};
use crate::gaps::{Beginning, Gaps};
use crate::history::Release;
use crate::holds::{Holds, LockOperation};
use crate::operation::{End, Kind};
use crate::owner::{self, LockState, OwnedLock};
use crate::paths::Caller;

const OPERATION: u32 = 0xffff;
/// In [`Activity::operation`]: position of the kind of lock, if the lock records its holder.
const LOCK_SHIFT: u32 = 16;
const LOCK: u64 = 7;
/// In [`Activity::operation`]: the wait begins an episode.
const FIRST: u64 = 1 << 32;
/// In [`Activity::operation`]: position of the lock's holder or number of readers.
const LOCK_STATE_SHIFT: u32 = 33;
const LOCK_STATE: u64 = (1 << (WEIGHT_SHIFT - LOCK_STATE_SHIFT)) - 1;
/// In [`Activity::operation`]: position of the wait's weight; 0 if sampling skipped the wait.
const WEIGHT_SHIFT: u32 = 57;

/// In a wake's stamp (its unique number): position of the thread.
const STAMP_SHIFT: u32 = 40;
const VIA: u64 = (1 << OPERATION_SHIFT) - 1;

const _: () = assert!(2 * crate::gaps::MOST + 1 < 1 << (u64::BITS - WEIGHT_SHIFT));
const _: () = assert!(LOCK_STATE + 1 == 1 << owner::LOCK_SHIFT);

/// A futex call about to be made.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The futex.
    pub address: u64,
    /// The operation, with flags.
    pub operation: u32,
    /// The position on the stack ([`Activity::sp`]), equal before and after the call.
    pub sp: u64,
    /// The user's call site.
    pub caller: Caller,
    /// The hook's return address, recorded if no return address is in libc.
    pub at: u64,
    /// Whether a second hook, which times a wait, runs after the call.
    pub is_timed: bool,
}

/// A thread's hooks.
#[derive(Clone, Copy)]
pub struct Thread<'a> {
    own: Words<'a>,
    board: Board<'a>,
    scope: u64,
}

pub(crate) struct EndedWait {
    pub(crate) lock: OwnedLock,
    pub(crate) since: u64,
    pub(crate) now: u64,
    pub(crate) end: End,
    pub(crate) lock_state: LockState,
    pub(crate) release: Release,
}

impl Call {
    fn via(&self) -> u64 {
        let via = match self.caller.via {
            0 => self.at,
            via => via,
        };
        via & VIA | u64::from(self.operation & 0x7f) << OPERATION_SHIFT
    }

    #[inline]
    fn episode(&self, own: Words<'_>) -> u64 {
        let first = head::EPISODE as usize;
        let Caller { site, frame, .. } = self.caller;
        if own.load(first) == self.address
            && own.load(first + 1) == site
            && own.load(head::EPISODE_FRAME as usize) == frame
        {
            return 0;
        }
        own.store(first, self.address);
        own.store(first + 1, site);
        own.store(head::EPISODE_FRAME as usize, frame);
        FIRST
    }
}

impl Activity {
    fn lock_state(&self) -> LockState {
        (self.operation >> LOCK_STATE_SHIFT & LOCK_STATE) as LockState
    }

    /// Returns the lock's holder at the beginning, encoded as in [`crate::history`].
    pub(crate) fn holder(&self) -> u32 {
        owner::holder(self.lock_state())
    }

    fn lock(&self) -> Option<OwnedLock> {
        OwnedLock::decode(self.operation >> LOCK_SHIFT & LOCK)
    }

    pub(crate) fn mark(&self) -> u64 {
        self.within
    }
}

impl<'a> Thread<'a> {
    /// Returns the hooks of a thread. `own` are its counters (its slab), `shared` is slab 0, which all threads share.
    pub fn new(own: Words<'a>, shared: Words<'a>) -> Self {
        let (board, scope) = (Board::new(shared), 0);
        Thread { own, board, scope }
    }

    /// Sets the thread's scope, a node of [`tiptoe_wire::scopes`].
    #[inline(always)]
    #[must_use]
    pub fn with_scope(self, scope: u64) -> Self {
        Thread { scope, ..self }
    }

    #[inline(always)]
    pub(crate) fn own(&self) -> Words<'a> {
        self.own
    }

    pub(crate) fn shared(&self) -> Words<'a> {
        self.board.words()
    }

    /// Returns whether the call is a wait that is probably timed. If so, the hook reads the clock before it searches
    /// for the call site, so that the CPU does both at once.
    #[inline(always)]
    pub fn is_next_timed(&self, operation: u32) -> bool {
        Kind::of(operation) == Kind::Wait && Gaps::new(self.own).is_next_timed()
    }

    /// Records a call before it is made. `lock` returns the lock's kind if the lock records its holder, and `load`
    /// reads four bytes of the lock. `clock` returns ticks; it is called only for sampled waits, and for releases of a
    /// lock that the thread took after a sleep.
    #[inline(always)]
    pub fn begins(
        &self,
        call: &Call,
        lock: impl FnOnce() -> Option<OwnedLock>,
        clock: impl FnOnce() -> u64,
        load: impl Fn(u64) -> u32,
    ) {
        match Kind::of(call.operation) {
            Kind::Wait => self.waits(call, lock(), clock, load),
            Kind::Wake => self.wakes(call, clock),
            Kind::Other => {}
        }
    }

    #[inline(always)]
    fn waits(
        &self,
        call: &Call,
        lock: Option<OwnedLock>,
        clock: impl FnOnce() -> u64,
        load: impl Fn(u64) -> u32,
    ) {
        let find = || lock.map_or(0, |lock| lock.find(call.address, &load));
        let activities = Activities::new(self.own);
        if !activities.is_empty() && self.is_inside(call) {
            return;
        }
        let number = self.own.count_own(head::WAITS as usize);
        let gaps = Gaps::new(self.own);
        let (since, lock_state, weight, seen, within) = match gaps.skip(number) {
            Some(number) => (number, find(), 0, 0, 0),
            None => {
                cold_branch();
                // The mark must be read before the holder, so that the holder is newer than all hand-overs that the
                // mark counts.
                let mark = lock.map_or(0, |lock| self.history().mark(lock.address(call.address)));
                let now = clock();
                let lock_state = find();
                let seen = self.board.seen(call.address);
                self.waits_again(call, lock_state, now);
                (now, lock_state, gaps.take_weight(now), seen, mark)
            }
        };
        let Caller { site, frame, .. } = call.caller;
        let wait = Activity {
            sp: call.sp,
            address: call.address,
            site,
            via: call.via(),
            since,
            operation: u64::from(
                call.operation & OPERATION | lock_state >> owner::LOCK_SHIFT << LOCK_SHIFT,
            ) | call.episode(self.own)
                | (u64::from(lock_state) & LOCK_STATE) << LOCK_STATE_SHIFT
                | weight << WEIGHT_SHIFT,
            frame,
            seen,
            within,
        };
        if !call.is_timed || !activities.push(&wait) {
            self.counted(&wait, End::Other);
        }
    }

    /// Returns whether the call is inside a wait that a library reports. If not, counts waits that the thread left
    /// without a return.
    #[cold]
    #[inline(never)]
    fn is_inside(&self, call: &Call) -> bool {
        let activities = Activities::new(self.own);
        let seen = || self.board.seen(call.address);
        if activities.is_within_reported(call.sp, call.address, seen) {
            return true;
        }
        while let Some(wait) = activities.pop_left(call.sp) {
            self.counts_left(&wait);
        }
        false
    }

    #[inline(always)]
    fn wakes(&self, call: &Call, clock: impl FnOnce() -> u64) {
        let wakes = self.own.count_own(head::WAKES as usize);
        let thread = self.own.load(head::THREAD as usize);
        if thread >> 32 != 0 {
            self.releases(call, thread, clock);
        }
        self.board
            .note(call.address, call.caller.site, stamp(thread, wakes));
        if self.own.load(head::EPISODE as usize) == call.address {
            self.own.store(head::EPISODE as usize, 0);
        }
    }

    #[inline(always)]
    fn entry(&self, key: &Key) -> Option<Entry<'a>> {
        let entry = Entries::new(self.own).of(key);
        if entry.is_none() {
            self.own.add_own(head::FULL as usize, 1);
        }
        entry
    }

    #[inline(always)]
    pub(crate) fn count(&self, wait: &Activity, end: u32) -> Option<Entry<'a>> {
        let entry = self.entry(&Key {
            address: wait.address,
            site: wait.site,
            via: wait.via,
            scope: self.scope,
        })?;
        entry.add(entry::CALLS, 1);
        entry.add(end, 1);
        if wait.operation & FIRST != 0 {
            entry.add(entry::EPISODES, 1);
        }
        Some(entry)
    }

    #[inline(always)]
    fn counted(&self, wait: &Activity, end: End) -> Option<Entry<'a>> {
        let entry = self.count(wait, end.word())?;
        let readers = owner::readers(wait.lock_state());
        if readers != 0 {
            entry.found_readers(readers.into());
        }
        Some(entry)
    }

    /// Records that the call at this stack position returned. `ns` converts ticks; `load` reads four bytes of the lock.
    /// Ignores calls without a recorded beginning. Does not time waits that returned at once or were skipped, because
    /// reading the clock would be most of the hooks' cost.
    #[inline(always)]
    pub fn ends(
        &self,
        sp: u64,
        result: i64,
        clock: impl Fn() -> u64,
        ns: impl Fn(u64) -> u64,
        load: impl Fn(u64) -> u32,
    ) {
        if let Some(wait) = Activities::new(self.own).pop(sp) {
            self.over(&wait, result, clock, ns, load);
        }
    }

    #[inline(always)]
    pub(crate) fn over(
        &self,
        wait: &Activity,
        result: i64,
        clock: impl Fn() -> u64,
        ns: impl Fn(u64) -> u64,
        load: impl Fn(u64) -> u32,
    ) -> Option<Entry<'a>> {
        let (holds, end) = (Holds::new(self.own), End::of(result));
        let beginning = Beginning::of(wait.since);
        if end == End::AtOnce || beginning == Beginning::Unknown {
            holds.waited(wait.site, wait.frame, clock);
            return self.counted(wait, end);
        }
        cold_branch();
        let now = clock();
        let lock = wait.lock();
        let lock_state = match (lock, end) {
            (Some(lock), End::Woken) if lock != OwnedLock::Inheriting => {
                lock.find(wait.address, load)
            }
            _ => 0,
        };
        holds.waited(wait.site, wait.frame, || now);
        let entry = self.counted(wait, end);
        let sampled_weight = wait.operation >> WEIGHT_SHIFT;
        let (since, weight) = match beginning {
            Beginning::At(since) => (since, sampled_weight),
            Beginning::LongAgo(since) => (since, 1),
            Beginning::Unknown => return entry,
        };
        // A skipped wait saved no checksum of the last wake, so the last recorded waker is blamed, even if it woke
        // before this wait.
        let address = match (lock, wait.within) {
            (None, futex) if futex != 0 => futex,
            _ => wait.address,
        };
        let wake = match end {
            End::Woken => self.board.wake(address, wait.seen),
            _ => None,
        };
        if let Some(entry) = &entry {
            let ns = ns(now.saturating_sub(since));
            entry.slept(ns, weight);
            if sampled_weight != 0 && end != End::Other {
                entry.add(entry::TIMED, 1);
            }
            if let Some(wake) = wake {
                entry.woken_from(wake.site, ns, weight);
            }
        }
        if let Some(lock) = lock
            && end != End::Other
        {
            let release = wake.map_or(Release::default(), |wake| Release {
                thread: (wake.stamp >> STAMP_SHIFT) as u32,
                site: wake.site,
            });
            let ended = EndedWait {
                lock,
                since,
                now,
                end,
                lock_state,
                release,
            };
            let entry = entry.as_ref().map(|entry| (entry, weight));
            self.charge(wait, &ended, entry, ns);
        }
        entry
    }

    /// Records a call of a function that takes or releases the lock that `--hold` names.
    #[inline(never)]
    pub fn lock_operation(
        &self,
        operation: LockOperation,
        lock: u64,
        caller: &Caller,
        now: u64,
        ns: impl Fn(u64) -> u64,
    ) {
        let holds = Holds::new(self.own);
        let is_exclusive = matches!(operation, LockOperation::Frees | LockOperation::Leaves);
        let released = if is_exclusive {
            self.board.released()
        } else {
            0
        };
        let held = holds.record(operation, lock, caller, now, released);
        if operation == LockOperation::Leaves || is_exclusive && !holds.is_held_on(lock) {
            self.board.note_release(now);
        }
        let Some(held) = held else {
            return;
        };
        let key = Key {
            address: lock,
            site: held.site,
            via: HOLDS,
            scope: 0,
        };
        if let Some(entry) = self.entry(&key) {
            entry.add(entry::CALLS, 1);
            entry.slept(ns(held.ticks), 1);
        }
    }
}

/// Returns a stamp that is unique until this thread has made 2^40 more wakes.
#[inline(always)]
fn stamp(thread: u64, wakes: u64) -> u64 {
    thread << STAMP_SHIFT | wakes & ((1 << STAMP_SHIFT) - 1)
}

/// Marks a branch as cold, so that skipped waits run without a jump.
#[cold]
fn cold_branch() {}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests;
