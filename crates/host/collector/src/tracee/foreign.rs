//! Detects other tracers that probe the same functions.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;

use tiptoe_attach::link::Link;
use tiptoe_session::{FunctionNote, Note};
use tiptoe_wire::{Site, State};

use super::Tracee;
use crate::module::{FileKey, key_of};

impl Tracee {
    /// Returns the events that another tracer probes as well. If its trap covers our patch, hits
    /// are counted through that trap or not at all. If its probe was removed and erased our patch,
    /// the patch is restored. A trap inside our jump corrupts the jump's target, so a jump whose
    /// first byte is still ours is removed.
    pub fn foreign(&self) -> Vec<&str> {
        self.undisturbed(|| self.look_for_foreign())
            .unwrap_or_default()
    }

    fn look_for_foreign(&self) -> Vec<&str> {
        let memory = File::open(format!("/proc/{}/mem", self.target.process.pid()));
        let Some(memory) = memory.ok().filter(|_| !self.agent_leaves()) else {
            return Vec::new();
        };
        let differs = |site: &Site, bytes: &[u8; 8]| {
            let mut now = [0; 8];
            let len = usize::from(site.len).min(now.len());
            let read = memory.read_exact_at(&mut now[..len], site.address);
            read.is_ok() && now[..len] != bytes[..len]
        };
        let meters = self.agent.meters.borrow();
        let closed = self.closed();
        let moved = self.slots_unpatched_elsewhere();
        let pairs = self.counters.iter().zip(&self.agent.sites);
        let pairs = pairs.filter(|(_, site)| meters.ran_ns(site.slot).is_none());
        let pairs = pairs.filter(|(_, site)| !closed.contains(&site.slot));
        let other = pairs.filter(|(_, site)| differs(site, &site.patched));
        let (events, sites): (Vec<&str>, Vec<&Site>) =
            other.map(|(counter, site)| (&*counter.event, site)).unzip();
        let jumps = |site: &Site| {
            let first = Site { len: 1, ..*site };
            site.len > 1 && !differs(&first, &site.patched)
        };
        let is_moved = |site: &&Site| moved.contains(&site.slot);
        let foreign = events.iter().zip(&sites);
        let foreign = foreign.filter(|(_, site)| !is_moved(site));
        let foreign: Vec<&str> = foreign.map(|(event, _)| *event).collect();
        if self.agent_leaves() {
            // The agent restored the code in between, not another tracer.
            return Vec::new();
        }
        let (astray, others): (Vec<&Site>, _) = sites.into_iter().partition(|site| jumps(site));
        let lost = others.iter().filter(|site| !differs(site, &site.original));
        let lost: Vec<u64> = lost.map(|site| site.address).collect();
        let astray: Vec<u64> = astray.iter().map(|site| site.address).collect();
        if let Some(link) = &self.target.link
            && !(lost.is_empty() && astray.is_empty())
        {
            // On failure the event is still reported.
            let _ = link.disarm(&astray);
            let _ = link.arm_again(&lost);
        }
        foreign
    }

    /// Returns whether the agent has left or begins to.
    fn agent_leaves(&self) -> bool {
        let leaves =
            |link: &Link| link.data().left().is_some() || link.data().state() == State::Dormant;
        self.presence.left.get().is_some() || self.target.link.as_ref().is_some_and(leaves)
    }

    /// Returns the slots of functions whose libraries are closed now.
    fn closed(&self) -> BTreeSet<u32> {
        let maps = match self.watched() {
            Some(_) => self.target.process.maps().unwrap_or_default(),
            None => return BTreeSet::new(),
        };
        let there = |site: &Site, file: &FileKey| {
            let behind = maps.partition_point(|mapping| mapping.start <= site.address);
            let mapping = behind.checked_sub(1).and_then(|index| maps.get(index));
            mapping
                .is_some_and(|mapping| mapping.contains(site.address) && key_of(mapping) == *file)
        };
        let placed = self.agent.sites.iter().zip(&self.agent.files);
        let gone = placed.filter(|(site, file)| !there(site, file));
        gone.map(|(site, _)| site.slot).collect()
    }

    /// Returns a note if hits found that another tracer's probe had been removed from our sites,
    /// even if [`Tracee::foreign`] never saw that probe.
    pub fn came_and_went(&self) -> Option<Note> {
        let Some(link) = &self.target.link else {
            return self.went_on();
        };
        let times = link.data().rearmed();
        let pid = self.target.process.pid();
        (times > 0).then(|| FunctionNote::OtherTracerLeft { pid, times }.into())
    }
}
