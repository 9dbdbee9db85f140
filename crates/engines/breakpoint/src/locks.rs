//! The locks of [`crate`]'s rules, and a lock for a backend that is not parallel.

use tiptoe_sync::{AllShardsGuard, ShardGuard, Shards, Wait};

use crate::constraints::Constraints;
use crate::error::Error;
use crate::geometry::HEAD;

#[derive(Debug)]
pub(crate) struct Locks<'a, W> {
    shards: Shards<'a, W>,
    cpus: Shards<'a, W>,
    hooks: Shards<'a, W>,
    has_one_shard: bool,
}

#[derive(Clone, Copy)]
pub(crate) enum OnContention {
    Wait,
    Refuse,
}

pub(crate) enum LockGuard<'s, 'a, W: Wait> {
    One(ShardGuard<'a, W>),
    /// All shards (locks of tasks), and the lock of CPUs unless there is only one shard.
    All(AllShardsGuard<'s, 'a, W>, Option<ShardGuard<'a, W>>),
}

impl<W: Wait> LockGuard<'_, '_, W> {
    #[inline]
    pub(crate) fn waited_ns(&self) -> Option<u64> {
        match self {
            LockGuard::One(one) => one.waited_ns,
            LockGuard::All(all, cpus) => {
                let cpus = cpus.as_ref().and_then(|cpus| cpus.waited_ns);
                let both = all.waited_ns.zip(cpus);
                let sum = both.map(|(all, cpus)| all.saturating_add(cpus));
                sum.or(all.waited_ns).or(cpus)
            }
        }
    }
}

impl<'a, W: Wait> Locks<'a, W> {
    pub(crate) fn new(constraints: &Constraints<'a>, wait: &'a W) -> Self {
        Locks {
            shards: Shards::new(constraints.head_words(), HEAD, wait),
            cpus: Shards::new(constraints.cpus_words(), 1, wait),
            hooks: Shards::new(constraints.backend_words(), 1, wait),
            has_one_shard: constraints.layout.shards == 1,
        }
    }

    #[inline]
    pub(crate) fn has_one_shard(&self) -> bool {
        self.has_one_shard
    }

    #[inline]
    pub(crate) fn one(
        &self,
        shard: usize,
        on_contention: OnContention,
    ) -> Result<LockGuard<'_, 'a, W>, Error> {
        lock(&self.shards, shard, on_contention).map(LockGuard::One)
    }

    pub(crate) fn all(&self, on_contention: OnContention) -> Result<LockGuard<'_, 'a, W>, Error> {
        let all = match on_contention {
            OnContention::Wait => Some(self.shards.all()),
            OnContention::Refuse => self.shards.try_all(),
        };
        let all = all.ok_or(Error::Busy)?;
        let cpus = match self.has_one_shard {
            true => None,
            false => Some(self.cpus(on_contention)?),
        };
        Ok(LockGuard::All(all, cpus))
    }

    pub(crate) fn cpus(&self, on_contention: OnContention) -> Result<ShardGuard<'a, W>, Error> {
        lock(&self.cpus, 0, on_contention)
    }

    pub(crate) fn hooks(&self, on_contention: OnContention) -> Result<ShardGuard<'a, W>, Error> {
        lock(&self.hooks, 0, on_contention)
    }
}

#[inline]
fn lock<'a, W: Wait>(
    shards: &Shards<'a, W>,
    index: usize,
    on_contention: OnContention,
) -> Result<ShardGuard<'a, W>, Error> {
    let lock = match on_contention {
        OnContention::Wait => shards.one(index),
        OnContention::Refuse => shards.try_one(index),
    };
    lock.ok_or(Error::Busy)
}
