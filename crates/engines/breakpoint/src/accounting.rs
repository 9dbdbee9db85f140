use tiptoe_sync::{ShardGuard, Wait};

use crate::backend::{Backend, NoBackend};
use crate::constraints::{Constraints, DenyReason, ResolvedRequest, ResolvedTarget};
use crate::error::Error;
use crate::geometry::Geometry;
use crate::locks::{LockGuard, Locks, OnContention};
use crate::primitive::AtomicU64;
use crate::request::{Kind, Replacement, Request, Target};
use crate::stats::{Counters, Side, Stats};
use crate::tasks::TaskSlots;

/// Counts reserved debug registers (*slots*) in memory that the caller provides. Processes may share the memory, each
/// with an `Accounting`.
///
/// A signal handler must use only `try_` methods. Other methods would wait forever for a lock that the interrupted call
/// holds.
#[derive(Debug)]
pub struct Accounting<'a, W, B = NoBackend> {
    constraints: Constraints<'a>,
    locks: Locks<'a, W>,
    backend: B,
}

struct Hold<'s, 'a, W: Wait> {
    _lock: LockGuard<'s, 'a, W>,
    is_alone: bool,
    counters: Counters<'s>,
}

impl<'a, W: Wait> Accounting<'a, W> {
    /// Returns an accounting in `words`, which must be zeroed before first use; `None` if there are too few words.
    pub fn new(geometry: Geometry, words: &'a [AtomicU64], wait: &'a W) -> Option<Self> {
        Accounting::with_backend(geometry, words, wait, NoBackend)
    }
}

impl<'a, W: Wait, B: Backend> Accounting<'a, W, B> {
    /// Returns an accounting whose backend takes granted slots.
    pub fn with_backend(
        geometry: Geometry,
        words: &'a [AtomicU64],
        wait: &'a W,
        backend: B,
    ) -> Option<Self> {
        let constraints = Constraints::new(geometry, words)?;
        Some(Accounting {
            locks: Locks::new(&constraints, wait),
            constraints,
            backend,
        })
    }

    /// Reserves all that a request wants, or nothing.
    pub fn reserve(&self, request: &Request) -> Result<(), Error> {
        self.reserve_if(request, OnContention::Wait)
    }

    /// Reserves without waiting; [`Error::Busy`] if a lock is taken.
    pub fn try_reserve(&self, request: &Request) -> Result<(), Error> {
        self.reserve_if(request, OnContention::Refuse)
    }

    /// Releases a reservation that an equal request made.
    pub fn release(&self, request: &Request) -> Result<(), Error> {
        self.release_if(request, OnContention::Wait)
    }

    /// Releases without waiting; [`Error::Busy`] if a lock is taken.
    pub fn try_release(&self, request: &Request) -> Result<(), Error> {
        self.release_if(request, OnContention::Refuse)
    }

    /// Replaces `old` by `new`; on failure keeps `old`. No other request can take the slots in between.
    pub fn modify(&self, old: &Request, new: &Request) -> Result<(), Error> {
        let (old_resolved, new_resolved) = (self.resolve(old)?, self.resolve(new)?);
        let shards = old_resolved.shard().zip(new_resolved.shard());
        let shard = shards.filter(|(old, new)| old == new);
        let hold = self.hold(shard.map(|(shard, _)| shard), OnContention::Wait)?;
        let _cpus = self.exclude_cpus(&hold, OnContention::Wait)?;
        self.modify_locked(&old_resolved, &new_resolved, &hold)
    }

