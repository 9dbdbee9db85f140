//! Records waits that a library of the program reports, with the library's name for the lock.
//!
//! All that the library does to get the lock (spinning, futex calls) counts as one wait. The waker of the last futex
//! call is the wait's waker. The wait's stack position is the end of its caller's frame, so futex calls at lower
//! positions belong to the wait.

use tiptoe_wire::futex::entry::{NAME, NAME_WORDS};
use tiptoe_wire::futex::{REPORTED, REPORTED_MODE_SHIFT, head};

use crate::activities::Activities;
use crate::calls::{Call, Thread};
use crate::entries::Entry;
use crate::paths::Caller;

/// A reported wait.
#[derive(Clone, Copy, Debug)]
pub struct ReportedWait {
    /// The lock's address.
    pub address: u64,
    /// How the lock is taken (`tiptoe_port::mode`).
    pub mode: u64,
    /// The address of the lock's name, whose text is read when the wait ends.
    pub label: u64,
    /// The end of the caller's frame.
    pub frame_end: u64,
    /// The user's call site.
    pub site: u64,
}

/// The end of a reported wait.
#[derive(Clone, Copy, Debug)]
pub struct ReportedEnd {
    /// The end of the caller's frame.
    pub frame_end: u64,
    /// How the wait ended. 0: locked, 1: timed out, 2: cancelled, 3: panicked.
    pub outcome: u64,
}

/// The outcomes as results of futex(2).
const RESULTS: [i64; 4] = [0, -110, -4, -1];

impl ReportedWait {
    fn call(&self) -> Call {
        Call {
            address: self.address,
            operation: REPORTED,
            sp: self.frame_end,
            caller: Caller {
                site: self.site,
                via: self.label | (self.mode & 0xff) << REPORTED_MODE_SHIFT,
                frame: self.frame_end,
            },
            at: 0,
            is_timed: true,
        }
    }
}

impl Thread<'_> {
    /// Records the beginning of a reported wait.
    #[inline]
    pub fn reported_begins(&self, wait: &ReportedWait, clock: impl FnOnce() -> u64) {
        // The wait begins an episode (a contended call).
        self.own().store(head::EPISODE as usize, 0);
        self.begins(&wait.call(), || None, clock, |_| 0);
    }

    /// Records the end of a reported wait. `name` reads the lock's name at an address.
    #[inline]
    pub fn reported_ends<'n>(
        &self,
        end: ReportedEnd,
        clock: impl Fn() -> u64,
        ns: impl Fn(u64) -> u64,
        name: impl FnOnce(u64) -> &'n [u8],
    ) {
        let Some(wait) = Activities::new(self.own()).pop(end.frame_end) else {
            return;
        };
        let outcome = usize::try_from(end.outcome).ok();
        let result = outcome.and_then(|outcome| RESULTS.get(outcome));
        let entry = self.over(&wait, result.copied().unwrap_or(-1), clock, ns, |_| 0);
        if let Some(entry) = entry.filter(|entry| !entry.has_name()) {
            entry.call(name(wait.via & ((1 << REPORTED_MODE_SHIFT) - 1)));
        }
    }
}

