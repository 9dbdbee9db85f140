//! The locks around the counting rules, and the public operations.

use tiptoe_sync::{AllShardsGuard, ShardGuard, Shards, Wait};

use crate::backend::{Backend, NoBackend};
use crate::constraints::{Constraints, DenyReason, ResolvedRequest};
use crate::error::Error;
use crate::geometry::{Geometry, HEAD};
use crate::primitive::AtomicU64;
use crate::request::{Kind, Replacement, Request, Target};
use crate::stats::{Counters, Side, Stats};
use crate::tasks::TaskSlots;

/// The accounting of a machine's debug registers, in the caller's words. Each process that shares
/// them has its own.
///
/// A signal handler must use only the `try_` methods, because it would deadlock on its shard if it
/// interrupted a call.
#[derive(Debug)]
pub struct Accounting<'a, W, B = NoBackend> {
    constraints: Constraints<'a>,
    shards: Shards<'a, W>,
    /// A lock for a backend that is not parallel.
    hooks: Shards<'a, W>,
    backend: B,
}

/// The lock held during a call, and its counters.
struct Hold<'s, 'a, W: Wait> {
    lock: Lock<'s, 'a, W>,
    counters: Counters<'s>,
}

enum Lock<'s, 'a, W: Wait> {
    One(ShardGuard<'a, W>),
    All(AllShardsGuard<'s, 'a, W>),
}

impl<W: Wait> Lock<'_, '_, W> {
    #[inline]
    fn waited_ns(&self) -> Option<u64> {
        match self {
            Lock::One(one) => one.waited_ns,
            Lock::All(all) => all.waited_ns,
        }
    }
}

impl<W: Wait> Hold<'_, '_, W> {
    #[inline]
    fn is_all(&self) -> bool {
        matches!(self.lock, Lock::All(_))
    }
}

#[derive(Clone, Copy)]
enum OnContention {
    Wait,
    Refuse,
}

impl<'a, W: Wait> Accounting<'a, W> {
    /// Returns the accounting in these words, if they are enough; they must be zeroed before first
    /// use.
    pub fn new(geometry: Geometry, words: &'a [AtomicU64], wait: &'a W) -> Option<Self> {
        Accounting::with_backend(geometry, words, wait, NoBackend)
    }
}

impl<'a, W: Wait, B: Backend> Accounting<'a, W, B> {
    /// Returns an accounting whose backend takes the granted slots.
    pub fn with_backend(
        geometry: Geometry,
        words: &'a [AtomicU64],
        wait: &'a W,
        backend: B,
    ) -> Option<Self> {
        let constraints = Constraints::new(geometry, words)?;
        Some(Accounting {
            shards: Shards::new(constraints.head_words(), HEAD, wait),
            hooks: Shards::new(constraints.backend_words(), 1, wait),
            constraints,
            backend,
        })
    }

    /// Reserves what the request covers, or nothing.
    pub fn reserve(&self, request: &Request) -> Result<(), Error> {
        self.reserve_if(request, OnContention::Wait)
    }

    /// Reserves without waiting, for debuggers; [`Error::Busy`] if a lock is taken.
    pub fn try_reserve(&self, request: &Request) -> Result<(), Error> {
        self.reserve_if(request, OnContention::Refuse)
    }

    /// Releases a reservation, made by an equal request.
    pub fn release(&self, request: &Request) -> Result<(), Error> {
        self.release_if(request, OnContention::Wait)
    }

    /// Releases without waiting, for debuggers; [`Error::Busy`] if a lock is taken.
    pub fn try_release(&self, request: &Request) -> Result<(), Error> {
        self.release_if(request, OnContention::Refuse)
    }

    /// Replaces `old` by `new`, or keeps `old`. No other request can take the slots in between.
    pub fn modify(&self, old: &Request, new: &Request) -> Result<(), Error> {
        let (old_resolved, new_resolved) = (self.resolve(old)?, self.resolve(new)?);
        let shards = old_resolved.shard().zip(new_resolved.shard());
        let shard = shards.filter(|(old, new)| old == new);
        let hold = self.hold(shard.map(|(shard, _)| shard), OnContention::Wait)?;
        self.modify_locked(&old_resolved, &new_resolved, &hold)
    }

