//! Waits for the kernel's own locks, timed and counted in the kernel.
//!
//! Two BPF programs, at a wait's begin and at its end, keep the histograms: what comes out are sums.
//! Nothing is told for each wait, and nothing runs where no lock is waited for
//! ([`Watched::EveryMmap`] excepted).
//!
//! | object | tracepoints | since |
//! |---|---|---|
//! | `bpf/contention.bpf.o` | `lock:contention_begin`, `lock:contention_end` | Linux 5.19 |
//! | `bpf/mmap_lock.bpf.o` | `mmap_lock:mmap_lock_start_locking`, `…_acquire_returned` | Linux 5.11 |
//!
//! Rules:
//!
//! 1. The end is attached before the begin, and detached behind it: a begin that is kept would else
//!    wait for its end for ever.
//! 2. Rows are sums since the programs were attached; none is ever taken away.
//! 3. Whatever is seen and not counted is in [`Drops`], under its reason.
//!
//! A wait that is won by spinning on a sleeping lock never begins for these tracepoints: the kernel
//! says nothing of it, and so do we.

use std::collections::HashMap as Stacks;

use aya::Ebpf;
use aya::maps::stack_trace::StackTraceMap;
use aya::maps::{HashMap, MapData};
use aya::sys::{Stats, enable_stats};

use crate::Error;
use crate::programs::{self, Link, ProgramTimes, attach, load_program, map, map_mut};
use crate::refusal::bpf_refusal;

mod callsite;
#[cfg(test)]
mod edges;
mod layout;

pub use callsite::Callsites;
pub use layout::{Drops, Mode, Outcome, RowKey, Traits, Waited};

use layout::{Key, Row};

/// Programs, as clang made them. The macro aligns them as their reader wants it.
const CONTENTION: &[u8] = aya::include_bytes_aligned!("../bpf/contention.bpf.o");
const MMAP_LOCK: &[u8] = aya::include_bytes_aligned!("../bpf/mmap_lock.bpf.o");

/// What is tried first.
const LOAD: &str = "load the BPF programs that time waits";
/// How many processes there is room for without saying more.
const PROCESSES: u32 = 1024;

/// Which waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// For any lock, where it was not free.
    Contended,
    /// The same, of mmap_lock alone.
    ContendedMmap,
    /// Every acquisition of mmap_lock, also of a free one.
    EveryMmap,
}

/// What is to be counted, and told apart.
#[derive(Clone, Debug)]
pub struct WaitsWanted {
    /// Which waits.
    pub watched: Watched,
    /// Of these processes alone, by the kernel's own ids; of all where there are none.
    pub pids: Option<Vec<u32>>,
    /// Each thread for itself.
    pub by_thread: bool,
    /// Each lock for itself.
    pub by_lock: bool,
}

/// What was waited for so far.
#[derive(Clone, Debug)]
pub struct WaitRow {
    /// Which waits these are.
    pub key: RowKey,
    /// The kernel's stack at the begin, innermost first; empty where it was not kept.
    pub stack: Vec<u64>,
    /// How many, and how long.
    pub waited: Waited,
}

/// Programs that count waits, from [`Waits::start`] to [`Waits::stop`].
#[derive(Debug)]
pub struct Waits {
    bpf: Ebpf,
    watched: Watched,
    /// The begin last: the first to go.
    links: Vec<Link>,
    /// The kernel measures programs while this is open.
    stats: Option<std::os::fd::OwnedFd>,
}

