//! Another way to count for labels (cgroups or scopes): at each switch, what groups of the system counted since the
//! last switch is charged to the label that ran and to the labels above it.

use alloc::vec::Vec;

use super::{Cpu, GroupOutcome, Outcome, Switch};
use crate::{Label, State, Times};

/// A CPU with groups of the system, and what is charged to each label.
#[derive(Clone, Debug)]
pub struct Charges<'a> {
    cpu: Cpu<'a>,
    /// A row for each label, with a charge for each group.
    charged: Vec<TimedCount>,
    last: Vec<TimedCount>,
}

#[derive(Clone, Copy, Debug, Default)]
struct TimedCount {
    count: u64,
    times: Times,
}

impl<'a> Charges<'a> {
    /// Returns a CPU at time 0, without charges.
    pub fn new(cpu: Cpu<'a>) -> Charges<'a> {
        let groups = cpu.ids.len();
        Charges {
            charged: alloc::vec![TimedCount::default(); groups * cpu.machine.tree.len()],
            last: alloc::vec![TimedCount::default(); groups],
            cpu,
        }
    }

    /// Runs as [`Cpu::run`] does.
    pub fn run(&mut self, switches: impl IntoIterator<Item = Switch>, end_ns: u64, seed: u64) {
        let (charged, last) = (&mut self.charged, &mut self.last);
        self.cpu
            .run_each(switches, end_ns, seed, |cpu| charge(cpu, charged, last));
    }

    /// Returns the groups' outcomes, then each label's.
    pub fn outcome(&self, labels: impl Iterator<Item = Label>) -> Outcome {
        let mut outcome = self.cpu.outcome();
        let count = outcome.groups.len();
        for label in labels {
            let first = label.0 as usize * count;
            let charged = self.charged.get(first..first + count);
            for (at, seen) in charged.unwrap_or_default().iter().enumerate() {
                outcome.groups.push(GroupOutcome {
                    times: seen.times,
                    blind_ns: 0,
                    in_error: outcome.groups[at].in_error,
                    count: seen.count,
                    work: self.cpu.work[label.0 as usize],
                });
            }
        }
        outcome
    }
}

fn charge(cpu: &Cpu<'_>, charged: &mut [TimedCount], last: &mut [TimedCount]) {
    let groups = last.len();
    for (at, ((id, event), last)) in cpu.ids.iter().zip(last).enumerate() {
        let pmu = cpu.context.pmu(id.pmu);
        let now = TimedCount {
            count: pmu.map_or(0, |pmu| pmu.count(*event)),
            times: match cpu.context.state(*id) {
                Some(State::Error) => Times::default(),
                _ => cpu.context.times(*id, cpu.now_ns).unwrap_or_default(),
            },
        };
        let more = Times {
            enabled_ns: now.times.enabled_ns.saturating_sub(last.times.enabled_ns),
            running_ns: now.times.running_ns.saturating_sub(last.times.running_ns),
        };
        for label in cpu.machine.tree.path(cpu.context.label()) {
            if let Some(seen) = charged.get_mut(label.0 as usize * groups + at) {
                seen.count += now.count.saturating_sub(last.count);
                seen.times += more;
            }
        }
        *last = now;
    }
}
