//! Ways to have four variables watched, in all threads of a process.

use std::time::Instant;

use tiptoe_kernel::Watchpoints;
use tiptoe_kernel::watchpoints::{WatchWanted, Watchpoint};
use tiptoe_sys::host::perf::{Access, Breakpoint, On, PerfEvent};
use tiptoe_sys::host::{Process, limits};

use crate::error::Error;
use crate::workshop::{Program, Workshop, failed};

/// Which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// An event of each CPU, as `tiptoe watch` does it, with its BPF program.
    CpuWide,
    /// An event of each thread, which threads that it starts later inherit.
    PerTask,
    /// All threads are stopped, and get the registers that a debugger would set.
    Ptrace,
}

impl Way {
    pub(super) fn name(self) -> &'static str {
        match self {
            Way::CpuWide => "cpu_wide",
            Way::PerTask => "per_task",
            Way::Ptrace => "ptrace",
        }
    }
}

/// What goes on as long as this is held.
#[expect(dead_code, reason = "only held")]
pub(super) enum Held {
    Wide(Box<Watchpoints>),
    Tasks(Vec<PerfEvent>),
    Tracer(Program),
}

/// So many words of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words {
    pub(super) pid: u32,
    pub(super) address: u64,
    pub(super) count: u64,
}

impl Words {
    fn points(self) -> impl Iterator<Item = Breakpoint> {
        (0..self.count).map(move |word| Breakpoint {
            address: self.address + 8 * word,
            len: 8,
            access: Access::Write,
        })
    }

    /// Has them watched; for how many milliseconds that took.
    pub(super) fn arm(self, way: Way, workshop: &Workshop) -> Result<(f64, Held), Error> {
        match way {
            Way::CpuWide => timed(|| self.cpu_wide()),
            Way::PerTask => {
                let threads = Process::new(self.pid)?.threads()?.len() as u64;
                limits::reserve_open_files(threads * self.count)?;
                timed(|| self.per_task())
            }
            Way::Ptrace => {
                let mut tracer = workshop.start(None)?;
                let ms = tracer.ask(&format!("trace {} {}", self.pid, self.address))?;
                match ms < 0.0 {
                    true => Err(Error::Unwatched),
                    false => Ok((ms, Held::Tracer(tracer))),
                }
            }
        }
    }

    fn cpu_wide(self) -> Result<Held, Error> {
        let wanted = WatchWanted {
            pid: self.pid,
            by_thread: false,
            only_changed: false,
            conditions: Vec::new(),
            allowed_ns: None,
        };
        let points = self.points().map(|at| Watchpoint {
            at,
            is_signed: false,
            value: 0,
        });
        let mut set = Watchpoints::open(&wanted, &points.collect::<Vec<_>>())?;
        set.start()?;
        Ok(Held::Wide(Box::new(set)))
    }

    fn per_task(self) -> Result<Held, Error> {
        let mut events = Vec::new();
        for thread in Process::new(self.pid)?.threads()? {
            for at in self.points() {
                let event = PerfEvent::count_accesses(&at, On::Thread(thread), true);
                events.push(event.map_err(failed("opening a breakpoint"))?);
            }
        }
        Ok(Held::Tasks(events))
    }
}

fn timed(arm: impl FnOnce() -> Result<Held, Error>) -> Result<(f64, Held), Error> {
    let begun = Instant::now();
    let held = arm()?;
    Ok((begun.elapsed().as_secs_f64() * 1e3, held))
}
