use crate::words::Words;

/// A group of requests that take the same locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Tasks' requests, each under its task's lock.
    Reader,
    /// CPUs' requests, and requests that take all locks.
    Writer,
}

/// A side's counters since the state was zeroed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Granted reservations.
    pub reservations: u64,
    /// How often the locks were taken.
    pub holds: u64,
    /// How often a request waited, because the lock was taken.
    pub waited: u64,
    /// The time that requests waited, in nanoseconds.
    pub waited_ns: u64,
}

pub(crate) const WORDS: usize = 4;
const RESERVATIONS: usize = 0;
const HOLDS: usize = 1;
const WAITED: usize = 2;
const WAITED_NS: usize = 3;

/// The counters of a shard (tasks' lock), or of [`Side::Writer`]. Only the lock's holder writes them.
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
