//! Times and counts futex calls in the kernel, for programs that cannot be patched: as histograms by lock and call
//! site, with the call sites that wake. While attached, the BPF programs slow each system call of the machine, which
//! then checks for tracepoints.
//!
//! 1. The program at the calls' ends must be attached first and detached last. Otherwise missed ends would make waits
//!    seem endless.
//! 2. Rows (sums of calls by key) are never removed.
//! 3. Callers must refuse 32-bit programs, whose calls these tracepoints do not report.
//!
//! Needs Linux 5.15.

use std::os::fd::OwnedFd;

use aya::Ebpf;
use aya::maps::HashMap;
use aya::sys::{Stats, enable_stats};
use zerocopy::transmute;

use crate::Error;
use crate::programs::{self, Link, ProgramTimes, attach, load_program, typed_map, typed_map_mut};
use crate::refusal::bpf_refusal;

#[cfg(test)]
mod call_tests;
mod futex_layout;

pub use futex_layout::{FutexCounts, FutexDrops, FutexEnds, FutexKey, Waker};

use futex_layout::{FutexKeyWords, FutexRowWords, FutexThreadWords};

const FUTEX: &[u8] = aya::include_bytes_aligned!("../bpf/futex.bpf.o");

const LOAD: &str = "load the BPF programs that time futex calls";
const READ: &str = "read the futex calls";

/// Attached in this order (rule 1).
const PLACES: [[&str; 3]; 4] = [
    ["program_exec", "sched", "sched_process_exec"],
    ["thread_exit", "sched", "sched_process_exit"],
    ["exit_futex", "syscalls", "sys_exit_futex"],
    ["enter_futex", "syscalls", "sys_enter_futex"],
];
/// Tracepoints of calls that are only counted. Some kernels lack them.
const OTHERS: [&str; 4] = [
    "sys_enter_futex_waitv",
    "sys_enter_futex_wait",
    "sys_enter_futex_wake",
    "sys_enter_futex_requeue",
];
const COUNTS_OTHERS: &str = "enter_other";

const BY_FRAME_POINTER: u32 = 1 << 31;

/// Where a caller's frame begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// This many bytes above the stack pointer.
    Bytes(u16),
    /// At the frame pointer.
    FramePointer,
}

/// The calls to count.
#[derive(Clone, Copy, Debug)]
pub struct FutexesWanted {
    /// The process, in tiptoe's PID namespace.
    pub pid: u32,
    /// Whether to group by thread.
    pub by_thread: bool,
    /// Whether only the program after the next exec counts.
    pub before_exec: bool,
    /// Whether an agent (tiptoe's library) in the process counts the calls from patched code.
    pub beside_agent: bool,
    /// An agent's thread, whose calls do not count.
    pub agent_thread: Option<u32>,
}

/// Numbers of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Calls that may wait.
    pub waits: u64,
    /// Calls that wake.
    pub wakes: u64,
}

/// Counts futex calls, from [`Futexes::start`] to [`Futexes::stop`].
#[derive(Debug)]
pub struct Futexes {
    bpf: Ebpf,
    before_exec: bool,
    links: Vec<Link>,
    /// While open, makes the kernel time programs.
    stats: Option<OwnedFd>,
}

impl Futexes {
    /// Prepares to count.
    pub fn load(wanted: FutexesWanted) -> Result<Self, Error> {
        programs::tracefs()?;
        let [by_thread, beside_agent, execs] =
            [wanted.by_thread, wanted.beside_agent, wanted.before_exec].map(u32::from);
        let agent_thread = wanted.agent_thread.unwrap_or(0);
        let mut loader = programs::loader();
        loader
            .override_global("process", &wanted.pid, true)
            .override_global("by_thread", &by_thread, true)
            .override_global("beside_agent", &beside_agent, true)
            .override_global("agent_thread", &agent_thread, true)
            .override_global("expected_execs", &execs, true);
        let bpf = loader.load(FUTEX);
        let mut bpf = bpf.map_err(|error| bpf_refusal(LOAD, &error))?;
        for [program, ..] in PLACES {
            load_program(&mut bpf, program, LOAD)?;
        }
        load_program(&mut bpf, COUNTS_OTHERS, LOAD)?;
        Ok(Self {
            bpf,
            before_exec: wanted.before_exec,
            links: Vec::new(),
            stats: None,
        })
    }

