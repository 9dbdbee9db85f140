//! Which events a thread has when threads inherit the events of the thread that creates them.
//!
//! An opener blocks thread creation if it can. Otherwise there is a race: events are opened for the
//! parent one after another, and a thread created in between inherits only those that are already
//! open. The kernel does not report which. But free registers can be counted: the number that is
//! free for a thread without events, minus the number that is free for this one, is how many it
//! has. Events are opened in the same order for every thread, and inherited in one step, so these
//! are always the first ones.
//!
//! So the opener looks at all threads again, and opens what new threads lack, until [`Passes`]
//! finds none for some passes. It must not count the registers of threads that were created after
//! all events were open: the kernel swaps the events of threads that inherited the same ones. When
//! one such thread ends, the kernel's accounting frees a register of the other, which still has its
//! events. An event opened for such a thread by mistake would be inherited by its children, and
//! clone(2) would fail because they need more registers than exist (seen on Linux 6.18).

use core::ops::Range;

/// Returns which of the `wanted` events, by their order, a thread lacks. `free` registers are left
/// for it, and `free_elsewhere` for a thread with none of the events.
pub fn missing(wanted: u32, free_elsewhere: u32, free: u32) -> Range<u32> {
    free_elsewhere.saturating_sub(free).min(wanted)..wanted
}

/// Counts consecutive passes without a lacking thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passes {
    quiet: u32,
    /// All passes so far.
    pub all: u32,
}

impl Passes {
    /// How many passes without a lacking thread are enough: a clone in progress is visible by then.
    pub const QUIET: u32 = 3;

    /// Records a pass. Returns whether it was the last that is needed.
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
    fn a_thread_lacks_the_last_events() {
        let lacks = |free_elsewhere, free| missing(3, free_elsewhere, free);
        assert_eq!(lacks(4, 4), 0..3, "nothing");
        assert_eq!(lacks(4, 2), 2..3, "the first two");
        assert!(lacks(4, 1).is_empty());
        assert_eq!(lacks(3, 3), 0..3, "another tool has one on all CPUs");
        assert!(lacks(4, 0).is_empty(), "another tool has one more");
        assert_eq!(lacks(3, 4), 0..3, "another tool has just released one");
    }

    /// Threads created at any moment of an opening must have what the rule says, and all events in
    /// the end.
    #[test]
    fn a_birth_at_any_moment_of_an_opening() {
        const WANTED: u32 = 3;
        for moment in 0..=WANTED {
            // A child begins with the events that its parent has at that moment.
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
    fn passes_end_after_some_without_a_lacking_thread() {
        let mut passes = Passes::default();
        let lacking = [true, false, false, true, false, false, false];
        let ends: [bool; 7] = lacking.map(|lacking| passes.note(lacking));
        assert_eq!(ends, [false, false, false, false, false, false, true]);
        assert_eq!(passes.all, 7);
    }
}