impl Entry<'_> {
    fn has_name(&self) -> bool {
        self.get(NAME) != 0
    }

    /// Stores a name, cut after [`NAME_WORDS`] words; the length last, so that its reader finds the whole name.
    #[cold]
    #[inline(never)]
    fn call(&self, name: &[u8]) {
        let room = NAME_WORDS as usize * 8;
        let name = name.get(..room).unwrap_or(name);
        for (word, bytes) in (NAME + 1..).zip(name.chunks(8)) {
            let spelled = bytes.iter().rev();
            let spelled = spelled.fold(0, |word, byte| word << 8 | u64::from(*byte));
            self.put(word, spelled);
        }
        self.put(NAME, name.len() as u64);
    }
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;
    extern crate std;
    use core::sync::atomic::AtomicU64;
    use std::vec::Vec;
    use tiptoe_wire::Words;
    use tiptoe_wire::futex::{ENTRIES, ENTRY_WORDS, WIDTH, entry};

    fn slab() -> Vec<AtomicU64> {
        (0..WIDTH).map(|_| AtomicU64::new(0)).collect()
    }

    const PLACE: u64 = 0x7000;

    fn reported() -> ReportedWait {
        ReportedWait {
            address: 0x1000,
            mode: 3,
            label: 0x5000,
            frame_end: PLACE,
            site: 5,
        }
    }

    fn call(operation: u32, address: u64, sp: u64) -> Call {
        Call {
            address,
            operation,
            sp,
            caller: Caller {
                site: 6,
                via: 9,
                frame: sp,
            },
            at: 0,
            is_timed: true,
        }
    }

    fn ends(thread: &Thread, outcome: u64, now: u64) {
        let name = |label| match label {
            0x5000 => &b"the sessions of us all"[..],
            _ => b"no label",
        };
        let end = ReportedEnd {
            frame_end: PLACE,
            outcome,
        };
        thread.reported_ends(end, || now, |ticks| ticks, name);
    }

    fn entries(slab: &[AtomicU64], site: u64, wanted: &[u32]) -> Vec<Vec<u64>> {
        let own = Words::new(slab);
        let at = |block: u32, word| own.load((block * ENTRY_WORDS + word) as usize);
        let mine = (1..=ENTRIES).filter(|block| at(*block, entry::SITE) == site);
        mine.map(|block| wanted.iter().map(|word| at(block, *word)).collect())
            .collect()
    }

    const SUMS: [u32; 6] = [
        entry::ADDRESS,
        entry::CALLS,
        entry::EPISODES,
        entry::WOKEN,
        entry::SLEPT_NS,
        entry::WAKERS,
    ];

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
    fn calls_inside_do_not_count_and_name_the_waker() {
        let (own, other, shared) = (slab(), slab(), slab());
        let thread = Thread::new(Words::new(&own), Words::new(&shared));
        let waker = Thread::new(Words::new(&other), Words::new(&shared));
        thread.reported_begins(&reported(), || 100);
        for now in [110, 120] {
            thread.begins(&call(0, 0x2000, PLACE - 64), || None, || now, |_| 0);
            waker.begins(&call(1, 0x2000, 0x9000), || None, || 0, |_| 0);
            thread.ends(PLACE - 64, 0, || now + 5, |ticks| ticks, |_| 0);
        }
        ends(&thread, 0, 200);
        assert_eq!(entries(&own, 5, &SUMS), [[0x1000, 1, 1, 1, 100, 6]]);
        assert_eq!(
            entries(&own, 6, &SUMS),
            [[0; 6]; 0],
            "calls inside do not count"
        );
        thread.reported_begins(&reported(), || 300);
        ends(&thread, 0, 310);
        assert_eq!(entries(&own, 5, &SUMS[..5]), [[0x1000, 2, 2, 2, 110]]);
        thread.begins(&call(0, 0x2000, PLACE - 64), || None, || 400, |_| 0);
        thread.ends(PLACE - 64, 0, || 410, |ticks| ticks, |_| 0);
        assert_eq!(entries(&own, 6, &SUMS[..2]), [[0x2000, 1]]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
    fn an_entry_has_the_label_the_mode_and_the_outcomes() {
        let (own, shared) = (slab(), slab());
        let thread = Thread::new(Words::new(&own), Words::new(&shared));
        for outcome in [0, 1, 1, 2, 3, 77] {
            thread.reported_begins(&reported(), || 100);
            ends(&thread, outcome, 200);
        }
        ends(&thread, 0, 300); // no wait had begun
        let via = 0x5000 | 3 << REPORTED_MODE_SHIFT | u64::from(REPORTED) << 56;
        let ways = [
            entry::VIA,
            entry::WOKEN,
            entry::TIMED_OUT,
            entry::INTERRUPTED,
            entry::OTHER,
        ];
        assert_eq!(entries(&own, 5, &ways), [[via, 1, 2, 1, 2]]);
        let name = entries(&own, 5, &[NAME, NAME + 1, NAME + 3]);
        let word = |text: &[u8; 8]| u64::from_le_bytes(*text);
        assert_eq!(name, [[22, word(b"the sess"), word(b"us all\0\0")]]);
    }
}
