//! How often each side was locked, and how long calls waited.

use crate::words::Words;

/// The sides of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Requests for tasks, each under its shard's lock.
    Reader,
    /// Requests for CPUs, and for several targets at once, under all shards' locks.
    Writer,
}

/// How often one side was locked, since the state was zeroed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Reservations that were granted.
    pub reservations: u64,
    /// The number of times that the side was locked.
    pub holds: u64,
    /// The number of these times that the caller had to wait.
    pub waited: u64,
    /// The total time of these waits.
    pub waited_ns: u64,
}

pub(crate) const WORDS: usize = 4;
const RESERVATIONS: usize = 0;
const HOLDS: usize = 1;
const WAITED: usize = 2;
const WAITED_NS: usize = 3;

/// The counters, written only by the lock's holder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counters<'a>(pub Words<'a>);

impl Counters<'_> {
    #[inline]
    pub(crate) fn count_lock(&self, waited_ns: Option<u64>) {
        self.0.add(HOLDS, 1);
        if let Some(ns) = waited_ns {
            self.0.add(WAITED, 1);
            self.0.add(WAITED_NS, ns);
        }
    }

    #[inline]
    pub(crate) fn count_reservations(&self, count: u64) {
        self.0.add(RESERVATIONS, count);
    }

    pub(crate) fn read(&self) -> Stats {
        Stats {
            reservations: self.0.load(RESERVATIONS),
            holds: self.0.load(HOLDS),
            waited: self.0.load(WAITED),
            waited_ns: self.0.load(WAITED_NS),
        }
    }
}

impl Stats {
    pub(crate) fn plus(self, other: Stats) -> Stats {
        Stats {
            reservations: self.reservations.wrapping_add(other.reservations),
            holds: self.holds.wrapping_add(other.holds),
            waited: self.waited.wrapping_add(other.waited),
            waited_ns: self.waited_ns.wrapping_add(other.waited_ns),
        }
    }
}
