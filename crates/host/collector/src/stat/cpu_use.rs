//! The CPU time and context switches of the target while it was counted.

use nix::sys::resource::UsageWho::RUSAGE_CHILDREN;
use tiptoe_price::own::CpuUse;
use tiptoe_sys::host::procfs::switches_of_all;

use crate::drive::Targets;
use crate::request::RequestTarget;

#[derive(Default)]
pub(super) struct Meter {
    children: CpuUse,
    /// The first and last reading of the switches, for each counted process or for the system.
    switches: Vec<[u64; 2]>,
}

impl Meter {
    pub(super) fn start(targets: &Targets) -> Meter {
        let first = switches(targets).into_iter();
        Meter {
            children: CpuUse::fetch(RUSAGE_CHILDREN),
            switches: first.map(|now| [now.unwrap_or(0); 2]).collect(),
        }
    }

    /// An ended process keeps its last reading.
    pub(super) fn look(&mut self, targets: &Targets) {
        for ([_, last], now) in self.switches.iter_mut().zip(switches(targets)) {
            *last = now.map_or(*last, |now| now.max(*last));
        }
    }

    /// User and system time are those of the command, which must have been reaped.
    pub(super) fn used(&self, whom: &RequestTarget) -> CpuUse {
        let (before, after) = (self.children, CpuUse::fetch(RUSAGE_CHILDREN));
        let switches = self.switches.iter();
        CpuUse {
            user_ns: after.user_ns.saturating_sub(before.user_ns),
            sys_ns: after.sys_ns.saturating_sub(before.sys_ns),
            switches: match whom {
                RequestTarget::Command(_) => after.switches.saturating_sub(before.switches),
                _ => switches.map(|[first, last]| last - first).sum(),
            },
        }
    }
}

fn switches(targets: &Targets) -> Vec<Option<u64>> {
    match targets.alone.as_slice() {
        [] => vec![switches_of_all().ok()],
        counted => {
            let each = counted.iter();
            each.map(|target| target.process.switches().ok()).collect()
        }
    }
}
