//! Times and counts waits for the kernel's own locks. The BPF programs run only when a thread of the machine waits
//! (except with [`WaitSelection::EveryMmap`]).
//!
//! | object | tracepoints | since |
//! |---|---|---|
//! | `bpf/contention.bpf.o` | `lock:contention_begin`, `lock:contention_end` | Linux 5.19 |
//! | `bpf/mmap_lock.bpf.o` | `mmap_lock:mmap_lock_start_locking`, `…_acquire_returned` | Linux 5.11 |
//!
//! 1. The program at the waits' ends must be attached first and detached last. Otherwise missed ends would make waits
//!    seem endless.
//! 2. Rows (sums of waits by key) are never removed.
//!
//! A writer that gets a semaphore by spinning does not reach these tracepoints (`rwsem_down_write_slowpath`).

use std::collections::HashMap as Stacks;

use aya::Ebpf;
use aya::maps::stack_trace::StackTraceMap;
use aya::maps::{HashMap, MapData};
use aya::sys::{Stats, enable_stats};
use tiptoe_event::WaitSelection;
use zerocopy::transmute;

use crate::Error;
use crate::programs::{self, Link, ProgramTimes, attach, load_program, typed_map, typed_map_mut};
use crate::refusal::bpf_refusal;

mod callsite;
#[cfg(test)]
mod edges;
mod layout;

pub use callsite::Callsites;
pub use layout::{Mode, Outcome, RowKey, Traits, WaitCounts, WaitDrops};

use layout::{WaitKeyWords, WaitRowWords};

const CONTENTION: &[u8] = aya::include_bytes_aligned!("../bpf/contention.bpf.o");
const MMAP_LOCK: &[u8] = aya::include_bytes_aligned!("../bpf/mmap_lock.bpf.o");

const LOAD: &str = "load the BPF programs that time waits";
const READ: &str = "read the waits";
const PROCESSES: u32 = 1024;

/// The waits to count.
#[derive(Clone, Debug)]
pub struct WaitsWanted {
    /// The locks to watch.
    pub watched: WaitSelection,
    /// Only these processes, by their ids in tiptoe's PID namespace; `None` for all.
    pub pids: Option<Vec<u32>>,
    /// Whether to group by thread.
    pub by_thread: bool,
    /// Whether to group by lock.
    pub by_lock: bool,
}

/// A row.
#[derive(Clone, Debug)]
pub struct WaitSums {
    /// The key.
    pub key: RowKey,
    /// The kernel's stack at the wait's begin, innermost frame first; empty if not stored.
    pub stack: Vec<u64>,
    /// The waits' number and times.
    pub waited: WaitCounts,
}

/// Counts waits, from [`Waits::start`] to [`Waits::stop`].
#[derive(Debug)]
pub struct Waits {
    bpf: Ebpf,
    watched: WaitSelection,
    links: Vec<Link>,
    /// While open, makes the kernel time programs.
    stats: Option<std::os::fd::OwnedFd>,
}

impl Waits {
    /// Prepares to count.
    pub fn load(wanted: &WaitsWanted) -> Result<Self, Error> {
        if wanted.watched == WaitSelection::EveryMmap {
            programs::tracefs()?;
        }
        let mut bpf = load(wanted)?;
        for program in places(wanted.watched).map(|[program, ..]| program) {
            load_program(&mut bpf, program, LOAD)?;
        }
        let mut waits = Self {
            bpf,
            watched: wanted.watched,
            links: Vec::new(),
            stats: None,
        };
        waits.choose(wanted.pids.as_deref().unwrap_or_default())?;
        Ok(waits)
    }

    /// Adds processes; has no effect if all processes count.
    pub fn choose(&mut self, pids: &[u32]) -> Result<(), Error> {
        const CHOOSE: &str = "choose the processes";
        let mut chosen: HashMap<_, u32, u32> = typed_map_mut(&mut self.bpf, "wanted", CHOOSE)?;
        let mut insert = |pid| chosen.insert(pid, 1, 0);
        let inserted = pids.iter().try_for_each(&mut insert);
        inserted.map_err(|error| bpf_refusal(CHOOSE, &error))
    }

    /// Starts counting.
    pub fn start(&mut self) -> Result<(), Error> {
        self.stats = enable_stats(Stats::RunTime).ok();
        for place in places(self.watched) {
            let link = attach(&mut self.bpf, place)?;
            self.links.push(link);
        }
        Ok(())
    }

