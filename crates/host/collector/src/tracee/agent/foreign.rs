//! Detects other tracers that probe the same functions.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;

use tiptoe_attach::link::Link;
use tiptoe_session::{FunctionNote, Note};
use tiptoe_sys::host::procfs::Process;
use tiptoe_wire::{Site, State};

use super::{AgentCounter, InProcess};
use crate::module::key_of;
use crate::tracee::TracedProcess;

impl InProcess {
    /// Returns the events that another tracer probes as well. While that tracer's trap covers our patch, a hit counts
    /// only if that tracer executes the bytes below its trap, which are our jump. If the tracer's probe was removed and
    /// our patch with it, the patch is restored. A trap inside our jump changes the jump's target, so such a jump is
    /// removed.
    pub fn foreign(&self, process: &TracedProcess) -> Vec<&str> {
        let later = &self.patches.later;
        later
            .undisturbed(process, || self.look_for_foreign(process))
            .unwrap_or_default()
    }

    fn look_for_foreign(&self, process: &TracedProcess) -> Vec<&str> {
        let memory = File::open(format!("/proc/{}/mem", process.target.process.pid()));
        let Some(memory) = memory.ok().filter(|_| !agent_leaves(process)) else {
            return Vec::new();
        };
        let differs = |site: &Site, bytes: &[u8; 8]| {
            let mut now = [0; 8];
            let len = usize::from(site.len).min(now.len());
            let read = memory.read_exact_at(&mut now[..len], site.address);
            read.is_ok() && now[..len] != bytes[..len]
        };
        let meters = self.meters.borrow();
        let closed = self.closed(process);
        let moved = self.patches.slots_unpatched_elsewhere(process);
        let counters = self.patches.counters.iter();
        let counters = counters.filter(|one| meters.ran_ns(one.site.slot).is_none());
        let counters = counters.filter(|one| !closed.contains(&one.site.slot));
        let changed = counters.filter(|one| differs(&one.site, &one.site.patched));
        let changed: Vec<&AgentCounter> = changed.collect();
        let jumps = |site: &Site| {
            let first = Site { len: 1, ..*site };
            site.len > 1 && !differs(&first, &site.patched)
        };
        if agent_leaves(process) {
            // The agent (tiptoe's library) may have restored the code, so a difference is no sign of another tracer.
            return Vec::new();
        }
        let sites = changed.iter().map(|one| &one.site);
        let (astray, others): (Vec<&Site>, Vec<&Site>) = sites.partition(|site| jumps(site));
        let lost = others.iter().filter(|site| !differs(site, &site.original));
        let lost: Vec<u64> = lost.map(|site| site.address).collect();
        let astray: Vec<u64> = astray.iter().map(|site| site.address).collect();
        if let Some(link) = &process.target.link
            && !(lost.is_empty() && astray.is_empty())
        {
            let _ = link.disarm(&astray);
            let _ = link.arm_again(&lost);
        }
        let foreign = changed.into_iter();
        let foreign = foreign.filter(|one| !moved.contains(&one.site.slot));
        foreign.map(|one| &*one.counter.event).collect()
    }

    fn closed(&self, process: &TracedProcess) -> BTreeSet<u32> {
        let maps = match self.patches.later.watched(process) {
            Some(_) => process.target.process.maps().unwrap_or_default(),
            None => return BTreeSet::new(),
        };
        let there = |one: &AgentCounter| {
            let address = one.site.address;
            let behind = maps.partition_point(|mapping| mapping.start <= address);
            let mapping = behind.checked_sub(1).and_then(|index| maps.get(index));
            mapping.is_some_and(|mapping| mapping.contains(address) && key_of(mapping) == one.file)
        };
        let gone = self.patches.counters.iter().filter(|one| !there(one));
        gone.map(|one| one.site.slot).collect()
    }
}

fn agent_leaves(process: &TracedProcess) -> bool {
    let leaves =
        |link: &Link| link.data().left().is_some() || link.data().state() == State::Dormant;
    process.presence.left.get().is_some() || process.target.link.as_ref().is_some_and(leaves)
}

/// Returns a note if the agent had to patch places again after another tracer's probe was removed.
pub fn came_and_went(link: &Link, process: Process) -> Option<Note> {
    let (pid, times) = (process.pid(), link.data().rearmed());
    (times > 0).then(|| FunctionNote::OtherTracerLeft { pid, times }.into())
}
