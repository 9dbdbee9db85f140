//! The ways to watch four variables in all threads of a process.

use std::time::Instant;

use tiptoe_kernel::Watchpoints;
use tiptoe_kernel::watchpoints::{Form, WatchWanted, Watchpoint};
use tiptoe_sys::host::perf::{Access, Breakpoint};

use crate::error::Error;
use crate::workshop::{Program, Workshop};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArmMethod {
    /// Events on each CPU, with a BPF program, as in `tiptoe watch`.
    CpuWide,
    /// Events of each thread, which new threads inherit, as with `--via kernel-task`.
    PerTask,
    /// Another process stops all threads and sets their debug registers, as debuggers do.
    Ptrace,
}

impl ArmMethod {
    pub(super) fn name(self) -> &'static str {
        match self {
            ArmMethod::CpuWide => "cpu_wide",
            ArmMethod::PerTask => "per_task",
            ArmMethod::Ptrace => "ptrace",
        }
    }
}

#[expect(dead_code, reason = "only held")]
pub(super) enum ArmedWatch {
    Watch(Box<Watchpoints>),
    Tracer(Program),
}

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

    /// The first result is how many ms this took.
    pub(super) fn arm(
        self,
        way: ArmMethod,
        workshop: &Workshop,
    ) -> Result<(f64, ArmedWatch), Error> {
        match way {
            ArmMethod::CpuWide => timed(|| self.watch(Form::Cpus)),
            ArmMethod::PerTask => timed(|| self.watch(Form::Tasks)),
            ArmMethod::Ptrace => {
                let mut tracer = workshop.start(None)?;
                let ms = tracer.ask(&format!("trace {} {}", self.pid, self.address))?;
                match ms < 0.0 {
                    true => Err(Error::Unwatched),
                    false => Ok((ms, ArmedWatch::Tracer(tracer))),
                }
            }
        }
    }

    fn watch(self, form: Form) -> Result<ArmedWatch, Error> {
        let wanted = WatchWanted {
            pid: self.pid,
            by_thread: false,
            only_changed: false,
            one_by_one: false,
            conditions: Vec::new(),
            allowed_ns: None,
            form,
            all_slots: true,
        };
        let points = self.points().map(|at| Watchpoint {
            name: format!("{:#x}", at.address),
            is_pinned: true,
            at,
            is_signed: false,
        });
        let all: Vec<usize> = (0..self.count as usize).collect();
        let mut set = Watchpoints::open(&wanted, &points.collect::<Vec<_>>(), &all)?;
        set.start()?;
        Ok(ArmedWatch::Watch(Box::new(set)))
    }
}

fn timed(arm: impl FnOnce() -> Result<ArmedWatch, Error>) -> Result<(f64, ArmedWatch), Error> {
    let begun = Instant::now();
    let held = arm()?;
    Ok((begun.elapsed().as_secs_f64() * 1e3, held))
}
