//! How often each side was taken, and what was waited for it.

use crate::words::Words;

/// Who excludes whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Requests of tasks: they exclude those of the same shard and every writer.
    Reader,
    /// Requests of CPUs, and of several at once: they exclude everybody.
    Writer,
}

/// What happened on one side since the state was zeroed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Reservations that were granted.
    pub reservations: u64,
    /// How often the side was taken, for whatever reason.
    pub holds: u64,
    /// How many of these had to wait.
    pub waited: u64,
    /// For how long.
    pub waited_ns: u64,
}

/// Words of each counter's place.
pub(crate) const WORDS: usize = 4;
const RESERVATIONS: usize = 0;
const HOLDS: usize = 1;
const WAITED: usize = 2;
const WAITED_NS: usize = 3;

/// The counters; only who holds the lock beside them writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counters<'a>(pub Words<'a>);

impl Counters<'_> {
    #[inline]
    pub(crate) fn held(&self, waited_ns: Option<u64>) {
        self.0.add(HOLDS, 1);
        if let Some(ns) = waited_ns {
            self.0.add(WAITED, 1);
            self.0.add(WAITED_NS, ns);
        }
    }

    #[inline]
    pub(crate) fn reserved(&self, count: u64) {
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
