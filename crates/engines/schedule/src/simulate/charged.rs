//! The other way to count for labels: one set of groups for the system, which no switch between labels touches. What
//! these count is read at each switch, and charged to the label that ran and to those that it is in.

use alloc::vec::Vec;

use super::{Cpu, Group, Outcome, Switch};
use crate::{Label, State, Times};

/// One CPU whose groups are the system's, and what each label was charged.
#[derive(Clone, Debug)]
pub struct Charges<'a> {
    cpu: Cpu<'a>,
    /// By label, then by group.
    charged: Vec<Seen>,
    /// What the groups said when they were read last.
    last: Vec<Seen>,
}

/// What was counted, and for how long.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    count: u64,
    times: Times,
}

impl<'a> Charges<'a> {
    /// Of a CPU at the beginning.
    pub fn new(cpu: Cpu<'a>) -> Charges<'a> {
        let groups = cpu.ids.len();
        Charges {
            charged: alloc::vec![Seen::default(); groups * cpu.machine.tree.len()],
            last: alloc::vec![Seen::default(); groups],
            cpu,
        }
    }

    /// As [`Cpu::run`].
    pub fn run(&mut self, switches: impl IntoIterator<Item = Switch>, end_ns: u64, seed: u64) {
        let (charged, last) = (&mut self.charged, &mut self.last);
        self.cpu
            .run_each(switches, end_ns, seed, |cpu| charge(cpu, charged, last));
    }

    /// The groups' own fates, then those for each of these labels.
    pub fn outcome(&self, labels: impl Iterator<Item = Label>) -> Outcome {
        let mut outcome = self.cpu.outcome();
        let count = outcome.groups.len();
        for label in labels {
            let first = label.0 as usize * count;
            let charged = self.charged.get(first..first + count);
            for (at, seen) in charged.unwrap_or_default().iter().enumerate() {
                outcome.groups.push(Group {
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

/// The label that runs is about to be left, or all is over.
fn charge(cpu: &Cpu<'_>, charged: &mut [Seen], last: &mut [Seen]) {
    let groups = last.len();
    for (at, ((id, event), last)) in cpu.ids.iter().zip(last).enumerate() {
        let pmu = cpu.context.pmu(id.pmu);
        let now = Seen {
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