    /// Makes all replacements in one hold of the locks. If one replacement is refused, every
    /// request stays as it was.
    pub fn modify_all(&self, all: &[Replacement]) -> Result<(), Error> {
        let hold = self.hold(None, OnContention::Wait)?;
        let modify = |old: &Request, new: &Request| {
            let (old_resolved, new_resolved) = (self.resolve(old)?, self.resolve(new)?);
            self.modify_locked(&old_resolved, &new_resolved, &hold)
        };
        for (count, Replacement { old, new }) in all.iter().enumerate() {
            if let Err(error) = modify(old, new) {
                // In reverse order, so that each old request finds its slots free: the locks are
                // still held.
                let mut replaced = all.iter().take(count).rev();
                replaced.try_for_each(|back| modify(&back.new, &back.old))?;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Reserves all or nothing, in one hold of the locks.
    pub fn reserve_all(&self, requests: &[Request]) -> Result<(), Error> {
        self.reserve_each(requests.iter().copied())
    }

    /// Releases all requests, in one hold of the locks. Returns an error if one was not reserved,
    /// after releasing the others.
    pub fn release_all(&self, requests: &[Request]) -> Result<(), Error> {
        self.release_each(requests.iter().copied())
    }

    /// Reserves on every CPU or none, in one hold of the locks.
    pub fn reserve_wide(&self, kind: Kind, weight: u32, holder: u64) -> Result<(), Error> {
        self.reserve_each(self.wide(kind, weight, holder))
    }

    /// Returns how many slots a target holds. For a task on a CPU this includes its slots on all
    /// CPUs.
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

    /// Returns one side's counters. Takes no lock, so a call in progress may be counted in part.
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
        {
            let hold = self.hold(resolved.shard(), on_contention)?;
            match self.reserve_locked(&resolved, &hold, on_contention) {
                Err(Error::Full) => {}
                done => return done,
            }
        }
        // The task's shard is full, but other shards may have free entries.
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
            Err(denied) => return Err(self.constraints.explain_locked(resolved, denied)),
        };
        {
            let _alone = self.backend_lock(on_contention)?;
            self.backend
                .reserve(resolved.request)
                .map_err(Error::Backend)?;
        }
        self.constraints.add_locked(resolved, &held);
        hold.counters.count_reservations(1);
        Ok(())
    }

    /// Replaces `old_resolved` by `new_resolved`, or leaves `old_resolved` as it was.
    fn modify_locked(
        &self,
        old_resolved: &ResolvedRequest,
        new_resolved: &ResolvedRequest,
        hold: &Hold<'_, '_, W>,
    ) -> Result<(), Error> {
        if !self.constraints.remove_locked(old_resolved) {
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
                if hold.is_all() {
                    // `gather_locked` for the new request may have moved the entry to another
                    // shard.
                    self.constraints.gather_locked(old_resolved);
                }
                self.constraints.restore_locked(old_resolved);
            }
        }
        done.map(|_| ())
    }

    /// Checks whether a request can be granted. If all shards are held, its shard may take free
    /// entries of others.
    #[inline]
    fn check_locked(
        &self,
        resolved: &ResolvedRequest,
        hold: &Hold<'_, '_, W>,
    ) -> Result<TaskSlots, DenyReason> {
        let mut checked = self.constraints.check_locked(resolved);
        if hold.is_all() && checked == Err(DenyReason::Full) {
            self.constraints.gather_locked(resolved);
            checked = self.constraints.check_locked(resolved);
        }
        checked
    }

    #[inline]
    fn release_if(&self, request: &Request, on_contention: OnContention) -> Result<(), Error> {
        let resolved = self.resolve(request)?;
        let _hold = self.hold(resolved.shard(), on_contention)?;
        self.release_locked(&resolved, on_contention)
    }

    #[inline]
    fn release_locked(
        &self,
        resolved: &ResolvedRequest,
        on_contention: OnContention,
    ) -> Result<(), Error> {
        let _alone = self.backend_lock(on_contention)?;
        if !self.constraints.remove_locked(resolved) {
            return Err(Error::NotHeld);
        }
        self.backend.release(resolved.request);
        Ok(())
    }

    fn reserve_each(&self, requests: impl Iterator<Item = Request> + Clone) -> Result<(), Error> {
        let mut all = requests.clone();
        all.try_for_each(|request| self.constraints.validate(&request))?;
        let hold = self.hold(None, OnContention::Wait)?;
        for (count, request) in requests.clone().enumerate() {
            let resolved = self.resolve(&request)?;
            if let Err(error) = self.reserve_locked(&resolved, &hold, OnContention::Wait) {
                for granted in requests.take(count) {
                    let resolved = self.resolve(&granted)?;
                    self.release_locked(&resolved, OnContention::Wait)?;
                }
                hold.counters
                    .count_reservations((count as u64).wrapping_neg());
                return Err(error);
            }
        }
        Ok(())
    }

    fn release_each(&self, requests: impl Iterator<Item = Request>) -> Result<(), Error> {
        let _hold = self.hold(None, OnContention::Wait)?;
        let mut all = Ok(());
        for request in requests {
            let resolved = self.resolve(&request);
            let done =
                resolved.and_then(|resolved| self.release_locked(&resolved, OnContention::Wait));
            all = all.and(done);
        }
        all
    }

    fn wide(
        &self,
        kind: Kind,
        weight: u32,
        holder: u64,
    ) -> impl Iterator<Item = Request> + Clone + use<'a, W, B> {
        let cpus = 0..self.constraints.geometry.cpus();
        cpus.map(move |cpu| Request {
            target: Target::Cpu(cpu),
            kind,
            weight,
            holder,
        })
    }

    #[inline]
    fn hold(
        &self,
        shard: Option<usize>,
        on_contention: OnContention,
    ) -> Result<Hold<'_, 'a, W>, Error> {
        let lock = match (shard, on_contention) {
            (Some(shard), OnContention::Wait) => self.shards.one(shard).map(Lock::One),
            (Some(shard), OnContention::Refuse) => self.shards.try_one(shard).map(Lock::One),
            (None, OnContention::Wait) => Some(Lock::All(self.shards.all())),
            (None, OnContention::Refuse) => self.shards.try_all().map(Lock::All),
        };
        let lock = lock.ok_or(Error::Busy)?;
        let counters = self.constraints.counters(shard);
        counters.count_lock(lock.waited_ns());
        Ok(Hold { lock, counters })
    }

    #[inline]
    fn backend_lock(
        &self,
        on_contention: OnContention,
    ) -> Result<Option<ShardGuard<'a, W>>, Error> {
        let lock = match (B::PARALLEL, on_contention) {
            (true, _) => return Ok(None),
            (false, OnContention::Wait) => self.hooks.one(0),
            (false, OnContention::Refuse) => self.hooks.try_one(0),
        };
        lock.map(Some).ok_or(Error::Busy)
    }
}
