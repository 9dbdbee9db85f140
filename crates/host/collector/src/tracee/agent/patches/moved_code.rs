//! Functions whose code the program moved, or mapped once more: the agent does not count them there.

use std::collections::BTreeSet;
use std::ops::Range;

use tiptoe_session::FunctionNote;

use super::{AgentCounter, Patches};
use crate::tracee::TracedProcess;

impl Patches {
    pub fn slots_unpatched_elsewhere(&self, process: &TracedProcess) -> BTreeSet<u32> {
        let Some(link) = &process.target.link else {
            return BTreeSet::new();
        };
        let data = link.data();
        let ranges: Option<Vec<Range<u64>>> = data.unpatched().map(Iterator::collect);
        let is_unpatched = |one: &&AgentCounter| match &ranges {
            Some(ranges) => ranges.iter().any(|range| range.contains(&one.site.address)),
            None => true, // more than the agent could record
        };
        let unpatched = self.counters.iter().filter(is_unpatched);
        unpatched.map(|one| one.site.slot).collect()
    }

    pub fn code_was_moved(&self, process: &TracedProcess) -> Option<FunctionNote> {
        let slots = self.slots_unpatched_elsewhere(process);
        let moved = self
            .counters
            .iter()
            .filter(|one| slots.contains(&one.site.slot));
        let events: Vec<String> = moved.map(|one| one.counter.event.clone()).collect();
        (!events.is_empty()).then_some(FunctionNote::CodeMoved { events })
    }
}
