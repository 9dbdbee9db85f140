//! Caches, for each thread, the results of [walks](crate::walk) through the runtime's libraries.
//!
//! A walk goes from a futex call to the user's call site. It is slow, because each step must search a rule for the
//! previous return address. But walks from one return address mostly take the same path. If a path's rules need only
//! the stack pointer, its return addresses are at fixed distances on the stack. These distances and addresses are
//! cached. A later walk reads the stack at the distances, and compares the addresses. Only the last address, the
//! user's, may differ; it is then looked up, because it may be in a library.
//!
//! Paths are never removed. The key contains the number of known libraries, because a library's code counts as the
//! user's until the library is added. A signal handler may walk while its thread stores a path. So storing the first
//! word takes a slot, and storing the last word completes it.

use tiptoe_wire::Words;
use tiptoe_wire::futex::path::{
    BITS, COUNT_SHIFT, DISTANCE_BITS, DISTANCES, FIRST, LOOKS, MOST, OTHERS, PATHS, USER, VIA,
    WORDS,
};

use crate::HASH;

/// The caller of a futex call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The user's return address.
    pub site: u64,
    /// The last return address in libc, or 0. The bits from `OWNER_SHIFT` up are the kind of lock for which the
    /// function waits (`frames::owner`).
    pub via: u64,
    /// The stack pointer after the return to `site`.
    pub frame: u64,
}

/// A thread's cached paths.
#[derive(Clone, Copy)]
pub struct Paths<'a>(Words<'a>);

#[derive(Clone, Copy)]
pub(crate) struct PathBeginning {
    pub(crate) first: u64,
    pub(crate) top: u64,
    pub(crate) count: u64,
}

impl PathBeginning {
    fn key(&self) -> u64 {
        self.first ^ self.count << COUNT_SHIFT
    }
}

pub(crate) enum PathLookup {
    To(Caller),
    /// Not cached, but a slot is free.
    Nothing,
    /// The cached path differs or is unusable, or no slot is free.
    Unkept,
}

#[derive(Clone, Copy)]
pub(crate) struct PathSlot<'a> {
    words: Words<'a>,
    at: usize,
}

impl<'a> Paths<'a> {
    /// Returns the paths in a thread's slab (its own counters).
    pub fn new(words: Words<'a>) -> Self {
        Paths(words)
    }

    fn places(&self, key: u64) -> impl Iterator<Item = PathSlot<'a>> {
        let hash = (key.wrapping_mul(HASH) >> (64 - BITS)) as usize;
        let words = self.0;
        (hash..hash + LOOKS as usize).map(move |place| PathSlot {
            words,
            at: PATHS as usize + place * WORDS as usize,
        })
    }

    #[inline(always)]
    pub(crate) fn look(
        &self,
        begins: &PathBeginning,
        load: impl Fn(u64) -> u64,
        is_users: impl Fn(u64) -> bool,
    ) -> PathLookup {
        let key = begins.key();
        for place in self.places(key) {
            match place.get(FIRST) {
                0 => return PathLookup::Nothing,
                its if its != key => continue,
                _ => {}
            }
            let user = place.get(USER);
            if user == 0 {
                break;
            }
            if let Some((site, frame)) = place.follow(begins, &load)
                && (site == user || is_users(site))
            {
                let via = place.get(VIA);
                return PathLookup::To(Caller { site, via, frame });
            }
        }
        PathLookup::Unkept
    }

    pub(crate) fn take(&self, begins: &PathBeginning) -> Option<PathSlot<'a>> {
        let key = begins.key();
        self.places(key)
            .find(|place| place.words.take_own(place.at + FIRST as usize, key))
    }
}