    /// Makes all replacements, or none.
    pub fn modify_all(&self, all: &[Replacement]) -> Result<(), Error> {
        let hold = self.hold(None, OnContention::Wait)?;
        let modify = |old: &Request, new: &Request| {
            let (old_resolved, new_resolved) = (self.resolve(old)?, self.resolve(new)?);
            self.modify_locked(&old_resolved, &new_resolved, &hold)
        };
        for (count, Replacement { old, new }) in all.iter().enumerate() {
            if let Err(error) = modify(old, new) {
                // Undone in reverse under the same locks, so that each old request finds its slots free.
                let mut replaced = all.iter().take(count).rev();
                replaced.try_for_each(|back| modify(&back.new, &back.old))?;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Reserves on every CPU, or on none.
    pub fn reserve_wide(&self, kind: Kind, weight: u32, holder: u64) -> Result<(), Error> {
        let geometry = &self.constraints.geometry;
        let on = |cpu| Request {
            target: Target::Cpu(cpu),
            kind,
            weight,
            holder,
        };
        (0..geometry.cpus()).try_for_each(|cpu| self.constraints.validate(&on(cpu)))?;
        let hold = self.hold(None, OnContention::Wait)?;
        for cpu in 0..geometry.cpus() {
            let request = on(cpu);
            let resolved = self.resolve(&request)?;
            if let Err(error) = self.reserve_locked(&resolved, &hold, OnContention::Wait) {
                for granted in 0..cpu {
                    let request = on(granted);
                    let resolved = self.resolve(&request)?;
                    self.release_locked(&resolved, OnContention::Wait)?;
                }
                hold.counters
                    .count_reservations(u64::from(cpu).wrapping_neg());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Returns how many slots a target holds. For a task on one CPU, adds the task's slots for that CPU and those for
    /// all CPUs.
    pub fn slots_held(&self, target: Target, kind: Kind) -> u32 {
        let request = Request::new(target, kind, 0);
        self.resolve(&request).map_or(0, |resolved| {
            let hold = self.hold(resolved.shard(), OnContention::Wait);
            hold.map_or(0, |_hold| self.constraints.held_locked(&resolved))
        })
    }

    /// Returns whether nothing is reserved.
    pub fn is_empty(&self) -> bool {
        let hold = self.hold(None, OnContention::Wait);
        hold.is_ok_and(|_hold| self.constraints.is_empty_locked())
    }

    /// Returns a side's counters. Takes no lock, so a call in progress may be counted in part.
    pub fn stats(&self, side: Side) -> Stats {
        let shards = 0..self.constraints.layout.shards;
        let sides = match side {
            Side::Reader => shards.map(Some).chain(None),
            Side::Writer => (0..0).map(Some).chain(Some(None)),
        };
        sides
            .map(|shard| self.constraints.counters(shard).read())
            .fold(Stats::default(), Stats::plus)
    }

    #[inline]
    fn resolve<'s>(&'s self, request: &'s Request) -> Result<ResolvedRequest<'s>, Error> {
        self.constraints.validate(request)?;
        self.constraints.resolve(request).ok_or(Error::Full)
    }

    #[inline]
    fn reserve_if(&self, request: &Request, on_contention: OnContention) -> Result<(), Error> {
        let resolved = self.resolve(request)?;
        if let &ResolvedTarget::Cpu(cpu) = &resolved.target {
            if self.reserve_beside_tasks(&resolved, cpu, on_contention)? {
                return Ok(());
            }
        } else {
            let hold = self.hold(resolved.shard(), on_contention)?;
            match self.reserve_locked(&resolved, &hold, on_contention) {
                Err(Error::Full) => {}
                done => return done,
            }
        }
        // With all locks held, a request for a CPU sees the slots of all tasks, and a full *shard* (the tasks under one
        // lock) can take free entries from other shards.
        let hold = self.hold(None, on_contention)?;
        self.reserve_locked(&resolved, &hold, on_contention)
    }

    #[inline]
    fn reserve_locked(
        &self,
        resolved: &ResolvedRequest,
        hold: &Hold<'_, '_, W>,
        on_contention: OnContention,
    ) -> Result<(), Error> {
        let held = match self.check_locked(resolved, hold) {
            Ok(held) => held,
            Err(denied) => self.check_slow(resolved, hold, denied, on_contention)?,
        };
        self.constraints.add_locked(resolved, &held);
        if !hold.is_alone
            && self
                .constraints
                .check_again_locked(resolved, &held)
                .is_err()
        {
            self.confirm_slow(resolved, &held, on_contention)?;
        }
        self.take_locked(resolved, on_contention)?;
        hold.counters.count_reservations(1);
        Ok(())
    }

    /// Checks again while requests for CPUs are locked out.
    #[cold]
    fn check_slow(
        &self,
        resolved: &ResolvedRequest,
        hold: &Hold<'_, '_, W>,
        denied: DenyReason,
        on_contention: OnContention,
    ) -> Result<TaskSlots, Error> {
        if denied == DenyReason::Full {
            return Err(Error::Full);
        }
        let _cpus = self.exclude_cpus(hold, on_contention)?;
        let checked = self.check_locked(resolved, hold);
        checked.map_err(|denied| self.constraints.explain_locked(resolved, denied))
    }

    /// Checks a recorded request again as `check_slow` does, and removes it if refused.
    #[cold]
    fn confirm_slow(
        &self,
        resolved: &ResolvedRequest,
        held: &TaskSlots,
        on_contention: OnContention,
    ) -> Result<(), Error> {
        let cpus = self.locks.cpus(on_contention);
        let checked = match &cpus {
            Ok(_) => self.constraints.check_again_locked(resolved, held),
            Err(busy) => {
                self.constraints.remove_locked(resolved, || ());
                return Err(*busy);
            }
        };
        checked.map_err(|denied| {
            self.constraints.remove_locked(resolved, || ());
            self.constraints.explain_locked(resolved, denied)
        })
    }

    /// Reserves for a CPU. Returns `false` if only a check under all locks can decide.
    #[cold]
    fn reserve_beside_tasks(
        &self,
        resolved: &ResolvedRequest,
        cpu: u32,
        on_contention: OnContention,
    ) -> Result<bool, Error> {
        if self.locks.has_one_shard() {
            return Ok(false);
        }
        let hold = self.hold_cpus(on_contention)?;
        if !self.constraints.has_room_for_locked(resolved, cpu) {
            return Ok(false);
        }
        self.constraints.add_locked(resolved, &TaskSlots::default());
        if !self.constraints.fits_beside_tasks_locked(resolved, cpu) {
            self.constraints.remove_locked(resolved, || ());
            return Ok(false);
        }
        self.take_locked(resolved, on_contention)?;
        hold.counters.count_reservations(1);
        Ok(true)
    }

    /// Makes the backend take a recorded request's slots, or removes the request.
    #[inline]
    fn take_locked(
        &self,
        resolved: &ResolvedRequest,
        on_contention: OnContention,
    ) -> Result<(), Error> {
        let alone = self.backend_lock(on_contention);
        let taken = alone.and_then(|_alone| {
            let taken = self.backend.reserve(resolved.request);
            taken.map_err(Error::Backend)
        });
        if taken.is_err() {
            self.constraints.remove_locked(resolved, || ());
        }
        taken
    }

    fn modify_locked(
        &self,
        old_resolved: &ResolvedRequest,
        new_resolved: &ResolvedRequest,
        hold: &Hold<'_, '_, W>,
    ) -> Result<(), Error> {
        if !self.constraints.remove_locked(old_resolved, || ()) {
            return Err(Error::NotHeld);
        }
        let checked = self.check_locked(new_resolved, hold);
        let checked =
            checked.map_err(|denied| self.constraints.explain_locked(new_resolved, denied));
        let done = checked.and_then(|held| {
            let _alone = self.backend_lock(OnContention::Wait)?;
            let replaced = self
                .backend
                .replace(old_resolved.request, new_resolved.request);
            replaced.map(|()| held).map_err(Error::Backend)
        });
        match &done {
            Ok(held) => self.constraints.add_locked(new_resolved, held),
            Err(_) => {
                if hold.is_alone {
                    // `gather_locked` for the new request may have moved the old request's entry to another shard.
                    self.constraints.gather_locked(old_resolved);
                }
                self.constraints.restore_locked(old_resolved);
            }
        }
        done.map(|_| ())
    }

    /// Checks a request. If its shard is full and all shards are locked, takes free entries of other shards.
    #[inline]
    fn check_locked(
        &self,
        resolved: &ResolvedRequest,
        hold: &Hold<'_, '_, W>,
    ) -> Result<TaskSlots, DenyReason> {
        let mut checked = self.constraints.check_locked(resolved);
        if hold.is_alone && checked == Err(DenyReason::Full) {
            self.constraints.gather_locked(resolved);
            checked = self.constraints.check_locked(resolved);
        }
        checked
    }

    #[inline]
    fn release_if(&self, request: &Request, on_contention: OnContention) -> Result<(), Error> {
        let resolved = self.resolve(request)?;
        let _hold = match resolved.shard() {
            None if !self.locks.has_one_shard() => self.hold_cpus(on_contention),
            shard => self.hold(shard, on_contention),
        }?;
        self.release_locked(&resolved, on_contention)
    }

    #[inline]
    fn release_locked(
        &self,
        resolved: &ResolvedRequest,
        on_contention: OnContention,
    ) -> Result<(), Error> {
        let _alone = self.backend_lock(on_contention)?;
        let release = || self.backend.release(resolved.request);
        match self.constraints.remove_locked(resolved, release) {
            true => Ok(()),
            false => Err(Error::NotHeld),
        }
    }

    /// Locks a shard; `None` locks everything.
    #[inline]
    fn hold(
        &self,
        shard: Option<usize>,
        on_contention: OnContention,
    ) -> Result<Hold<'_, 'a, W>, Error> {
        let lock = match shard {
            Some(shard) => self.locks.one(shard, on_contention),
            None => self.locks.all(on_contention),
        }?;
        let is_alone = shard.is_none() || self.locks.has_one_shard();
        Ok(self.count(lock, shard, is_alone))
    }

    fn hold_cpus(&self, on_contention: OnContention) -> Result<Hold<'_, 'a, W>, Error> {
        let lock = LockGuard::One(self.locks.cpus(on_contention)?);
        Ok(self.count(lock, None, false))
    }

    #[inline]
    fn count<'s>(
        &'s self,
        lock: LockGuard<'s, 'a, W>,
        shard: Option<usize>,
        is_alone: bool,
    ) -> Hold<'s, 'a, W> {
        let counters = self.constraints.counters(shard);
        counters.count_lock(lock.waited_ns());
        Hold {
            _lock: lock,
            is_alone,
            counters,
        }
    }

    fn exclude_cpus(
        &self,
        hold: &Hold<'_, '_, W>,
        on_contention: OnContention,
    ) -> Result<Option<ShardGuard<'a, W>>, Error> {
        match hold.is_alone {
            true => Ok(None),
            false => self.locks.cpus(on_contention).map(Some),
        }
    }

    #[inline]
    fn backend_lock(
        &self,
        on_contention: OnContention,
    ) -> Result<Option<ShardGuard<'a, W>>, Error> {
        match B::PARALLEL {
            true => Ok(None),
            false => self.locks.hooks(on_contention).map(Some),
        }
    }
}
