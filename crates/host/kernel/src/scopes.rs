//! Counts the events of a process's threads by scope, a label on what the threads do.
//!
//! BPF programs (`bpf/scopes.bpf.c`) read a thread's scope from the memory of the agent, tiptoe's library in the
//! process.
//!
//! Context switches of all processes run these programs.

use std::os::fd::OwnedFd;

use aya::maps::{HashMap, PerCpuArray};
use aya::sys::{Stats, enable_stats};
use aya::{Btf, Ebpf};
use tiptoe_event::{Counter, CounterKind};
use tiptoe_sys::host::limits::reserve_open_files;
use tiptoe_sys::host::perf::{CountedOn, PerfEvent};
use zerocopy::{FromBytes, transmute};

use crate::Error;
use crate::counters::{KernelEvent, opened, resolve};
use crate::programs::{
    self, Link, ProgramTimes, attach, load_program, load_typed, program_fd, typed_map,
};
use crate::refusal::bpf_refusal;

const PROGRAMS: &[u8] = aya::include_bytes_aligned!("../bpf/scopes.bpf.o");
const LOAD: &str = "load the BPF programs that charge scopes";
const READ: &str = "read the counts of scopes";
const SWITCHED: [&str; 3] = ["switched", "sched", "sched_switch"];
const EXITED: [&str; 3] = ["exited", "sched", "sched_process_exit"];

/// The number of *nodes*: scopes within their outer scopes. The last node counts for all scopes that found no number.
pub const NODES: u32 = 1024;
/// The most events.
pub const MOST_EVENTS: usize = 8;

type Sums = [u64; size_of::<NodeSums>() / 8];
const _: () = assert!(size_of::<NodeSums>() == 72);
/// When a thread stopped running, and its node.
type SwitchedOut = [u64; 2];

/// The process, and where its scopes are stored.
#[derive(Clone, Copy, Debug)]
pub struct ScopesWanted {
    /// The process, in tiptoe's PID namespace.
    pub pid: u32,
    /// Bytes from the thread pointer to the address of the thread's descriptor, which begins with the address of the
    /// thread's memory block (*slab*).
    pub thread_offset: i64,
    /// Bytes from a slab's start to the node's number.
    pub node_offset: u32,
}

/// A node's sums: `struct tiptoe_scope_sums`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes)]
#[repr(C)]
pub struct NodeSums {
    /// How long the node's threads did not run.
    pub away_ns: u64,
    /// Each event's count.
    pub events: [u64; MOST_EVENTS],
}

/// Counts events by scope, from [`Scopes::start`] to [`Scopes::stop`].
#[derive(Debug)]
pub struct Scopes {
    bpf: Ebpf,
    events: Vec<KernelEvent>,
    links: Vec<Link>,
    open: Vec<PerfEvent>,
    /// While open, makes the kernel time programs.
    stats: Option<OwnedFd>,
}

/// Returns whether the kernel can run a program at each event.
pub fn can_charge(counter: &Counter<'_>) -> bool {
    matches!(
        counter.kind,
        CounterKind::Software(_) | CounterKind::Tracepoint { .. }
    )
}

impl Scopes {
    /// Prepares to count at most [`MOST_EVENTS`] [chargeable](can_charge) events.
    pub fn load(wanted: &ScopesWanted, events: &[Counter<'_>]) -> Result<Scopes, Error> {
        let resolved = events.iter().map(resolve);
        let resolved: Vec<KernelEvent> = resolved.collect::<Result<_, _>>()?;
        let mut loader = programs::loader();
        loader
            .override_global("process", &wanted.pid, true)
            .override_global("thread_offset", &wanted.thread_offset, true)
            .override_global("node_offset", &wanted.node_offset, true);
        let bpf = loader.load(PROGRAMS);
        let mut bpf = bpf.map_err(|error| bpf_refusal(LOAD, &error))?;
        let btf = Btf::from_sys_fs().map_err(|_| Error::NoBtf)?;
        for place in [SWITCHED, EXITED] {
            load_typed(&mut bpf, place, &btf, LOAD)?;
        }
        for (number, event) in resolved.iter().enumerate() {
            let program = match event.is_tracepoint() {
                true => passed(number),
                false => charged(number),
            };
            load_program(&mut bpf, &program, LOAD)?;
        }
        Ok(Scopes {
            bpf,
            events: resolved,
            links: Vec::new(),
            open: Vec::new(),
            stats: None,
        })
    }

    /// Returns the events' names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.events.iter().map(|event| event.name.as_str())
    }

