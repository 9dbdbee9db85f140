//! Entering and leaving a scope.

use tiptoe_wire::scopes::{NODE_WORDS, NODES, NODES_AT, RESUMED, SINCE, STAMP};
use tiptoe_wire::{Geometry, Words};

use crate::nodes::Nodes;

/// A bit set in each token, because 0 means that there is no token.
const TOKEN: u64 = 1 << 16;

/// A thread's words, and the table of nodes (scopes within a parent).
#[derive(Clone, Copy)]
pub struct Thread<'a> {
    slab: Words<'a>,
    own: Words<'a>,
    shared: Words<'a>,
}

impl<'a> Thread<'a> {
    /// `own` are the scope words of the thread's `slab` (its counters), `shared` those of the common slab 0.
    pub fn new(slab: Words<'a>, own: Words<'a>, shared: Words<'a>) -> Self {
        Thread { slab, own, shared }
    }

    /// Returns the number of the thread's current node.
    #[inline]
    pub fn node(&self) -> u32 {
        (self.slab.load(Geometry::SCOPE as usize) as u32).min(NODES - 1)
    }

    /// Enters a scope at `now`, in ticks. If `resumes`, counts no new entry. Returns a token for [`Thread::leaves`].
    #[inline(always)]
    pub fn enters<'n>(
        &self,
        label: u64,
        resumes: bool,
        now: u64,
        name: impl FnOnce() -> &'n [u8],
    ) -> u64 {
        let outer = self.node();
        let node = Nodes::new(self.shared).number(label, outer, name);
        self.moves(outer, node, now);
        match resumes {
            false => self.own.add_own(words_of(node), 1),
            true => self.resumes(),
        }
        self.shared.load(STAMP as usize) << 32 | TOKEN | u64::from(outer)
    }

    /// Leaves a scope, and all scopes entered inside it. Ignores another session's token, whose node numbers belong
    /// to another table.
    #[inline(always)]
    pub fn leaves(&self, token: u64, now: u64) {
        if token >> 32 == self.shared.load(STAMP as usize) && token & TOKEN != 0 {
            self.moves(self.node(), (token & (TOKEN - 1)) as u32 % NODES, now);
        }
    }

    #[inline(always)]
    fn moves(&self, from: u32, to: u32, now: u64) {
        let since = self.take_since(now);
        if since != 0 {
            self.own.add_own(words_of(from) + 1, now - since);
        }
        self.slab.store(Geometry::SCOPE as usize, to.into());
    }

    #[cold]
    fn resumes(&self) {
        self.own.add_own(RESUMED as usize, 1);
    }

    /// Sets the time up to which ticks were added to nodes. Returns the previous time; 0 if there was none, or if a
    /// signal handler has set `now` or later in between.
    #[inline(always)]
    fn take_since(&self, now: u64) -> u64 {
        loop {
            let since = self.own.load(SINCE as usize);
            if since >= now {
                return 0;
            }
            if self.own.exchange_own(SINCE as usize, since, now) {
                return since;
            }
        }
    }

    /// Resets the words for the slab's next thread.
    pub fn forget(&self) {
        self.slab.store(Geometry::SCOPE as usize, 0);
        self.own.store(SINCE as usize, 0);
    }
}

#[inline]
fn words_of(node: u32) -> usize {
    (NODES_AT + node * NODE_WORDS) as usize
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;
    extern crate std;
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::vec::Vec;
    use tiptoe_wire::scopes::{NodeTotals, WIDTH, spent};

    struct Slabs([Vec<AtomicU64>; 3]);

    impl Slabs {
        fn new(stamp: u64) -> Slabs {
            let words = |len: u32| (0..len).map(|_| AtomicU64::new(0)).collect();
            let slabs = Slabs([words(16), words(WIDTH), words(WIDTH)]);
            slabs.0[2][STAMP as usize].store(stamp, Relaxed);
            slabs
        }

        fn thread(&self) -> Thread<'_> {
            let [slab, own, shared] = &self.0;
            Thread::new(Words::new(slab), Words::new(own), Words::new(shared))
        }

        fn spent(&self) -> Vec<(u32, u64, u64)> {
            let words: Vec<u64> = self.0[1].iter().map(|word| word.load(Relaxed)).collect();
            let each = |(node, NodeTotals { entries, ticks })| (node, entries, ticks);
            spent(&words).map(each).collect()
        }
    }

    const OUTER: u64 = 0x1000;
    const INNER: u64 = 0x2000;

    #[test]
    fn time_is_charged_to_the_scope_that_is_left() {
        let slabs = Slabs::new(1);
        let thread = slabs.thread();
        let enters = |label, resumes, now| thread.enters(label, resumes, now, || b"name");
        let outer = enters(OUTER, false, 100);
        let inner = enters(INNER, false, 110);
        assert_eq!(thread.node(), 2);
        thread.leaves(inner, 140);
        thread.leaves(outer, 145);
        assert_eq!(slabs.spent(), [(1, 1, 15), (2, 1, 30)]);
        let again = enters(OUTER, true, 200);
        thread.leaves(again, 201);
        assert_eq!(slabs.spent(), [(0, 0, 55), (1, 1, 16), (2, 1, 30)]);
        assert_eq!(thread.node(), 0);
    }

    #[test]
    fn jumped_over_scopes_end_with_the_outer_one() {
        let slabs = Slabs::new(1);
        let thread = slabs.thread();
        let outer = thread.enters(OUTER, false, 100, || b"outer");
        thread.enters(INNER, false, 110, || b"inner");
        thread.enters(INNER, false, 120, || b"inner");
        thread.leaves(outer, 150);
        assert_eq!(thread.node(), 0);
        assert_eq!(slabs.spent(), [(1, 1, 10), (2, 1, 10), (3, 1, 30)]);
    }

    #[test]
    fn a_token_of_another_session_is_ignored() {
        let (first, second) = (Slabs::new(1), Slabs::new(2));
        let token = first.thread().enters(OUTER, false, 100, || b"outer");
        let thread = second.thread();
        thread.enters(INNER, false, 200, || b"inner");
        thread.leaves(token, 210);
        thread.leaves(0, 220);
        assert_eq!(thread.node(), 1);
    }

    #[test]
    fn time_charged_by_a_handler_is_not_charged_again() {
        let slabs = Slabs::new(1);
        let thread = slabs.thread();
        thread.enters(OUTER, false, 100, || b"outer");
        // A signal handler runs after the thread has read the clock (140).
        let handler = thread.enters(INNER, false, 150, || b"inner");
        thread.leaves(handler, 160);
        thread.enters(INNER, false, 140, || b"inner");
        let ticks: u64 = slabs.spent().iter().map(|(_, _, ticks)| ticks).sum();
        assert_eq!(ticks, 60);
    }

    #[test]
    fn a_new_thread_begins_outside_of_scopes() {
        let slabs = Slabs::new(1);
        let thread = slabs.thread();
        thread.enters(OUTER, false, 100, || b"outer");
        thread.forget();
        assert_eq!(thread.node(), 0);
        thread.enters(OUTER, false, 500, || b"outer");
        assert_eq!(slabs.spent(), [(1, 2, 0)]);
    }
}
