//! Records whether a space (a copy of the address space) may hold removed mappings (*doubt*), or miss existing ones
//! (*lacking*).
//!
//! Three counts track mappings' changes: *begun*, *ended* and *settled*. There is no doubt while *settled* equals
//! *begun*. A change edited into the space under its lock is settled at once. Any other change is settled by a reading
//! of the kernel's list of mappings that starts when no change is in progress. Two more counts, *lacking* and *filled*,
//! differ while a mapping may be missing.
//!
//! Rules:
//! 1. *Begun* must be raised before the kernel makes the change, so that a thread that runs the new code sees the
//!    raised count.
//! 2. *Settled* must change only under the space's lock.
//! 3. A reader of the list must load *ended* before *begun*. If they are equal, no change was in progress.
//!
//! | edge | Release | Acquire |
//! |---|---|---|
//! | H: a change is made | [`Doubt::end`] | [`Doubt::begin_reading`] |
//! | I: the space has the change | [`Doubt::end_reading`], [`Doubt::end_noted`] | [`Doubt::is_none`] |
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

/// The counts when a reading of the list began.
#[derive(Debug)]
pub struct ReadingStart {
    begun: u64,
    lacking: u64,
    /// Whether no change was in progress.
    is_quiet: bool,
    /// Whether nothing was in doubt or lacking.
    is_believed: bool,
}

impl Default for Doubt {
    fn default() -> Self {
        Doubt::new()
    }
}

impl Doubt {
    /// Returns counts without doubt.
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

    /// Records the start of a change that removes mappings or cannot be edited into the space.
    pub fn begin(&self) {
        self.begun.fetch_add(1, Relaxed); // ordered by the system call after it
    }

    /// Records that a change was made but not edited into the space.
    pub fn end(&self) {
        // Release: pairs with the Acquire in `begin_reading` (edge H).
        self.ended.fetch_add(1, Release);
    }

    /// Records that a change was made and edited into the space. The caller must hold the lock.
    pub fn end_noted(&self) {
        self.end();
        let settled = self.settled.load(Relaxed); // written only under the lock
        // Release: pairs with the Acquire in `is_none` (edge I).
        self.settled.store(settled + 1, Release);
    }

    /// Records that the space may miss a mapping.
    pub fn lack(&self) {
        // Release: pairs with the Acquire in `begin_reading` (edge J).
        self.lacking.fetch_add(1, Release);
    }

    /// Returns whether everything in the space is still mapped.
    #[inline]
    pub fn is_none(&self) -> bool {
        // Acquire: pairs with the Release of `settled` (edge I), and orders this load before that of `begun`. Otherwise
        // a change begun and settled between the loads would hide another change in doubt.
        let settled = self.settled.load(Acquire);
        settled == self.begun.load(Relaxed) // Relaxed: rule 1 orders it for threads that run new code
    }

    /// Returns whether the space may miss a mapping.
    #[inline]
    pub fn is_lacking(&self) -> bool {
        // Relaxed: only a hint to read again.
        self.lacking.load(Relaxed) != self.filled.load(Relaxed)
    }

    /// Saves the counts before the list is read. The caller must hold the lock.
    pub fn begin_reading(&self) -> ReadingStart {
        // Acquire: pairs with the Release in `lack` (edge J).
        let lacking = self.lacking.load(Acquire);
        // Acquire: pairs with the Release in `end` (edge H); loaded before `begun` by rule 3.
        let ended = self.ended.load(Acquire);
        let begun = self.begun.load(Relaxed); // ordered by the load of `ended`
        ReadingStart {
            begun,
            lacking,
            is_quiet: ended == begun,
            is_believed: self.is_none() && !self.is_lacking(),
        }
    }

    /// Records that the space equals the list. Returns whether the space should have been equal before, because nothing
    /// was in doubt or lacking, and no change began during the reading. The caller must hold the lock.
    pub fn end_reading(&self, start: &ReadingStart) -> bool {
        self.filled.store(start.lacking, Relaxed); // only a hint, see `is_lacking`
        if start.is_quiet {
            // Release: pairs with the Acquire in `is_none` (edge I).
            self.settled.store(start.begun, Release);
        }
        let lacking = self.lacking.load(Relaxed); // a later `lack` causes another reading
        start.is_believed && start.begun == self.begun.load(Relaxed) && start.lacking == lacking
    }
}
