//! The ways to count for cgroups while the tasks of a bench switch.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tiptoe_event::{Counter, counter_groups};
use tiptoe_kernel::cgroups::ExtraCounts;
use tiptoe_kernel::counters::CountTarget;
use tiptoe_kernel::{Cgroups, CounterSet, ProcessTasks};

use super::folder::Folder;
use crate::error::Error;
use crate::workshop::failed;

/// The events of perf's cases. They repeat if a case needs more.
const PERFS: [&str; 4] = ["cpu-clock", "page-faults", "context-switches", "task-clock"];
/// The events that tiptoe reads at each switch to another cgroup. The first must be a clock, because its count is
/// compared with its enabled time.
const READ: [&str; 4] = [
    "cpu-clock",
    "page-faults:u",
    "context-switches:k",
    "alignment-faults",
];
const SCRIPT: &str = "BEGIN { printf(\"on\\n\"); } tracepoint:sched:sched_switch { \
     @ns[cgroup] = sum(nsecs - @last[cpu]); @switches[cgroup] = count(); @last[cpu] = nsecs; }";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CountingCase {
    Off,
    System,
    /// perf's events of cgroups, and of the system if `with_system`.
    Perf {
        events: usize,
        with_system: bool,
    },
    Bpftrace,
    /// tiptoe reads this number of events at switches; with 0, it only uses the kernel's counts of each task.
    Tiptoe {
        events: usize,
    },
    /// As `Tiptoe` without events, but each switch adds up time, faults and switches for the CPU.
    PerCpu,
    /// Four events of perf for the processes alone.
    PerfOfProcesses,
    TiptoeOfProcesses,
}

impl CountingCase {
    pub(super) fn name(self) -> String {
        match self {
            CountingCase::Off => "bare".into(),
            CountingCase::System => "system_wide".into(),
            CountingCase::Perf {
                events,
                with_system: true,
            } => format!("perf_G_{events}"),
            CountingCase::Perf { events, .. } => format!("perf_each_cgroup_{events}"),
            CountingCase::Bpftrace => "bpftrace".into(),
            CountingCase::Tiptoe { events: 0 } => "tiptoe".into(),
            CountingCase::Tiptoe { events } => format!("tiptoe_{events}"),
            CountingCase::PerCpu => "tiptoe_per_cpu".into(),
            CountingCase::PerfOfProcesses => "perf_p_4".into(),
            CountingCase::TiptoeOfProcesses => "tiptoe_p".into(),
        }
    }
}

pub(super) enum Counting {
    Off,
    /// A set of the whole system must be the first.
    Sets(Vec<CounterSet>),
    Bpftrace(Child),
    Tiptoe {
        cgroups: Box<Cgroups>,
        read: CounterSet,
    },
    Processes(Box<ProcessTasks>),
}

impl Counting {
    /// `program` is the parent of the processes that switch.
    pub(super) fn start(
        case: CountingCase,
        folder: &Folder,
        cgroups: usize,
        program: u32,
    ) -> Result<Counting, Error> {
        if matches!(
            case,
            CountingCase::Off
                | CountingCase::TiptoeOfProcesses
                | CountingCase::Tiptoe { events: 0 }
        ) {
            wait_for_hooks();
        }
        Ok(match case {
            CountingCase::Off => Counting::Off,
            CountingCase::System => {
                Counting::Sets(vec![set(2, &PERFS, &CountTarget::Cpus(Vec::new()))?])
            }
            CountingCase::Perf {
                events,
                with_system,
            } => Counting::Sets(sets(events, with_system, folder, cgroups)?),
            CountingCase::Bpftrace => bpftrace()?,
            CountingCase::Tiptoe { events } => tiptoe(events, false, folder)?,
            CountingCase::PerCpu => tiptoe(0, true, folder)?,
            CountingCase::PerfOfProcesses => {
                Counting::Sets(vec![set(4, &PERFS, &children(program)?)?])
            }
            CountingCase::TiptoeOfProcesses => {
                let tasks = ProcessTasks::load(&children(program)?)?;
                let mut tasks = Box::new(tasks.ok_or(Error::Missing)?);
                tasks.start()?;
                Counting::Processes(tasks)
            }
        })
    }