    /// Ends counting; counts stay readable.
    pub fn stop(&mut self) {
        while self.links.pop().is_some() {}
    }

    /// Returns the number of waits.
    pub fn count(&self) -> Result<u64, Error> {
        let rows = self.rows()?;
        let counts = rows
            .iter()
            .map(|row| row.map(|(_, row)| layout::waited(row).count));
        counts
            .sum::<Result<u64, _>>()
            .map_err(|error| bpf_refusal(READ, &error))
    }

    /// Returns the counts.
    pub fn read(&self) -> Result<Vec<WaitSums>, Error> {
        let stacks: StackTraceMap<_> = typed_map(&self.bpf, "stacks", READ)?;
        let mut known: Stacks<u32, Vec<u64>> = Stacks::new();
        let mut frames = |id: u32| {
            let read = || {
                let stack = stacks.get(&id, 0);
                let ips = |stack: aya::maps::stack_trace::StackTrace| {
                    stack.frames().iter().map(|frame| frame.ip).collect()
                };
                stack.map_or_else(|_| Vec::new(), ips)
            };
            known.entry(id).or_insert_with(read).clone()
        };
        let mut rows = Vec::new();
        for row in self.rows()?.iter() {
            let (key, row) = row.map_err(|error| bpf_refusal(READ, &error))?;
            let key: RowKey = transmute!(key);
            let stack = u32::try_from(key.stack).ok();
            rows.push(WaitSums {
                key,
                stack: stack.map(&mut frames).unwrap_or_default(),
                waited: layout::waited(row),
            });
        }
        Ok(rows)
    }

    /// Returns what was not counted.
    pub fn drops(&self) -> Result<WaitDrops, Error> {
        let drops: [u64; size_of::<WaitDrops>() / 8] = programs::drops(&self.bpf)?;
        Ok(transmute!(drops))
    }

    /// Returns the number of unfinished waits, without those of spinning CPUs.
    pub fn waiting(&self) -> Result<u64, Error> {
        let waits: HashMap<_, [u64; 2], layout::WaitWords> =
            typed_map(&self.bpf, "waits", "read the waiting threads")?;
        let waiting = waits.iter().flatten();
        Ok(waiting
            .filter(|(_, wait)| layout::is_waiting(*wait))
            .count() as u64)
    }

    /// Returns the time for the counted processes, as the programs measure it.
    pub fn times(&self) -> Result<ProgramTimes, Error> {
        programs::times(&self.bpf, layout::runs)
    }

    /// Returns the programs' time for all processes, as the kernel measures it; `None` if not permitted.
    pub fn times_of_all(&self) -> Option<ProgramTimes> {
        self.stats.as_ref()?;
        Some(programs::times_of_all(&self.bpf))
    }

    fn rows(&self) -> Result<HashMap<&MapData, WaitKeyWords, WaitRowWords>, Error> {
        typed_map(&self.bpf, "rows", READ)
    }
}

fn load(wanted: &WaitsWanted) -> Result<Ebpf, Error> {
    let object = match wanted.watched {
        WaitSelection::EveryMmap => MMAP_LOCK,
        _ => CONTENTION,
    };
    let [only_wanted, only_mmap, by_thread, by_lock] = [
        wanted.pids.is_some(),
        wanted.watched == WaitSelection::ContendedMmap,
        wanted.by_thread,
        wanted.by_lock,
    ]
    .map(u32::from);
    let pids = wanted.pids.as_ref().map_or(0, Vec::len);
    let room = u32::try_from(pids).unwrap_or(u32::MAX).max(PROCESSES);
    let mut loader = programs::loader();
    loader
        .map_max_entries("wanted", room)
        .override_global("only_wanted", &only_wanted, true)
        .override_global("only_mmap", &only_mmap, false)
        .override_global("by_thread", &by_thread, true)
        .override_global("by_lock", &by_lock, true);
    loader
        .load(object)
        .map_err(|error| bpf_refusal(LOAD, &error))
}

/// Returns what to attach, in the order of rule 1.
fn places(watched: WaitSelection) -> [[&'static str; 3]; 2] {
    match watched {
        WaitSelection::EveryMmap => [
            [
                "acquire_returned",
                "mmap_lock",
                "mmap_lock_acquire_returned",
            ],
            ["start_locking", "mmap_lock", "mmap_lock_start_locking"],
        ],
        WaitSelection::Contended | WaitSelection::ContendedMmap => [
            ["contention_end", "lock", "contention_end"],
            ["contention_begin", "lock", "contention_begin"],
        ],
    }
}
