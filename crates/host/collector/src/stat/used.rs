//! What the target used while it was counted: CPU time, and context switches.

use std::ops::Add;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use tiptoe_sys::host::Process;
use tiptoe_sys::host::procfs::switches_of_all;

use super::StatWhom;

/// CPU time and switches, summed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuUse {
    pub(super) cpu_ns: u64,
    pub(super) user_ns: u64,
    pub(super) sys_ns: u64,
    pub(super) switches: u64,
}

impl Add for CpuUse {
    type Output = CpuUse;

    fn add(self, other: CpuUse) -> CpuUse {
        CpuUse {
            cpu_ns: self.cpu_ns + other.cpu_ns,
            user_ns: self.user_ns + other.user_ns,
            sys_ns: self.sys_ns + other.sys_ns,
            switches: self.switches + other.switches,
        }
    }
}

/// Reads the sums at the beginning and at the end.
#[derive(Debug)]
pub(super) struct Meter {
    whom: StatWhom,
    /// Of the command, once it was reaped.
    children: CpuUse,
    of_command: Option<CpuUse>,
    /// For each process its CPU time and switches, first and last.
    of_pids: Vec<(Process, [(Duration, u64); 2])>,
    of_all: [u64; 2],
}

impl Meter {
    pub(super) fn new(whom: &StatWhom, has_command: bool) -> Meter {
        let pids = match whom {
            StatWhom::Pids(pids) => pids.as_slice(),
            _ => &[],
        };
        let processes = pids.iter().filter_map(|pid| Process::new(*pid).ok());
        Meter {
            whom: whom.clone(),
            children: children(),
            of_command: has_command.then(CpuUse::default),
            of_pids: processes
                .map(|process| (process, Default::default()))
                .collect(),
            of_all: [0; 2],
        }
    }

    /// Starts counting.
    pub(super) fn start(&mut self) {
        self.look();
        for (_, ends) in &mut self.of_pids {
            ends[0] = ends[1];
        }
        self.of_all[0] = self.of_all[1];
    }

    /// Reads again; the last reading of an ended process stays.
    pub(super) fn look(&mut self) {
        for (process, ends) in &mut self.of_pids {
            if let (Ok(time), Ok(switches)) = (process.cpu_time(), process.switches()) {
                ends[1] = (time, switches.max(ends[1].1));
            }
        }
        if self.whom == StatWhom::All {
            self.of_all[1] = switches_of_all().unwrap_or(self.of_all[1]);
        }
    }

    /// Notes that the command was reaped.
    pub(super) fn reaped(&mut self) {
        let (before, after) = (self.children, children());
        if let Some(used) = &mut self.of_command {
            *used = CpuUse {
                cpu_ns: after.cpu_ns.saturating_sub(before.cpu_ns),
                user_ns: after.user_ns.saturating_sub(before.user_ns),
                sys_ns: after.sys_ns.saturating_sub(before.sys_ns),
                switches: after.switches.saturating_sub(before.switches),
            };
        }
    }

    /// Returns the sums. User and system time are the command's; the rest is of what was counted.
    pub(super) fn used(&self) -> CpuUse {
        let command = self.of_command.unwrap_or_default();
        let (cpu_ns, switches) = match self.whom {
            StatWhom::Command => (command.cpu_ns, command.switches),
            StatWhom::All => (0, self.of_all[1].saturating_sub(self.of_all[0])),
            StatWhom::Pids(_) => self.of_pids.iter().fold((0, 0), |sum, (_, [first, last])| {
                let time = last.0.saturating_sub(first.0).as_nanos() as u64;
                (sum.0 + time, sum.1 + last.1.saturating_sub(first.1))
            }),
        };
        CpuUse {
            cpu_ns,
            switches,
            ..command
        }
    }
}

/// Returns what all reaped children have used.
fn children() -> CpuUse {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else {
        return CpuUse::default();
    };
    let ns = |time: nix::sys::time::TimeVal| {
        time.tv_sec().unsigned_abs() * 1_000_000_000 + time.tv_usec().unsigned_abs() * 1_000
    };
    let (user_ns, sys_ns) = (ns(usage.user_time()), ns(usage.system_time()));
    let switches = usage.voluntary_context_switches() + usage.involuntary_context_switches();
    CpuUse {
        cpu_ns: user_ns + sys_ns,
        user_ns,
        sys_ns,
        switches: switches.unsigned_abs(),
    }
}
