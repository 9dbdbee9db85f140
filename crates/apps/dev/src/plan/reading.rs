//! Simulates how `tiptoe stat --for-each-cgroup` counts: with one set of events on each CPU, which each switch between
//! cgroups reads.

use tiptoe_collector::MOST_READ;
use tiptoe_schedule::simulate::{Charges, GroupOutcome as Fate, GroupRequest, Machine, Outcome};
use tiptoe_schedule::{Policy, Target};

use super::rows::{EventRow, PolicyRow};
use super::simulate::{Setting, wanted};
use crate::failure::Failure;

impl Setting<'_> {
    /// Returns the rows of the events and of the cost of reading; `None` without cgroups, or with more events than
    /// `stat` can read.
    pub(super) fn read(
        &self,
        machine: &Machine<'_>,
        cpus: usize,
        run: impl Fn(&mut Charges<'_>, usize),
    ) -> Result<Option<(Vec<EventRow>, PolicyRow)>, Failure> {
        let events = || self.groups.iter().flat_map(|group| &group.events);
        let reads = events().filter(|event| event.is_read).count();
        if self.cgroups.counted.is_empty() || reads > MOST_READ {
            return Ok(None);
        }
        let groups = self.groups.iter();
        let groups: Vec<GroupRequest> = groups.map(|group| wanted(Target::System, group)).collect();
        let machine = Machine {
            groups: &groups,
            ..machine.clone()
        };
        let labels = || self.cgroups.counted.iter().map(|(_, label)| *label);
        let cpu = machine.cpu(Policy::Changed).map_err(Failure::NeverCounts)?;
        let mut all = Outcome::default();
        for at in 0..cpus {
            let mut charges = Charges::new(cpu.clone());
            run(&mut charges, at);
            all += &charges.outcome(labels());
        }
        let rows = self.read_rows(&all);
        let reads = reads as u64;
        let row = PolicyRow::new("read", &all, groups.len(), self.operation_ns);
        let row = row.with_reads(reads, self.switch_ns(), &all);
        Ok(Some((rows, row)))
    }

    /// Returns how much longer a switch takes: 0 if the kernel counts all events for each task.
    pub(super) fn switch_ns(&self) -> u64 {
        let events = || self.groups.iter().flat_map(|group| &group.events);
        let reads = events().filter(|event| event.is_read).count();
        match events().any(|event| event.is_at_switches) {
            true => self.charge_ns + reads as u64 * self.read_ns,
            false => 0,
        }
    }

    fn read_rows(&self, outcome: &Outcome) -> Vec<EventRow> {
        let count = self.groups.len();
        let (system, cgroups) = outcome.groups.split_at(count.min(outcome.groups.len()));
        let names = self.cgroups.counted.iter().map(|(name, _)| name.as_str());
        let cgroups: Vec<(&str, &[Fate])> = names.zip(cgroups.chunks(count.max(1))).collect();
        let system = if self.is_of_system { system } else { &[] };
        self.rows_of(system, &cgroups, |event, fate| match event.is_read {
            true => fate,
            false => exact(fate),
        })
    }
}

/// Returns the result of an event that the kernel counts for each task: exact, even if the event's group has no slot.
fn exact(fate: Fate) -> Fate {
    let mut exact = Fate {
        count: fate.work,
        in_error: false,
        ..fate
    };
    exact.times.running_ns = exact.times.enabled_ns;
    exact
}