impl PathSlot<'_> {
    fn get(&self, word: u32) -> u64 {
        self.words.load(self.at + word as usize)
    }

    fn put(&self, word: u32, value: u64) {
        self.words.store(self.at + word as usize, value);
    }

    /// Returns the last return address and its frame; `None` if an earlier address differs from the cached one.
    #[inline(always)]
    fn follow(&self, begins: &PathBeginning, load: impl Fn(u64) -> u64) -> Option<(u64, u64)> {
        let distances = self.get(DISTANCES);
        let (mut site, mut frame) = (begins.first, begins.top);
        for step in 0..=MOST {
            let distance = distances >> (step * DISTANCE_BITS) & ((1 << DISTANCE_BITS) - 1);
            if distance == 0 {
                break;
            }
            if step > 0 && site != self.get(OTHERS + step - 1) {
                return None;
            }
            frame = begins.top.wrapping_add(distance * 8);
            site = load(frame.wrapping_sub(8));
        }
        Some((site, frame))
    }

    /// Records a step from the function at return address `left` to a frame `bytes` above the first frame. Returns
    /// `false` without room.
    pub(crate) fn leads(&self, step: u32, left: u64, bytes: u64) -> bool {
        let words = bytes / 8;
        if step > MOST || (words >> DISTANCE_BITS) != 0 {
            return false;
        }
        if step > 0 {
            self.put(OTHERS + step - 1, left);
        }
        let before = self.get(DISTANCES);
        self.put(DISTANCES, before | words << (step * DISTANCE_BITS));
        true
    }

    pub(crate) fn ends(&self, via: u64, user: u64) {
        self.put(VIA, via);
        self.put(USER, user);
    }
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;
    use crate::walk::{Frames, Library, RuntimePart};
    extern crate std;
    use core::sync::atomic::AtomicU64;
    use std::vec::Vec;
    use tiptoe_stack::{Base, Frame, Rule, encode_row};
    use tiptoe_wire::futex::{ENTRY_WORDS, WIDTH};

    fn words(count: u32) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    fn rule(cfa: u32) -> Rule {
        Rule::new(Base::Sp, cfa, None).expect("it fits")
    }

    fn frames(shared: &[AtomicU64]) -> Frames<'_> {
        let frames = Frames::new(Words::new(shared));
        let by_bp = Rule::new(Base::Bp, 16, Some(16)).expect("it fits");
        let rows = [
            encode_row(0x100, rule(0x20)),
            encode_row(0x140, rule(0x40)),
            encode_row(0x160, by_bp),
            encode_row(0x180, Rule::UNKNOWN),
        ];
        for (base, part) in [(0x1000, RuntimePart::Libc), (0x8000, RuntimePart::Mixed)] {
            let (start, end) = (base + 0x100, base + 0x200);
            let library = Library {
                base,
                start,
                end,
                part,
            };
            assert!(frames.add(&library, &rows));
        }
        frames
    }

    /// Reads `stack`: return addresses at 0x100, 0x120 and so on, with a saved %rbp of 0 below each.
    fn load(stack: &[u64], at: u64) -> u64 {
        match (at - 0x100) % 0x20 {
            0 => *stack.get((at as usize - 0x100) / 0x20).unwrap_or(&0),
            0x18 => 0,
            _ => panic!("{at:#x}"),
        }
    }

    const FRAME: Frame = Frame {
        pc: 7,
        sp: 0xf8,
        bp: 0x138,
    };

    /// Addresses in libc with each rule, and one in the mixed library. Then the user's addresses: in the mixed library,
    /// between the two libraries, and after both.
    const PLACES: [u64; 9] = [
        0x1101, 0x1111, 0x1141, 0x1161, 0x1181, 0x8101, 0x8181, 0x4001, 0x9001,
    ];

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
    fn paths_lead_where_walks_do() {
        let (shared, own) = (words(WIDTH), words(ENTRY_WORDS));
        let (frames, all) = (frames(&shared), Paths::new(Words::new(&own)));
        let count = PLACES.len();
        for number in 0..count.pow(5) {
            let place = |depth: u32| PLACES[number / count.pow(depth) % count];
            let stack = [0, 1, 2, 3, 4].map(place);
            let load = |at| load(&stack, at);
            let walked = frames.walk(rule(0x10), FRAME, load);
            let own = words(ENTRY_WORDS);
            let alone = Paths::new(Words::new(&own));
            for paths in [all, alone, alone] {
                let found = frames.caller(&paths, rule(0x10), FRAME, load);
                assert_eq!(found, walked, "{stack:x?}");
            }
        }
    }

    fn look_up_cached(stack: &[u64]) -> PathLookup {
        let (shared, own) = (words(WIDTH), words(ENTRY_WORDS));
        let (frames, paths) = (frames(&shared), Paths::new(Words::new(&own)));
        let load = |at| load(stack, at);
        frames.caller(&paths, rule(0x10), FRAME, load);
        let begins = PathBeginning {
            first: stack[0],
            top: 0x108,
            count: 2,
        };
        paths.look(&begins, load, |_| false)
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
    fn a_walked_path_is_cached() {
        for stack in [
            &[0x1101, 0x9001][..],
            &[0x1101, 0x8101, 0x1101, 0x1111, 0x4001],
            &[0x4001],
        ] {
            let PathLookup::To(caller) = look_up_cached(stack) else {
                panic!("{stack:x?}");
            };
            assert_eq!(caller.site, stack[stack.len() - 1]);
        }
        // These paths are too long, need %rbp, or have no rule.
        for stack in [&[0x1101; 9][..], &[0x1101, 0x1161, 0x9001], &[0x1181]] {
            assert!(
                matches!(look_up_cached(stack), PathLookup::Unkept),
                "{stack:x?}"
            );
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
    fn a_library_that_is_added_is_walked_out_of() {
        let (shared, own) = (words(WIDTH), words(ENTRY_WORDS));
        let (frames, paths) = (frames(&shared), Paths::new(Words::new(&own)));
        let stack = [0x1101, 0x4101, 0x9001];
        let site = || {
            let found = frames.caller(&paths, rule(0x10), FRAME, |at| load(&stack, at));
            found.site
        };
        assert_eq!([site(), site()], [0x4101; 2]);
        let late = Library {
            base: 0x4000,
            start: 0x4100,
            end: 0x4200,
            part: RuntimePart::Other,
        };
        assert!(frames.add(&late, &[encode_row(0x100, rule(0x20))]));
        assert_eq!([site(), site()], [0x9001; 2]);
    }
}
