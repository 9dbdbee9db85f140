//! A wait that a library of the program's tells of: for a lock of its own, by its own name.
//!
//! It begins in front of whatever the library does to have the lock (spins, futex calls on words
//! of its own) and ends behind that; it is one wait, and the futex calls within it are none.
//! Who ended the last of these has ended it. It lies among the thread's activities, where the
//! caller's frame ends: all that it does within lies below that.

use tiptoe_wire::futex::entry::{NAME, NAME_WORDS};
use tiptoe_wire::futex::{TOLD, TOLD_MODE_SHIFT, head};

use crate::activities::Activities;
use crate::calls::{Call, Thread};
use crate::entries::Entry;
use crate::walk::Caller;

/// A wait that begins.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// Where the lock lies.
    pub address: u64,
    /// How it is taken.
    pub mode: u64,
    /// Where its label lies: what it is called is asked where it ends.
    pub label: u64,
    /// Where the caller's frame ends.
    pub place: u64,
    /// Where it goes on.
    pub site: u64,
}

/// How a wait ended, as the kernel would say it: with the lock, by its time, called off, by a panic.
const RESULTS: [i64; 4] = [0, -110, -4, -1];

impl Thread<'_> {
    /// A library is about to wait.
    #[inline]
    pub fn told_begins(&self, told: &Told, clock: impl FnOnce() -> u64) {
        // Each is an episode of its own.
        self.own().store(head::EPISODE as usize, 0);
        let call = Call {
            address: told.address,
            operation: TOLD,
            sp: told.place,
            caller: Caller {
                site: told.site,
                via: told.label | (told.mode & 0xff) << TOLD_MODE_SHIFT,
                frame: told.place,
            },
            at: 0,
            timed: true,
        };
        self.begins(&call, || 0, clock);
    }

    /// The wait that began there has ended so. `name` is asked what a label says.
    #[inline]
    pub fn told_ends<'n>(
        &self,
        place: u64,
        outcome: u64,
        (clock, ns): (impl Fn() -> u64, impl Fn(u64) -> u64),
        name: impl FnOnce(u64) -> &'n [u8],
    ) {
        let Some(wait) = Activities::new(self.own()).pop(place) else {
            return;
        };
        let outcome = usize::try_from(outcome).ok();
        let result = outcome.and_then(|outcome| RESULTS.get(outcome));
        let entry = self.over(&wait, result.copied().unwrap_or(-1), clock, ns);
        if let Some(entry) = entry.filter(|entry| !entry.has_name()) {
            entry.call(name(wait.via & ((1 << TOLD_MODE_SHIFT) - 1)));
        }
    }
}

impl Entry<'_> {
    fn has_name(&self) -> bool {
        self.get(NAME) != 0
    }

    /// Notes a name, or its beginning. How long it is stands there last: a reader finds it whole.
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

    fn told() -> Told {
        Told {
            address: 0x1000,
            mode: 3,
            label: 0x5000,
            place: PLACE,
            site: 5,
        }
    }

    /// A futex call of the thread's, at this place of its stack.
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
            timed: true,
        }
    }

    fn ends(thread: &Thread, outcome: u64, now: u64) {
        let name = |label| match label {
            0x5000 => &b"the sessions of us all"[..],
            _ => b"no label",
        };
        thread.told_ends(PLACE, outcome, (|| now, |ticks| ticks), name);
    }

    /// The words of all entries from a call site.
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
    fn calls_within_are_none_and_tell_who_ended_it() {
        let (own, other, shared) = (slab(), slab(), slab());
        let thread = Thread::new(Words::new(&own), Words::new(&shared));
        let waker = Thread::new(Words::new(&other), Words::new(&shared));
        thread.told_begins(&told(), || 100);
        for now in [110, 120] {
            thread.begins(&call(0, 0x2000, PLACE - 64), || 0, || now);
            waker.begins(&call(1, 0x2000, 0x9000), || 0, || 0);
            thread.ends(PLACE - 64, 0, || now + 5, |ticks| ticks);
        }
        ends(&thread, 0, 200);
        assert_eq!(entries(&own, 5, &SUMS), [[0x1000, 1, 1, 1, 100, 6]]);
        assert_eq!(entries(&own, 6, &SUMS), [[0; 6]; 0], "none by themselves");
        // The next one is another, of the same row; what is behind it is the thread's own again.
        thread.told_begins(&told(), || 300);
        ends(&thread, 0, 310);
        assert_eq!(entries(&own, 5, &SUMS[..5]), [[0x1000, 2, 2, 2, 110]]);
        thread.begins(&call(0, 0x2000, PLACE - 64), || 0, || 400);
        thread.ends(PLACE - 64, 0, || 410, |ticks| ticks);
        assert_eq!(entries(&own, 6, &SUMS[..2]), [[0x2000, 1]]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
    fn a_row_has_the_label_the_mode_and_what_came_of_it() {
        let (own, shared) = (slab(), slab());
        let thread = Thread::new(Words::new(&own), Words::new(&shared));
        for outcome in [0, 1, 1, 2, 3, 77] {
            thread.told_begins(&told(), || 100);
            ends(&thread, outcome, 200);
        }
        ends(&thread, 0, 300); // nothing had begun
        let via = 0x5000 | 3 << TOLD_MODE_SHIFT | u64::from(TOLD) << 56;
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