    /// Starts to count in these threads and those that they create.
    pub fn start(&mut self, events: &[Counter<'_>], threads: &[u32]) -> Result<(), Error> {
        self.stats = enable_stats(Stats::RunTime).ok();
        reserve_open_files((self.events.len() * threads.len()) as u64)?;
        for place in [SWITCHED, EXITED] {
            self.links.push(attach(&mut self.bpf, place)?);
        }
        for (number, counter) in events.iter().enumerate() {
            match counter.kind {
                CounterKind::Tracepoint { group, name } => {
                    let link = attach(&mut self.bpf, [&passed(number), group, name])?;
                    self.links.push(link);
                }
                _ => self.open_for(number, threads)?,
            }
        }
        for event in &self.open {
            event.enable().map_err(Error::io("enable an event"))?;
        }
        Ok(())
    }

    fn open_for(&mut self, number: usize, threads: &[u32]) -> Result<(), Error> {
        let Some(event) = self.events.get(number) else {
            return Ok(());
        };
        let mut attr = event.attr;
        attr.set_disabled(1);
        attr.set_inherit(1);
        attr.set_inherit_thread(1);
        attr.__bindgen_anon_1.sample_period = 1;
        let program = program_fd(&self.bpf, &charged(number), LOAD)?;
        for tid in threads {
            let on = CountedOn::Thread(*tid);
            if let Some(opened) = opened(PerfEvent::open(attr, on), &event.name, on)? {
                let runs = opened.run_program(program);
                runs.map_err(Error::io("attach a BPF program to an event"))?;
                self.open.push(opened);
            }
        }
        Ok(())
    }

    /// Ends counting; sums stay readable.
    pub fn stop(&mut self) {
        self.open.clear();
        self.links.clear();
    }

    /// Returns each node's sums. A thread off the CPU counts as away until `now` (CLOCK_MONOTONIC, ns).
    pub fn read(&self, now: u64) -> Result<Vec<NodeSums>, Error> {
        let failed = |error| bpf_refusal(READ, &error);
        let sums: PerCpuArray<_, Sums> = typed_map(&self.bpf, "sums", READ)?;
        let mut nodes: Vec<NodeSums> = Vec::new();
        for node in 0..NODES {
            let mut charged = Sums::default();
            for cpu in sums.get(&node, 0).map_err(failed)?.iter() {
                let each = charged.iter_mut().zip(cpu);
                each.for_each(|(sum, count)| *sum = sum.wrapping_add(*count));
            }
            nodes.push(transmute!(charged));
        }
        let away: HashMap<_, u32, SwitchedOut> = typed_map(&self.bpf, "away", READ)?;
        for [since, node] in away.iter().flatten().map(|(_, away)| away) {
            let charged = usize::try_from(node).ok();
            let charged = charged.and_then(|node| nodes.get_mut(node));
            if let Some(charged) = charged.filter(|_| since != 0) {
                charged.away_ns += now.saturating_sub(since);
            }
        }
        Ok(nodes)
    }

    /// Returns the programs' time for the process, as they measure it.
    pub fn times(&self) -> Result<ProgramTimes, Error> {
        programs::times(&self.bpf, |own: [u64; 2]| own)
    }

    /// Returns the programs' time for all processes, as the kernel measures it; `None` if not permitted.
    pub fn times_of_all(&self) -> Option<ProgramTimes> {
        self.stats.as_ref()?;
        Some(programs::times_of_all(&self.bpf))
    }
}

fn passed(number: usize) -> String {
    format!("passed_{number}")
}

fn charged(number: usize) -> String {
    format!("event_{number}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout_tests::same_layout;

    #[test]
    fn the_programs_have_the_same_layout() {
        same_layout!(PROGRAMS, "tiptoe_scope_sums", NodeSums: away_ns events);
    }
}
