//! What the target used while it was counted: CPU time, and context switches.

use std::ops::Add;

use nix::sys::resource::{UsageWho, getrusage};
use tiptoe_attach::Attached;
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
pub(super) struct Meter {
    whom: StatWhom,
    /// Of the command, once it was reaped.
    children: CpuUse,
    of_command: Option<CpuUse>,
    /// For each running process its switches, first and last.
    targets: Vec<(Attached, [u64; 2])>,
    of_all: [u64; 2],
}

impl Meter {
    pub(super) fn new(whom: &StatWhom, targets: Vec<Attached>, has_command: bool) -> Meter {
        Meter {
            whom: whom.clone(),
            children: children(),
            of_command: has_command.then(CpuUse::default),
            targets: targets.into_iter().map(|one| (one, [0; 2])).collect(),
            of_all: [0; 2],
        }
    }

    /// Starts counting.
    pub(super) fn start(&mut self) {
        self.look();
        for (target, switches) in &mut self.targets {
            target.mark();
            switches[0] = switches[1];
        }
        self.of_all[0] = self.of_all[1];
    }

    /// Reads again; the last reading of an ended process stays.
    pub(super) fn look(&mut self) {
        for (target, [_, last]) in &mut self.targets {
            target.fetch_cpu_time();
            *last = target
                .process
                .switches()
                .map_or(*last, |now| now.max(*last));
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
            StatWhom::Pids(_) => {
                self.targets
                    .iter()
                    .fold((0, 0), |sum, (target, [first, last])| {
                        let time = target.cpu_time().as_nanos() as u64;
                        (sum.0 + time, sum.1 + last.saturating_sub(*first))
                    })
            }
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
