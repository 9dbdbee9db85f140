//! Adds to cgroups' counts what running tasks did up to now (*charges* the tasks).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aya::Ebpf;
use tiptoe_sys::host::bpf::{MappedArray, run_on_cpu, run_over_all};

use crate::Error;
use crate::cpus::online_cpus;
use crate::kernel_probe::errno::ENXIO;
use crate::programs::{array_fd, program_fd};

use super::LOAD;
use super::cgroups_layout::{self, CountFaults, RoundCounts, Times};

const TRIES: usize = 1000;
/// The longest wait for tasks' ends, and the pause between rounds (runs over all tasks).
const LONGEST_END: Duration = Duration::from_secs(1);
const BETWEEN: Duration = Duration::from_millis(3);

pub(super) const FLUSH: &str = "flush";
pub(crate) const ALL_TASKS: &str = "asked";

#[derive(Debug)]
pub(crate) enum Flush {
    /// A program that charges the task that it interrupts.
    Cpus(OwnedFd),
    Tasks(Mutex<TaskRounds>),
}

#[derive(Debug)]
pub(crate) struct TaskRounds {
    over_tasks: OwnedFd,
    round: MappedArray,
    times: Times,
}

impl Flush {
    pub(crate) fn of(bpf: &Ebpf) -> Result<Flush, Error> {
        let kept = |program| {
            let kept = program_fd(bpf, program, LOAD)?.try_clone_to_owned();
            kept.map_err(Error::io("keep a BPF program"))
        };
        if bpf.program(FLUSH).is_some() {
            return Ok(Flush::Cpus(kept(FLUSH)?));
        }
        let round = MappedArray::new(array_fd(bpf, "rounds")?, cgroups_layout::ROUND);
        Ok(Flush::Tasks(Mutex::new(TaskRounds {
            round: round.map_err(Error::io("map the table of tasks"))?,
            over_tasks: kept(ALL_TASKS)?,
            times: Times::default(),
        })))
    }

    pub(crate) fn now(&self) -> Result<(), Error> {
        match self {
            Flush::Cpus(flush) => flush_all(flush.as_fd()),
            Flush::Tasks(tasks) => lock_rounds(tasks).ask(),
        }
    }

    /// Charges all tasks a last time, after `ending` was detached. A round misses reaped tasks, which the BPF program
    /// `ended` charges an RCU grace period later, so this waits. Returns how many tasks were not charged in time.
    pub(crate) fn last(&self) -> Result<u64, Error> {
        let Flush::Tasks(tasks) = self else {
            return self.now().map(|()| 0);
        };
        let mut tasks = lock_rounds(tasks);
        let begun = Instant::now();
        loop {
            let before = tasks.round();
            tasks.ask()?;
            let now = tasks.round();
            // `ended` must be read before the round, because a task that the round saw, and that ended afterwards,
            // would count twice.
            let known = before.ended + (now.seen_ending - before.seen_ending);
            let missing = now.ending.saturating_sub(known);
            if missing <= now.lost || begun.elapsed() > LONGEST_END {
                return Ok(missing.max(now.lost));
            }
            std::thread::sleep(BETWEEN);
        }
    }

    /// If counting is by tasks, adds faults to `checks`, sets `times`, and returns `true`.
    pub(crate) fn add(&self, checks: &mut CountFaults, times: &mut Times) -> bool {
        let Flush::Tasks(tasks) = self else {
            return false;
        };
        let tasks = lock_rounds(tasks);
        *times = tasks.times;
        tasks.round().add(checks, times);
        true
    }
}

/// A panic leaves the rounds valid, so poison is ignored.
fn lock_rounds(tasks: &Mutex<TaskRounds>) -> MutexGuard<'_, TaskRounds> {
    tasks.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TaskRounds {
    fn ask(&mut self) -> Result<(), Error> {
        let begun = Instant::now();
        over_tasks(self.over_tasks.as_fd())?;
        self.times.rounds += 1;
        self.times.rounds_ns += begun.elapsed().as_nanos() as u64;
        Ok(())
    }

    fn round(&self) -> RoundCounts {
        zerocopy::transmute!(self.round.words::<{ cgroups_layout::ROUND }>(0))
    }
}

pub(super) fn over_tasks(program: BorrowedFd<'_>) -> Result<(), Error> {
    run_over_all(program).map_err(Error::io("iterate over all tasks"))
}

fn flush_all(program: BorrowedFd<'_>) -> Result<(), Error> {
    for cpu in online_cpus()? {
        for _ in 0..TRIES {
            match run_on_cpu(program, cpu) {
                Ok(0) => break,
                Ok(_) => {}
                // The CPU went offline.
                Err(e) if e.raw_os_error() == Some(ENXIO) => break,
                Err(e) => return Err(Error::io(format!("read the current task of CPU {cpu}"))(e)),
            }
        }
    }
    Ok(())
}
