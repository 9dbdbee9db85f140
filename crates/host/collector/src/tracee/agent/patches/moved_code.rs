//! Finds functions that the program moved or mapped once more. Their copies have no patches, so hits of copies are
//! not counted.

use std::collections::BTreeSet;
use std::ops::Range;

use tiptoe_attach::link::Link;
use tiptoe_session::FunctionNote;

use super::{AgentCounter, Patches};
use crate::tracee::TracedProcess;

impl Patches {
    fn unpatched_elsewhere(&self, process: &TracedProcess) -> impl Iterator<Item = &AgentCounter> {
        let data = process.target.link.as_ref().map(Link::data);
        let ranges: Option<Vec<Range<u64>>> = match data {
            Some(data) => data.unpatched().map(Iterator::collect),
            None => Some(Vec::new()),
        };
        let counters = self.counters.iter();
        counters.filter(move |one| match &ranges {
            Some(ranges) => ranges.iter().any(|range| range.contains(&one.site.address)),
            None => true, // the agent could not record all ranges
        })
    }

    pub fn slots_unpatched_elsewhere(&self, process: &TracedProcess) -> BTreeSet<u32> {
        let unpatched = self.unpatched_elsewhere(process);
        unpatched.map(|one| one.site.slot).collect()
    }

    pub fn code_was_moved(&self, process: &TracedProcess) -> Option<FunctionNote> {
        let moved = self.unpatched_elsewhere(process);
        let events: Vec<String> = moved.map(|one| one.counter.event.clone()).collect();
        (!events.is_empty()).then_some(FunctionNote::CodeMoved { events })
    }
}
