//! Records which threads were seen in which waits. A thread that is cancelled in a wait, or jumps out of the wait and
//! ends, does not reach the hook after the wait. Such a wait counts up to the last look that found the thread in the
//! wait.

use std::collections::{BTreeMap, BTreeSet};

use tiptoe_attach::link::Link;
use tiptoe_futex::activities::Activities;
use tiptoe_futex::gaps::Beginning;
use tiptoe_price::clock;
use tiptoe_wire::futex::{WIDTH, activity, head};

use crate::ulocks::{ThreadIds, ns_between};

#[derive(Default)]
pub struct SeenWaits {
    /// The threads that had ended at the last look, by the ids in their slabs (a thread's counters).
    ended: BTreeSet<u32>,
    /// By thread and index of the wait: the word with the wait's beginning, and the time when the wait was last
    /// seen, in ticks.
    seen: BTreeMap<(u32, u32), (u64, u64)>,
    at: u64,
}

impl SeenWaits {
    /// `threads` are the living threads, by their ids in /proc.
    pub fn look(&mut self, link: &Link, threads: &[u32], ids: &ThreadIds) {
        let lives = |own| ids.outer(own).is_some_and(|tid| threads.contains(&tid));
        let data = link.data();
        let now = clock::ticks();
        self.at = now;
        self.ended.retain(|tid| !lives(*tid));
        for slab in data.entered() {
            let Some((tid, _)) = data.slab_owner(slab) else {
                continue;
            };
            if !lives(tid) {
                self.ended.insert(tid);
                continue;
            }
            let Some(words) = data.slab_words(slab, link.lock_slot, WIDTH) else {
                continue;
            };
            let beginnings = Activities::new(words).beginnings();
            for (index, beginning) in (0..).zip(beginnings) {
                match beginning {
                    Some(beginning) => self.seen.insert((tid, index), (beginning, now)),
                    None => self.seen.remove(&(tid, index)),
                };
            }
        }
    }

    pub fn last_look(&self) -> u64 {
        self.at
    }

    pub fn has_ended(&self, tid: u32) -> bool {
        self.ended.contains(&tid)
    }

    /// Returns for how many ns a thread was seen in the wait at `index` of its words; 0 if that is unknown.
    pub fn seen_ns(&self, tid: u32, index: u32, words: &[u64]) -> u64 {
        let at = head::ACTIVITIES + index * activity::WORDS + activity::SINCE;
        let beginning = words.get(at as usize).copied().unwrap_or(0);
        let since = match Beginning::of(beginning) {
            Beginning::At(since) | Beginning::LongAgo(since) => since,
            Beginning::Unknown => return 0,
        };
        let seen = self.seen.get(&(tid, index));
        let seen = seen.filter(|(then, _)| *then == beginning);
        seen.map_or(0, |(_, at)| ns_between(since, *at))
    }
}
