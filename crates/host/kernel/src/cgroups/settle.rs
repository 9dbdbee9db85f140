//! How tasks are charged with what they did until now.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aya::Ebpf;
use aya::programs::Program;
use tiptoe_sys::host::bpf::{MappedArray, run_on_cpu, run_over_all};

use crate::Error;
use crate::cpus::online_cpus;
use crate::programs::{array_fd, no_part};
use crate::refusal::bpf_refusal;

use super::LOAD;
use super::layout::{self, Checks, Round, Times};

/// How often a CPU is flushed again that is busy.
const TRIES: usize = 1000;
const ENXIO: i32 = 6;
/// How long the ends of tasks are waited for, and how often it is looked.
const LONGEST_END: Duration = Duration::from_secs(1);
const BETWEEN: Duration = Duration::from_millis(3);

/// Programs that charge all who run, or all who are there.
pub(super) const FLUSH: &str = "flush";
pub(super) const ASKED: &str = "asked";

/// A program that charges tasks when it is run.
#[derive(Debug)]
pub(super) enum Settle {
    /// On each CPU, which charges the task that it runs.
    Cpus(OwnedFd),
    /// Over all tasks, wherever they are.
    Tasks(Mutex<Tasks>),
}

/// What asks tasks, and what it knows of their ends.
#[derive(Debug)]
pub(super) struct Tasks {
    asked: OwnedFd,
    round: MappedArray,
    times: Times,
}

impl Settle {
    /// The one that an object has.
    pub(super) fn of(bpf: &Ebpf) -> Result<Settle, Error> {
        let failed = |error| bpf_refusal(LOAD, &error);
        let kept = |fd: BorrowedFd<'_>| {
            fd.try_clone_to_owned().map_err(|source| Error::Io {
                what: "keep a BPF program".into(),
                source,
            })
        };
        match (bpf.program(FLUSH), bpf.program(ASKED)) {
            (Some(Program::RawTracePoint(flush)), _) => {
                Ok(Settle::Cpus(kept(flush.fd().map_err(failed)?.as_fd())?))
            }
            (_, Some(Program::Iter(asked))) => {
                let round = MappedArray::new(array_fd(bpf, "rounds")?, layout::ROUND);
                let round = round.map_err(|source| Error::Io {
                    what: "map what is known of tasks".into(),
                    source,
                })?;
                let asked = kept(asked.fd().map_err(failed)?.as_fd())?;
                Ok(Settle::Tasks(Mutex::new(Tasks {
                    asked,
                    round,
                    times: Times::default(),
                })))
            }
            _ => Err(no_part(FLUSH)),
        }
    }

    /// Charges everybody with what they did until now.
    pub(super) fn now(&self) -> Result<(), Error> {
        match self {
            Settle::Cpus(flush) => flush_all(flush.as_fd()),
            Settle::Tasks(tasks) => held(tasks).ask(),
        }
    }

    /// The same at the end, when no more ends are noted to begin. Of tasks that were waited for nothing is seen until
    /// the kernel gives their memory back, a grace period of RCU later: what they did at the very end is charged then.
    /// Tells of how many it has not been, in time or at all.
    pub(super) fn last(&self) -> Result<u64, Error> {
        let Settle::Tasks(tasks) = self else {
            return self.now().map(|()| 0);
        };
        let mut tasks = held(tasks);
        let begun = Instant::now();
        loop {
            let before = tasks.round();
            tasks.ask()?;
            let now = tasks.round();
            // One that was seen, and has ended since, is counted once: by those of before.
            let known = before.ended + (now.seen_ending - before.seen_ending);
            let missing = now.ending.saturating_sub(known);
            if missing <= now.lost || begun.elapsed() > LONGEST_END {
                return Ok(missing.max(now.lost));
            }
            std::thread::sleep(BETWEEN);
        }
    }

    /// Adds what went wrong, and what it took, where tasks are asked; whether they are.
    pub(super) fn add(&self, checks: &mut Checks, times: &mut Times) -> bool {
        let Settle::Tasks(tasks) = self else {
            return false;
        };
        let tasks = held(tasks);
        *times = tasks.times;
        tasks.round().add(checks, times);
        true
    }
}

/// One round at a time. What was left by a panic elsewhere is as good as ever.
fn held(tasks: &Mutex<Tasks>) -> MutexGuard<'_, Tasks> {
    tasks.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tasks {
    fn ask(&mut self) -> Result<(), Error> {
        let begun = Instant::now();
        over_tasks(self.asked.as_fd())?;
        self.times.rounds += 1;
        self.times.rounds_ns += begun.elapsed().as_nanos() as u64;
        Ok(())
    }

    fn round(&self) -> Round {
        Round::read(|at| self.round.word(at))
    }
}

/// Runs a program over all tasks.
pub(super) fn over_tasks(program: BorrowedFd<'_>) -> Result<(), Error> {
    run_over_all(program).map_err(|source| Error::Io {
        what: "look at all tasks".into(),
        source,
    })
}

/// Has each CPU charge what it does at this moment.
fn flush_all(program: BorrowedFd<'_>) -> Result<(), Error> {
    for cpu in online_cpus()? {
        for _ in 0..TRIES {
            match run_on_cpu(program, cpu) {
                Ok(0) => break,
                Ok(_) => {}
                // It went offline meanwhile.
                Err(e) if e.raw_os_error() == Some(ENXIO) => break,
                Err(source) => {
                    return Err(Error::Io {
                        what: format!("read what runs on CPU {cpu}"),
                        source,
                    });
                }
            }
        }
    }
    Ok(())
}
