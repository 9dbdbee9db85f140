//! Whether a space may hold what is not there, or lack what is.
//!
//! Three counts of changes that somebody else must look up afterwards: *begun*, *ended*,
//! and *settled*. There is no doubt while as many are settled as were begun. A change
//! that is edited in under the lock settles itself; one that cannot be stays in doubt
//! until the whole list was read after it ended. Two more, *lacking* and *filled*, tell of
//! what may only be missing.
//!
//! Rules:
//! 1. A change is begun before the kernel makes it: whoever runs code that it brought finds
//!    it begun.
//! 2. Settled changes under the lock of the space, and only it.
//! 3. Whoever reads the list looks at *ended* first, then at *begun*: where they are equal
//!    no change was on its way, and the list has them all.
//!
//! | edge | Release | Acquire |
//! |---|---|---|
//! | H: a change is made | [`Doubt::end`] | [`Doubt::begin_reading`] |
//! | I: the space has it | [`Doubt::end_reading`], [`Doubt::end_noted`] | [`Doubt::is_none`] |
//! | J: something may be missing | [`Doubt::lack`] | [`Doubt::begin_reading`] |

use crate::primitive::{AtomicU64, Ordering::*};

/// The counts.
#[derive(Debug)]
pub struct Doubt {
    begun: AtomicU64,
    ended: AtomicU64,
    settled: AtomicU64,
    lacking: AtomicU64,
    filled: AtomicU64,
}

/// What was known when somebody began to read the list.
#[derive(Debug)]
pub struct Began {
    begun: u64,
    lacking: u64,
    /// No change was on its way.
    quiet: bool,
    /// Nothing was in doubt, or lacking.
    believed: bool,
}

impl Default for Doubt {
    fn default() -> Self {
        Doubt::new()
    }
}

impl Doubt {
    /// None.
    pub fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Doubt {
            begun: zero(),
            ended: zero(),
            settled: zero(),
            lacking: zero(),
            filled: zero(),
        }
    }

    /// Something is about to be taken away, or changed unseen.
    pub fn begin(&self) {
        self.begun.fetch_add(1, Relaxed); // before the call, which orders it
    }

    /// It was done, and the space does not have it.
    pub fn end(&self) {
        // Release: pairs with the Acquire in `begin_reading` (edge H).
        self.ended.fetch_add(1, Release);
    }

    /// It was done and is in the space. Only whoever holds the lock may call this.
    pub fn end_noted(&self) {
        self.end();
        let settled = self.settled.load(Relaxed); // by the lock, as the write
        // Release: pairs with the Acquire in `is_none` (edge I).
        self.settled.store(settled + 1, Release);
    }

    /// Something may be missing.
    pub fn lack(&self) {
        // Release: pairs with the Acquire in `begin_reading` (edge J).
        self.lacking.fetch_add(1, Release);
    }

    /// Whether all that the space holds is there.
    #[inline]
    pub fn is_none(&self) -> bool {
        // Acquire: pairs with the Release of `settled` (edge I). It is read first: were it
        // the other way round, a change could be begun and settled in between for another.
        let settled = self.settled.load(Acquire);
        settled == self.begun.load(Relaxed) // ordered by what the caller runs, rule 1
    }

    /// Whether something may be missing.
    #[inline]
    pub fn is_lacking(&self) -> bool {
        // Relaxed: both only tell whether to read again.
        self.lacking.load(Relaxed) != self.filled.load(Relaxed)
    }

    /// Before the list is read. Only whoever holds the lock may call this.
    pub fn begin_reading(&self) -> Began {
        // Acquire: pairs with the Release in `lack` (edge J).
        let lacking = self.lacking.load(Acquire);
        // Acquire: pairs with the Release in `end` (edge H); the rule of its order is 3.
        let ended = self.ended.load(Acquire);
        let begun = self.begun.load(Relaxed); // ordered by the line above
        Began {
            begun,
            lacking,
            quiet: ended == begun,
            believed: self.is_none() && !self.is_lacking(),
        }
    }

    /// The space now is what the list said. Whether it should have been so before: nothing was
    /// in doubt, and no change came in between. Only whoever holds the lock may call this.
    pub fn end_reading(&self, began: &Began) -> bool {
        self.filled.store(began.lacking, Relaxed); // a hint, as in `is_lacking`
        if began.quiet {
            // Release: pairs with the Acquire in `is_none` (edge I).
            self.settled.store(began.begun, Release);
        }
        let lacking = self.lacking.load(Relaxed); // what came since is read again anyway
        began.believed && began.begun == self.begun.load(Relaxed) && began.lacking == lacking
    }
}