impl Waits {
    /// Makes ready to count. Nothing of the kernel's is touched yet.
    pub fn load(wanted: &WaitsWanted) -> Result<Self, Error> {
        if wanted.watched == Watched::EveryMmap {
            programs::need_tracefs()?;
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

    /// Waits of these processes count too, where not those of all do.
    pub fn choose(&mut self, pids: &[u32]) -> Result<(), Error> {
        let failed = |error| bpf_refusal("choose the processes", &error);
        let map = map_mut(&mut self.bpf, "wanted")?;
        let mut chosen = HashMap::<_, u32, u32>::try_from(map).map_err(failed)?;
        let mut insert = |pid| chosen.insert(pid, 1, 0).map_err(failed);
        pids.iter().try_for_each(&mut insert)
    }

    /// Counts from now on.
    pub fn start(&mut self) -> Result<(), Error> {
        self.stats = enable_stats(Stats::RunTime).ok();
        for place in places(self.watched) {
            let link = attach(&mut self.bpf, place)?;
            self.links.push(link);
        }
        Ok(())
    }

    /// Ends counting; what was counted can still be read.
    pub fn stop(&mut self) {
        while self.links.pop().is_some() {}
    }

    /// How many waits were counted so far.
    pub fn count(&self) -> Result<u64, Error> {
        let rows = self.rows()?;
        let counts = rows.iter().map(|row| row.map(|(_, row)| row[0]));
        counts
            .sum::<Result<u64, _>>()
            .map_err(|error| bpf_refusal("read the waits", &error))
    }

    /// What was counted so far.
    pub fn read(&self) -> Result<Vec<WaitRow>, Error> {
        let failed = |error| bpf_refusal("read the waits", &error);
        let stacks = StackTraceMap::try_from(map(&self.bpf, "stacks")?).map_err(failed)?;
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
            let (key, row) = row.map_err(failed)?;
            let (key, stack) = layout::key(key);
            rows.push(WaitRow {
                key,
                stack: stack.map(&mut frames).unwrap_or_default(),
                waited: layout::waited(&row),
            });
        }
        Ok(rows)
    }

    /// What was not counted so far, by reason.
    pub fn drops(&self) -> Result<Drops, Error> {
        let (counts, missed) = programs::drops(&self.bpf)?;
        Ok(layout::drops(counts, missed))
    }

    /// How many waits of threads that sleep have begun and are not over.
    pub fn waiting(&self) -> Result<u64, Error> {
        let failed = |error| bpf_refusal("read who waits", &error);
        let waits = HashMap::<_, [u64; 2], layout::Noted>::try_from(map(&self.bpf, "waits")?);
        let waits = waits.map_err(failed)?;
        let waiting = waits.iter().flatten();
        Ok(waiting
            .filter(|(_, wait)| layout::is_waiting(*wait))
            .count() as u64)
    }

    /// What the programs took of those whose waits count, by their own clock. The way in and out is
    /// not in it.
    pub fn times(&self) -> Result<ProgramTimes, Error> {
        programs::times(&self.bpf, layout::runs)
    }

    /// What they took of all processes, as the kernel measured it; none where this user may not have
    /// it measured.
    pub fn times_of_all(&self) -> Option<ProgramTimes> {
        self.stats.as_ref()?;
        Some(programs::times_of_all(&self.bpf))
    }

    fn rows(&self) -> Result<HashMap<&MapData, Key, Row>, Error> {
        let rows = HashMap::try_from(map(&self.bpf, "rows")?);
        rows.map_err(|error| bpf_refusal("read the waits", &error))
    }
}

fn load(wanted: &WaitsWanted) -> Result<Ebpf, Error> {
    let object = match wanted.watched {
        Watched::EveryMmap => MMAP_LOCK,
        _ => CONTENTION,
    };
    let [only_wanted, only_mmap, by_thread, by_lock] = [
        wanted.pids.is_some(),
        wanted.watched == Watched::ContendedMmap,
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

/// Programs, each with the group and name of its tracepoint: the end of a wait first.
fn places(watched: Watched) -> [[&'static str; 3]; 2] {
    match watched {
        Watched::EveryMmap => [
            [
                "acquire_returned",
                "mmap_lock",
                "mmap_lock_acquire_returned",
            ],
            ["start_locking", "mmap_lock", "mmap_lock_start_locking"],
        ],
        Watched::Contended | Watched::ContendedMmap => [
            ["contention_end", "lock", "contention_end"],
            ["contention_begin", "lock", "contention_begin"],
        ],
    }
}