    /// Returns whether another program has replaced the counted one.
    pub fn has_execed(&self) -> bool {
        programs::first_word(&self.bpf) > u32::from(self.before_exec)
    }

    /// Lets the programs find the call site in the code that called libc. `frames` has the addresses in libc where a
    /// thread may be or return to, with the depths of the callers' frames. Addresses beyond the map's room are taken
    /// for that call site.
    pub fn step_over(&mut self, frames: impl Iterator<Item = (u64, Depth)>) -> Result<(), Error> {
        let frames = frames.map(|(at, depth)| match depth {
            Depth::Bytes(bytes) => (at, u32::from(bytes)),
            Depth::FramePointer => (at, BY_FRAME_POINTER),
        });
        self.fill("frames", frames)
    }

    /// Skips calls that return to these patched addresses, which the agent counts.
    pub fn leave_alone(&mut self, patched: impl Iterator<Item = u64>) -> Result<(), Error> {
        self.fill("patched", patched.map(|at| (at, 1)))
    }

    fn fill(&mut self, name: &str, entries: impl Iterator<Item = (u64, u32)>) -> Result<(), Error> {
        let what = "pass the program's code to the BPF programs";
        let mut map: HashMap<_, u64, u32> = typed_map_mut(&mut self.bpf, name, what)?;
        for (at, value) in entries {
            let _ = map.insert(at, value, 0);
        }
        Ok(())
    }

    /// Starts counting.
    pub fn start(&mut self) -> Result<(), Error> {
        self.stats = enable_stats(Stats::RunTime).ok();
        for place in PLACES {
            let link = attach(&mut self.bpf, place)?;
            self.links.push(link);
        }
        let others = OTHERS.map(|name| attach(&mut self.bpf, [COUNTS_OTHERS, "syscalls", name]));
        self.links.extend(others.into_iter().flatten());
        Ok(())
    }

    /// Ends counting; counts stay readable.
    pub fn stop(&mut self) {
        while self.links.pop().is_some() {}
    }

    /// Returns the counts.
    pub fn read(&self) -> Result<Vec<(FutexKey, FutexCounts)>, Error> {
        let rows: HashMap<_, FutexKeyWords, FutexRowWords> = typed_map(&self.bpf, "rows", READ)?;
        rows.iter()
            .map(|row| row.map(|(key, row)| (transmute!(key), transmute!(row))))
            .collect::<Result<_, _>>()
            .map_err(|error| bpf_refusal(READ, &error))
    }

    /// Returns the number of calls.
    pub fn calls(&self) -> Result<Calls, Error> {
        let mut sum = Calls::default();
        for words in programs::cpus(&self.bpf)? {
            let cpu = futex_layout::cpu(words);
            sum.waits += cpu.own.waits;
            sum.wakes += cpu.own.wakes;
        }
        Ok(sum)
    }

    /// Returns living threads' unfinished waits, and when each began (CLOCK_MONOTONIC, ns). Each key has its thread.
    pub fn waiting(&self) -> Result<Vec<(FutexKey, u64)>, Error> {
        let threads: HashMap<_, u32, FutexThreadWords> =
            typed_map(&self.bpf, "threads", "read the waiting threads")?;
        let threads = threads.iter().flatten();
        Ok(threads
            .filter_map(|(tid, thread)| futex_layout::decode_wait(tid, thread))
            .collect())
    }

    /// Returns what was not counted.
    pub fn drops(&self) -> Result<FutexDrops, Error> {
        let drops: [u64; size_of::<FutexDrops>() / 8] = programs::drops(&self.bpf)?;
        Ok(transmute!(drops))
    }

    /// Returns the programs' time for the process, as they measure it.
    pub fn times(&self) -> Result<ProgramTimes, Error> {
        programs::times(&self.bpf, futex_layout::runs)
    }

    /// Returns the programs' time for all processes, as the kernel measures it; `None` if not permitted.
    pub fn times_of_all(&self) -> Option<ProgramTimes> {
        self.stats.as_ref()?;
        Some(programs::times_of_all(&self.bpf))
    }
}