    /// Reads all counts. bpftrace's counts cannot be read.
    pub(super) fn read(&mut self) -> Result<(), Error> {
        match self {
            Counting::Off | Counting::Bpftrace(_) => {}
            Counting::Sets(sets) => {
                for set in sets {
                    set.read()?;
                }
            }
            Counting::Tiptoe { cgroups, read } => {
                cgroups.read()?;
                read.read()?;
            }
            Counting::Processes(tasks) => {
                tasks.read()?;
            }
        }
        Ok(())
    }

    pub(super) fn blind_ns(&self) -> Result<f64, Error> {
        let set = match self {
            Counting::Sets(sets) => &sets[0],
            Counting::Tiptoe { read, .. } => read,
            _ => return Err(Error::Missing),
        };
        let read = set.read()?;
        let clocks = read.first().map(Vec::as_slice).unwrap_or_default();
        let last = clocks.last().and_then(|(_, counts)| *counts);
        let last = last.ok_or(Error::Missing)?;
        Ok(last.time_enabled_ns as f64 - last.count as f64)
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        match self {
            Counting::Bpftrace(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            Counting::Sets(_) | Counting::Tiptoe { .. } => {
                *last_events() = Some(Instant::now());
            }
            Counting::Off | Counting::Processes(_) => {}
        }
    }
}

/// When perf's events were closed for the last time.
fn last_events() -> MutexGuard<'static, Option<Instant>> {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    LAST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until perf's events do not slow switches down any more: the kernel calls its hooks at switches for a second
/// after the last event was closed.
fn wait_for_hooks() {
    const HOOKS: Duration = Duration::from_millis(1100);
    if let Some(last) = *last_events() {
        std::thread::sleep(HOOKS.saturating_sub(last.elapsed()));
    }
}

fn children(program: u32) -> Result<CountTarget, Error> {
    let list = std::fs::read_to_string(format!("/proc/{program}/task/{program}/children"));
    let list = list.map_err(failed("looking for the program's processes"))?;
    let pids = list.split_whitespace().filter_map(|pid| pid.parse().ok());
    Ok(CountTarget::Processes(pids.collect()))
}

fn set(events: usize, names: &[&'static str], whom: &CountTarget) -> Result<CounterSet, Error> {
    let all = names.iter().cycle().take(events);
    let groups = all.flat_map(|name| counter_groups(name)).flatten();
    let groups: Vec<Vec<Counter<'_>>> = groups.map(|group| group.events().collect()).collect();
    let set = CounterSet::open(&groups, whom)?;
    set.enable()?;
    Ok(set)
}

fn sets(
    events: usize,
    with_system: bool,
    folder: &Folder,
    cgroups: usize,
) -> Result<Vec<CounterSet>, Error> {
    if !folder.is_perfs {
        return Err(Error::Missing);
    }
    let system = with_system.then_some(CountTarget::Cpus(Vec::new()));
    let parent = CountTarget::Cgroup(folder.path().to_owned());
    let children = (0..cgroups).map(|at| CountTarget::Cgroup(folder.child(at)));
    let all = system.into_iter().chain([parent]).chain(children);
    all.map(|whom| set(events, &PERFS, &whom)).collect()
}

fn tiptoe(events: usize, is_per_cpu: bool, folder: &Folder) -> Result<Counting, Error> {
    let read = set(events, &READ, &CountTarget::Cpus(Vec::new()))?;
    let wanted = ExtraCounts {
        per_cpu: is_per_cpu,
        ..ExtraCounts::default()
    };
    let mut cgroups = Cgroups::load(&read, wanted, &folder.tree, &folder.root)?;
    cgroups.start()?;
    Ok(Counting::Tiptoe {
        cgroups: Box::new(cgroups),
        read,
    })
}

fn bpftrace() -> Result<Counting, Error> {
    let mut child = Command::new("bpftrace")
        .args(["-q", "-e", SCRIPT])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::Missing,
            _ => Error::Io {
                what: "starting bpftrace",
                error,
            },
        })?;
    let output = child.stdout.take();
    let counting = Counting::Bpftrace(child);
    let mut line = String::new();
    if let Some(output) = output {
        let read = BufReader::new(output).read_line(&mut line);
        read.map_err(failed("waiting for bpftrace"))?;
    }
    match line.trim() {
        "on" => Ok(counting),
        _ => Err(Error::Unwatched),
    }
}
