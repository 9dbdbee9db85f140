//! The ways through the runtime's libraries that a thread has come before.
//!
//! A walk needs the rule of a place to know where the next return address is, which says what
//! rule is next: each step waits for the one before. But whoever returns to the same place goes on
//! the same way most often, and where the stack pointer rules all of it, its return addresses are
//! at the same distances. So a path is kept by its first return address: the distances of the
//! others, and what stood there. All are read at once, and the path holds if all are the same but
//! the last: that is the user's, which may be any that is far from the runtime's libraries. One
//! among them (another library's, perhaps) must be the same, too, or is looked up: it may be code
//! of a standard library.
//!
//! Paths lie in the thread's own words, and stay for good; once one more library is known they are
//! noted anew, as it may have been taken for the user. A signal handler may come in at each
//! instruction: a place is taken by its first address before anything else is written to it, and
//! complete once its last one is there.

use tiptoe_wire::Words;
use tiptoe_wire::futex::path::{
    BITS, COUNT_SHIFT, DISTANCE_BITS, DISTANCES, FIRST, LOOKS, MOST, OTHERS, PATHS, USER, VIA,
    WORDS,
};

use crate::HASH;
use crate::walk::Caller;

/// The paths in a thread's words.
#[derive(Clone, Copy)]
pub struct Paths<'a>(Words<'a>);

/// Where a way begins.
#[derive(Clone, Copy)]
pub(crate) struct Beginning {
    /// The first return address.
    pub(crate) first: u64,
    /// Where the frame begins that it returns to.
    pub(crate) top: u64,
    /// How many libraries are known.
    pub(crate) count: u64,
}

impl Beginning {
    fn key(&self) -> u64 {
        self.first ^ self.count << COUNT_SHIFT
    }
}

/// What is known of a way.
pub(crate) enum Known {
    /// It leads to this caller.
    To(Caller),
    /// Nothing, and there is room to note it.
    Nothing,
    /// It is to be walked.
    Unkept,
}

/// A place for a path.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    words: Words<'a>,
    at: usize,
}

impl<'a> Paths<'a> {
    /// Those in the words of a thread.
    pub fn new(words: Words<'a>) -> Self {
        Paths(words)
    }

    fn places(&self, key: u64) -> impl Iterator<Item = Place<'a>> {
        let hash = (key.wrapping_mul(HASH) >> (64 - BITS)) as usize;
        let words = self.0;
        (hash..hash + LOOKS as usize).map(move |place| Place {
            words,
            at: PATHS as usize + place * WORDS as usize,
        })
    }

    /// What is known of a way; `load` reads the stack, and the last one may be any that `is_users`.
    #[inline(always)]
    pub(crate) fn look(
        &self,
        begins: &Beginning,
        load: impl Fn(u64) -> u64,
        is_users: impl Fn(u64) -> bool,
    ) -> Known {
        let key = begins.key();
        for place in self.places(key) {
            match place.get(FIRST) {
                0 => return Known::Nothing,
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
                return Known::To(Caller { site, via, frame });
            }
        }
        Known::Unkept
    }

    /// A place for a path that begins so, if there is one.
    pub(crate) fn take(&self, begins: &Beginning) -> Option<Place<'a>> {
        let key = begins.key();
        self.places(key)
            .find(|place| place.words.take_own(place.at + FIRST as usize, key))
    }
}

impl Place<'_> {
    fn get(&self, word: u32) -> u64 {
        self.words.load(self.at + word as usize)
    }

    fn put(&self, word: u32, value: u64) {
        self.words.store(self.at + word as usize, value);
    }

    /// The last return address, and the frame that it returns to, if all others are the same.
    #[inline(always)]
    fn follow(&self, begins: &Beginning, load: impl Fn(u64) -> u64) -> Option<(u64, u64)> {
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

    /// A step of the path: a return address in the runtime's libraries was left, and the next is
    /// below a frame so far from the first one. False where that is too far, or one too many.
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

    /// It is complete: the last one in libc, and the user.
    pub(crate) fn ends(&self, via: u64, user: u64) {
        self.put(VIA, via);
        self.put(USER, user);
    }
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;
    use crate::walk::{Frames, Library, Part};
    extern crate std;
    use core::sync::atomic::AtomicU64;
    use std::vec::Vec;
    use tiptoe_stack::{Base, Frame, Rule, row};
    use tiptoe_wire::futex::{ENTRY_WORDS, WIDTH};

    fn words(count: u32) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    fn rule(cfa: u32) -> Rule {
        Rule::new(Base::Sp, cfa, None).expect("it fits")
    }

    /// Two libraries, of which one is libc.
    fn frames(shared: &[AtomicU64]) -> Frames<'_> {
        let frames = Frames::new(Words::new(shared));
        let by_bp = Rule::new(Base::Bp, 16, Some(16)).expect("it fits");
        let rows = [
            row(0x100, rule(0x20)),
            row(0x140, rule(0x40)),
            row(0x160, by_bp),
            row(0x180, Rule::UNKNOWN),
        ];
        for (base, part) in [(0x1000, Part::Libc), (0x8000, Part::Mixed)] {
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

    /// Return addresses at 0x100, 0x120 and so on, and nothing anywhere else but an old %rbp.
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

    /// In each library with each rule; users in one, between them, and far from both.
    const PLACES: [u64; 9] = [
        0x1101, 0x1111, 0x1141, 0x1161, 0x1181, 0x8101, 0x8181, 0x4001, 0x9001,
    ];

    /// Whatever came before, in whatever order.
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

    /// What is known of the way from the first of these, once it was come.
    fn known(stack: &[u64]) -> Known {
        let (shared, own) = (words(WIDTH), words(ENTRY_WORDS));
        let (frames, paths) = (frames(&shared), Paths::new(Words::new(&own)));
        let load = |at| load(stack, at);
        frames.caller(&paths, rule(0x10), FRAME, load);
        let begins = Beginning {
            first: stack[0],
            top: 0x108,
            count: 2,
        };
        paths.look(&begins, load, |_| false)
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
    fn a_way_that_was_come_is_known() {
        for stack in [
            &[0x1101, 0x9001][..],
            &[0x1101, 0x8101, 0x1101, 0x1111, 0x4001],
            &[0x4001],
        ] {
            let Known::To(caller) = known(stack) else {
                panic!("{stack:x?}");
            };
            assert_eq!(caller.site, stack[stack.len() - 1]);
        }
        // Too long; by %rbp; nobody knows.
        for stack in [&[0x1101; 9][..], &[0x1101, 0x1161, 0x9001], &[0x1181]] {
            assert!(matches!(known(stack), Known::Unkept), "{stack:x?}");
        }
    }

    /// A library comes late: what is in it was the user's until then.
    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
    fn a_library_that_comes_is_walked_out_of() {
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
            part: Part::Other,
        };
        assert!(frames.add(&late, &[row(0x100, rule(0x20))]));
        assert_eq!([site(), site()], [0x9001; 2]);
    }
}
