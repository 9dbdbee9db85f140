//! The futex calls of a process, timed and counted in the kernel: waits for the locks of a program
//! where nothing can be patched.
//!
//! BPF programs at `syscalls:sys_enter_futex` and `sys_exit_futex` keep the histograms by lock and call site, and
//! whose wake ended a wait. These two tracepoints are passed by futex calls alone, though each system call of the
//! machine looks whether it has one while they are in use.
//!
//! Rules:
//!
//! 1. The end is attached before the begin, and detached behind it, as in [`waits`](crate::waits).
//! 2. Rows are sums since the programs were attached; none is ever taken away.
//! 3. The kernel says nothing of 32-bit programs here: whoever asks for one has to refuse it.
//!
//! Linux 5.15 or later.

use std::os::fd::OwnedFd;

use aya::Ebpf;
use aya::maps::HashMap;
use aya::sys::{Stats, enable_stats};

use crate::Error;
use crate::programs::{self, Link, ProgramTimes, attach, load_program, map, map_mut};
use crate::refusal::bpf_refusal;

#[cfg(test)]
mod edges;
mod layout;

pub use layout::{Drops, FutexKey, FutexRow, Waker};

use layout::{Key, Row, Thread};

/// Programs, as clang made them. The macro aligns them as their reader wants it.
const FUTEX: &[u8] = aya::include_bytes_aligned!("../bpf/futex.bpf.o");

const LOAD: &str = "load the BPF programs that time futex calls";
const READ: &str = "read the futex calls";

/// Programs, each with the group and name of its tracepoint: the end of a wait first.
const PLACES: [[&str; 3]; 4] = [
    ["program_exec", "sched", "sched_process_exec"],
    ["thread_exit", "sched", "sched_process_exit"],
    ["exit_futex", "syscalls", "sys_exit_futex"],
    ["enter_futex", "syscalls", "sys_enter_futex"],
];
/// Calls that no row has: some kernels do not know them.
const OTHERS: [&str; 4] = [
    "sys_enter_futex_waitv",
    "sys_enter_futex_wait",
    "sys_enter_futex_wake",
    "sys_enter_futex_requeue",
];
const COUNTS_OTHERS: &str = "enter_other";

/// Set beside a depth whose return address stands above the frame pointer.
const BY_FRAME_POINTER: u32 = 1 << 31;

/// Where the frame of a function's caller begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// So many bytes above the stack pointer.
    Bytes(u16),
    /// As the frame pointer says.
    FramePointer,
}

/// Whose calls are to be counted, and told apart.
#[derive(Clone, Copy, Debug)]
pub struct FutexesWanted {
    /// The process, by the kernel's own id.
    pub pid: u32,
    /// Each thread for itself.
    pub by_thread: bool,
    /// It is still to run its program: calls count in that, and not in any that it runs then.
    pub before_exec: bool,
    /// An agent counts the calls from places that it patched.
    pub beside_agent: bool,
    /// The thread of an agent, tiptoe's own or of another one: its calls are none of the program's.
    pub agent_thread: Option<u32>,
}

/// How many calls there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Calls that may wait.
    pub waits: u64,
    /// Calls that wake.
    pub wakes: u64,
}

/// Programs that count futex calls, from [`Futexes::start`] to [`Futexes::stop`].
#[derive(Debug)]
pub struct Futexes {
    bpf: Ebpf,
    before_exec: bool,
    /// The begin behind the end: the first of the two to go.
    links: Vec<Link>,
    /// The kernel measures programs while this is open.
    stats: Option<OwnedFd>,
}

impl Futexes {
    /// Makes ready to count. Nothing of the kernel's is touched yet.
    pub fn load(wanted: FutexesWanted) -> Result<Self, Error> {
        programs::need_tracefs()?;
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

    /// Whether the process runs another program than that which was to be watched.
    pub fn has_execed(&self) -> bool {
        programs::first_word(&self.bpf) > u32::from(self.before_exec)
    }

    /// Steps over these functions of libc to the user's call site: addresses that a thread may be at or
    /// return to. Those that find no room are taken for the user's.
    pub fn step_over(&mut self, frames: impl Iterator<Item = (u64, Depth)>) -> Result<(), Error> {
        let frames = frames.map(|(at, depth)| match depth {
            Depth::Bytes(bytes) => (at, u32::from(bytes)),
            Depth::FramePointer => (at, BY_FRAME_POINTER),
        });
        self.fill("frames", frames)
    }

    /// Leaves calls alone that return to these addresses: they are patched.
    pub fn leave_alone(&mut self, patched: impl Iterator<Item = u64>) -> Result<(), Error> {
        self.fill("patched", patched.map(|at| (at, 1)))
    }

    fn fill(&mut self, name: &str, entries: impl Iterator<Item = (u64, u32)>) -> Result<(), Error> {
        let failed = |error| bpf_refusal("tell the BPF programs of the program's code", &error);
        let map = map_mut(&mut self.bpf, name)?;
        let mut map = HashMap::<_, u64, u32>::try_from(map).map_err(failed)?;
        for (at, value) in entries {
            let _ = map.insert(at, value, 0);
        }
        Ok(())
    }

    /// Counts from now on.
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

    /// Ends counting; what was counted can still be read.
    pub fn stop(&mut self) {
        while self.links.pop().is_some() {}
    }

    /// What was counted so far.
    pub fn read(&self) -> Result<Vec<FutexRow>, Error> {
        let failed = |error| bpf_refusal(READ, &error);
        let rows = HashMap::<_, Key, Row>::try_from(map(&self.bpf, "rows")?).map_err(failed)?;
        rows.iter()
            .map(|row| row.map(|(key, row)| layout::row(key, &row)))
            .collect::<Result<_, _>>()
            .map_err(failed)
    }

    /// How many calls there were so far.
    pub fn calls(&self) -> Result<Calls, Error> {
        let mut sum = Calls::default();
        for cpu in programs::cpus::<layout::Cpu>(&self.bpf)? {
            let [waits, wakes] = layout::calls(&cpu);
            sum.waits += waits;
            sum.wakes += wakes;
        }
        Ok(sum)
    }

    /// How many waits are not over, of threads that there still are.
    pub fn waiting(&self) -> Result<u64, Error> {
        let failed = |error| bpf_refusal("read who waits", &error);
        let threads =
            HashMap::<_, u32, Thread>::try_from(map(&self.bpf, "threads")?).map_err(failed)?;
        let threads = threads.iter().flatten();
        Ok(threads
            .filter(|(_, thread)| layout::is_waiting(thread))
            .count() as u64)
    }

    /// What was not counted so far, by reason.
    pub fn drops(&self) -> Result<Drops, Error> {
        let (counts, missed) = programs::drops(&self.bpf)?;
        Ok(layout::drops(counts, missed))
    }

    /// What the programs took of the process, by their own clock. The way in and out is not in it.
    pub fn times(&self) -> Result<ProgramTimes, Error> {
        programs::times(&self.bpf, layout::runs)
    }

    /// What they took of all processes, as the kernel measured it; none where this user may not have
    /// it measured.
    pub fn times_of_all(&self) -> Option<ProgramTimes> {
        self.stats.as_ref()?;
        Some(programs::times_of_all(&self.bpf))
    }
}
