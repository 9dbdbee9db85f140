//! Which events a thread has, where those of a thread are inherited by the threads that it makes.
//!
//! Who opens them has births wait meanwhile. Of one that does not, nobody tells: a thread that is being born while events are opened for its parent, one after the other, gets those
//! that are there at that moment, before anybody can see the thread. But registers can be counted: as many as are free
//! for a thread without events, less those that are free for this one, are what it has. And since events are opened in
//! the same order for every thread, and inherited in one step, what it has are always the first ones.
//!
//! So whoever opens events looks at all threads again, and opens for those that have come what they lack, until none
//! came for some [`Passes`]. It must not count the registers of threads that were born later: the kernel exchanges the
//! events of threads that inherited the same ones, and when one of them ends it frees a register of the other by its
//! books, which has its events still. What such a thread were given besides, its children would inherit, too: and clone(2)
//! fails where they need more registers than there are (seen on Linux 6.18).

use core::ops::Range;

/// The events, by their order, that a thread lacks of the `wanted` ones, where `free` registers are left for it and
/// `free_elsewhere` for a thread that has none of them.
pub fn missing(wanted: u32, free_elsewhere: u32, free: u32) -> Range<u32> {
    free_elsewhere.saturating_sub(free).min(wanted)..wanted
}

/// How often in a row nothing was lacking.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passes {
    quiet: u32,
    /// How many there were.
    pub all: u32,
}

impl Passes {
    /// So many passes without a thread that lacks something are enough: a birth under way is seen by then.
    pub const QUIET: u32 = 3;

    /// Notes one; whether it was the last that is needed.
    pub fn note(&mut self, was_lacking: bool) -> bool {
        self.all += 1;
        self.quiet = match was_lacking {
            true => 0,
            false => self.quiet + 1,
        };
        self.quiet >= Self::QUIET
    }
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_lacks() {
        let lacks = |free_elsewhere, free| missing(3, free_elsewhere, free);
        assert_eq!(lacks(4, 4), 0..3, "nothing");
        assert_eq!(lacks(4, 2), 2..3, "the first two");
        assert!(lacks(4, 1).is_empty());
        assert_eq!(lacks(3, 3), 0..3, "one is somebody else's, on all CPUs");
        assert!(lacks(4, 0).is_empty(), "somebody else has one more");
        assert_eq!(lacks(3, 4), 0..3, "somebody has just gone");
    }

    /// Threads that are born at any moment of an opening have what the rule says, and all of it in the end.
    #[test]
    fn a_birth_at_any_moment_of_an_opening() {
        const WANTED: u32 = 3;
        for moment in 0..=WANTED {
            // What the parent has by then is what the child begins with.
            let (mut parent, mut child) = (0, None);
            for event in missing(WANTED, 4, 4 - parent) {
                if event == moment {
                    child = Some(parent);
                }
                parent += 1;
            }
            let mut child = child.unwrap_or(parent);
            for event in missing(WANTED, 4, 4 - child) {
                assert_eq!(event, child, "in order, and none twice");
                child += 1;
            }
            assert_eq!((parent, child), (WANTED, WANTED));
        }
    }

    #[test]
    fn it_is_over_when_nothing_is_lacking_for_a_while() {
        let mut passes = Passes::default();
        let lacking = [true, false, false, true, false, false, false];
        let ends: [bool; 7] = lacking.map(|lacking| passes.note(lacking));
        assert_eq!(ends, [false, false, false, false, false, false, true]);
        assert_eq!(passes.all, 7);
    }
}
