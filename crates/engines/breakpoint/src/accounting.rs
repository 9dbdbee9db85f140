//! The locks around the counting rules.

use tiptoe_sync::{All, One, Shards, Wait};

use crate::backend::{Backend, NoBackend};
use crate::constraints::{Asked, Constraints, Denied};
use crate::error::Error;
use crate::geometry::{Geometry, HEAD};
use crate::primitive::AtomicU64;
use crate::request::{Kind, Request, Target};
use crate::stats::{Counters, Side, Stats};
use crate::tasks::Held;

/// The accounting of a machine's debug registers. What it knows is in the caller's words; all
/// who share these have one of their own.
///
/// A thread must not call it from a signal handler that may have interrupted a call of its
/// own, except by `try_`.
#[derive(Debug)]
pub struct Accounting<'a, W, B = NoBackend> {
    constraints: Constraints<'a>,
    shards: Shards<'a, W>,
    /// One: the lock of a backend that wants one.
    hooks: Shards<'a, W>,
    backend: B,
}

/// What is held during a call, and the counters that belong to it.
struct Hold<'s, 'a, W: Wait> {
    lock: Lock<'s, 'a, W>,
    counters: Counters<'s>,
}

enum Lock<'s, 'a, W: Wait> {
    One(One<'a, W>),
    All(All<'s, 'a, W>),
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

/// What to do about a lock that is taken.
#[derive(Clone, Copy)]
enum Taken {
    Wait,
    Refuse,
}

impl<'a, W: Wait> Accounting<'a, W> {
    /// The accounting in these words: zeroed ones where nothing is reserved yet. None where
    /// there are too few.
    pub fn new(geometry: Geometry, words: &'a [AtomicU64], wait: &'a W) -> Option<Self> {
        Accounting::with_backend(geometry, words, wait, NoBackend)
    }
}

impl<'a, W: Wait, B: Backend> Accounting<'a, W, B> {
    /// With something that takes what was accounted for.
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

    /// Reserves what is asked for, or nothing.
    pub fn reserve(&self, request: &Request) -> Result<(), Error> {
        self.reserve_if(request, Taken::Wait)
    }

    /// For debuggers: the same, but [`Error::Busy`] instead of waiting.
    pub fn try_reserve(&self, request: &Request) -> Result<(), Error> {
        self.reserve_if(request, Taken::Refuse)
    }

    /// Releases what was reserved by the same words.
    pub fn release(&self, request: &Request) -> Result<(), Error> {
        self.release_if(request, Taken::Wait)
    }

    /// For debuggers: the same, but [`Error::Busy`] instead of waiting.
    pub fn try_release(&self, request: &Request) -> Result<(), Error> {
        self.release_if(request, Taken::Refuse)
    }

    /// Reserves `new` for `old`, or leaves `old` as it was. Nobody gets between.
    pub fn modify(&self, old: &Request, new: &Request) -> Result<(), Error> {
        let (old_asked, new_asked) = (self.asked(old)?, self.asked(new)?);
        let shards = old_asked.shard().zip(new_asked.shard());
        let shard = shards.filter(|(old, new)| old == new);
        let hold = self.hold(shard.map(|(shard, _)| shard), Taken::Wait)?;
        if !self.constraints.remove_locked(&old_asked) {
            return Err(Error::NotHeld);
        }
        let checked = self.check_locked(&new_asked, &hold);
        let checked = checked.map_err(|denied| self.constraints.explain_locked(&new_asked, denied));
        let done = checked.and_then(|held| {
            let _alone = self.backend_lock(Taken::Wait)?;
            let replaced = self.backend.replace(old, new);
            replaced.map(|()| held).map_err(Error::Backend)
        });
        match &done {
            Ok(held) => self.constraints.add_locked(&new_asked, held),
            Err(_) => {
                if hold.is_all() {
                    // Its room may have gone to the new one's shard.
                    self.constraints.gather_locked(&old_asked);
                }
                self.constraints.restore_locked(&old_asked);
            }
        }
        done.map(|_| ())
    }

    /// Reserves all, or nothing, in one hold.
    pub fn reserve_all(&self, requests: &[Request]) -> Result<(), Error> {
        self.reserve_each(requests.iter().copied())
    }

    /// Releases all, in one hold. Tells if one was not reserved, and releases the others.
    pub fn release_all(&self, requests: &[Request]) -> Result<(), Error> {
        self.release_each(requests.iter().copied())
    }

    /// Reserves on every CPU, or nowhere, in one hold.
    pub fn reserve_wide(&self, kind: Kind, weight: u32, holder: u64) -> Result<(), Error> {
        self.reserve_each(self.wide(kind, weight, holder))
    }

    /// Releases on every CPU.
    pub fn release_wide(&self, kind: Kind, weight: u32, holder: u64) -> Result<(), Error> {
        self.release_each(self.wide(kind, weight, holder))
    }

    /// How many slots a target holds at this moment: of a task on a CPU, all that it holds
    /// there.
    pub fn held(&self, target: Target, kind: Kind) -> u32 {
        let request = Request::new(target, kind, 0);
        self.asked(&request).map_or(0, |asked| {
            let hold = self.hold(asked.shard(), Taken::Wait);
            hold.map_or(0, |_hold| self.constraints.held_locked(&asked))
        })
    }

    /// Whether nothing is reserved.
    pub fn is_empty(&self) -> bool {
        let hold = self.hold(None, Taken::Wait);
        hold.is_ok_and(|_hold| self.constraints.is_empty_locked())
    }

    /// What happened on one side so far. Nobody waits for that: a call in progress may be
    /// counted in part.
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
    fn asked<'s>(&'s self, request: &'s Request) -> Result<Asked<'s>, Error> {
        self.constraints.validate(request)?;
        self.constraints.asked(request).ok_or(Error::Full)
    }

    #[inline]
    fn reserve_if(&self, request: &Request, taken: Taken) -> Result<(), Error> {
        let asked = self.asked(request)?;
        {
            let hold = self.hold(asked.shard(), taken)?;
            match self.reserve_locked(&asked, &hold, taken) {
                Err(Error::Full) => {}
                done => return done,
            }
        }
        // Other shards may have room.
        let hold = self.hold(None, taken)?;
        self.reserve_locked(&asked, &hold, taken)
    }

    #[inline]
    fn reserve_locked(
        &self,
        asked: &Asked,
        hold: &Hold<'_, '_, W>,
        taken: Taken,
    ) -> Result<(), Error> {
        let held = match self.check_locked(asked, hold) {
            Ok(held) => held,
            Err(denied) => return Err(self.constraints.explain_locked(asked, denied)),
        };
        {
            let _alone = self.backend_lock(taken)?;
            self.backend
                .reserve(asked.request)
                .map_err(Error::Backend)?;
        }
        self.constraints.add_locked(asked, &held);
        hold.counters.reserved(1);
        Ok(())
    }

    /// Whether a request can be granted under a hold. Who holds everything finds room for
    /// it, if there is any.
    #[inline]
    fn check_locked(&self, asked: &Asked, hold: &Hold<'_, '_, W>) -> Result<Held, Denied> {
        let mut checked = self.constraints.check_locked(asked);
        if hold.is_all() && checked == Err(Denied::Full) {
            self.constraints.gather_locked(asked);
            checked = self.constraints.check_locked(asked);
        }
        checked
    }

    #[inline]
    fn release_if(&self, request: &Request, taken: Taken) -> Result<(), Error> {
        let asked = self.asked(request)?;
        let _hold = self.hold(asked.shard(), taken)?;
        self.release_locked(&asked, taken)
    }

    #[inline]
    fn release_locked(&self, asked: &Asked, taken: Taken) -> Result<(), Error> {
        let _alone = self.backend_lock(taken)?;
        if !self.constraints.remove_locked(asked) {
            return Err(Error::NotHeld);
        }
        self.backend.release(asked.request);
        Ok(())
    }

    fn reserve_each(&self, requests: impl Iterator<Item = Request> + Clone) -> Result<(), Error> {
        let mut all = requests.clone();
        all.try_for_each(|request| self.constraints.validate(&request))?;
        let hold = self.hold(None, Taken::Wait)?;
        for (count, request) in requests.clone().enumerate() {
            let asked = self.asked(&request)?;
            if let Err(error) = self.reserve_locked(&asked, &hold, Taken::Wait) {
                for granted in requests.take(count) {
                    let asked = self.asked(&granted)?;
                    self.release_locked(&asked, Taken::Wait)?;
                }
                hold.counters.reserved((count as u64).wrapping_neg());
                return Err(error);
            }
        }
        Ok(())
    }

    fn release_each(&self, requests: impl Iterator<Item = Request>) -> Result<(), Error> {
        let _hold = self.hold(None, Taken::Wait)?;
        let mut all = Ok(());
        for request in requests {
            let asked = self.asked(&request);
            let done = asked.and_then(|asked| self.release_locked(&asked, Taken::Wait));
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

    /// A shard, or all of them.
    #[inline]
    fn hold(&self, shard: Option<usize>, taken: Taken) -> Result<Hold<'_, 'a, W>, Error> {
        let lock = match (shard, taken) {
            (Some(shard), Taken::Wait) => self.shards.one(shard).map(Lock::One),
            (Some(shard), Taken::Refuse) => self.shards.try_one(shard).map(Lock::One),
            (None, Taken::Wait) => Some(Lock::All(self.shards.all())),
            (None, Taken::Refuse) => self.shards.try_all().map(Lock::All),
        };
        let lock = lock.ok_or(Error::Busy)?;
        let counters = self.constraints.counters(shard);
        counters.held(lock.waited_ns());
        Ok(Hold { lock, counters })
    }

    /// The lock of a backend that wants one.
    #[inline]
    fn backend_lock(&self, taken: Taken) -> Result<Option<One<'a, W>>, Error> {
        let lock = match (B::PARALLEL, taken) {
            (true, _) => return Ok(None),
            (false, Taken::Wait) => self.hooks.one(0),
            (false, Taken::Refuse) => self.hooks.try_one(0),
        };
        lock.map(Some).ok_or(Error::Busy)
    }
}
