//! Installs planned probes, and adds their counters.

use tiptoe_sys::host::attach_progress;

use super::site_writes::install;
use super::{AgentCounter, Arming, Patches};
use crate::error::{Error, Reason};
use crate::planner::{Follow, PlannedSite};
use crate::probe_slots::SlotKey;
use crate::resolve::Probe;
use crate::tracee::{Candidate, Counter, Coverage};

/// The most sites (places to patch) between two checks whether the user interrupted the attach.
const PART: usize = 4096;

impl Patches {
    /// Returns the probes that the agent (tiptoe's library) cannot take.
    pub fn install_probes(
        &mut self,
        on: &mut Arming,
        probes: &mut Vec<Probe>,
        planned: Vec<Result<PlannedSite, Reason>>,
        lost: &[u64],
    ) -> Result<Vec<Candidate>, Error> {
        let good: Vec<&PlannedSite> = planned.iter().flatten().collect();
        let mut outcomes = install_in_parts(on, &good, lost)?.into_iter();
        let mut left = Vec::new();
        for (probe, plan) in probes.drain(..).zip(&planned) {
            let reason = match plan {
                Err(reason) => Some(reason.clone()),
                Ok(_) => outcomes.next().flatten(),
            };
            match (plan, reason) {
                (Ok(plan), None) => {
                    self.count_at(plan, as_planned(plan, probe, on.coverage));
                }
                (_, reason) => left.push(Candidate::new(probe, reason)),
            }
        }
        let all = left.len();
        left.retain(|left| !matches!(left.why, Some(Reason::BrokenOff)));
        on.coverage.unattached += all - left.len();
        for left in &mut left {
            // If another probe is in the way, the reason must name that probe. The planner knows only addresses.
            left.why = self.displaced_by(&left.probe).or(left.why.take());
        }
        Ok(left)
    }

    /// If a probe's slot already has a counter, that counter continues.
    fn count_at(&mut self, plan: &PlannedSite, probe: Probe) {
        let slot = plan.site.slot;
        let key = SlotKey::of(&probe);
        let mut before = self.counters.iter_mut();
        if let Some(before) = before.find(|one| one.site.slot == slot)
            && self.later.probe_slots.slot(&key) == Some(slot)
        {
            before.site = plan.site;
            return;
        }
        self.later.probe_slots.insert(key, slot);
        if probe.follow == Follow::Record && probe.offset == 0 {
            self.unread.push((self.counters.len(), probe.clone()));
        }
        let all = match probe.follow {
            Follow::Gate => &mut self.gates,
            _ => &mut self.counters,
        };
        all.push(AgentCounter {
            counter: Counter {
                event: probe.event,
                names: probe.names,
                notes: probe.notes,
            },
            site: plan.site,
            file: probe.object.key,
            trap: plan.is_trap(),
            follow: probe.follow,
            parameters: None,
        });
    }
}

fn install_in_parts(
    on: &Arming,
    planned: &[&PlannedSite],
    lost: &[u64],
) -> Result<Vec<Option<Reason>>, Error> {
    let mut order: Vec<usize> = (0..planned.len()).collect();
    order.sort_by_key(|index| planned[*index].site.address);
    let quiet = on.process.presence.quiet.as_ref();
    let part = match quiet {
        // All threads are stopped for each part, so there is only one part.
        Some(_) => planned.len().max(1),
        None => PART,
    };
    let mut reasons = vec![Some(Reason::BrokenOff); planned.len()];
    for part in order.chunks(part) {
        if attach_progress::is_broken_off() {
            break;
        }
        let sites: Vec<&PlannedSite> = part.iter().map(|index| planned[*index]).collect();
        let outcomes = install(on.link, &sites, lost, quiet)?;
        for (index, outcome) in part.iter().zip(outcomes) {
            reasons[*index] = outcome;
        }
        on.process.note_begun();
    }
    Ok(reasons)
}

/// If a probe's calls cannot be timed, the probe counts only entries, and a refusal says so.
fn as_planned(plan: &PlannedSite, probe: Probe, coverage: &mut Coverage) -> Probe {
    let Some(why) = &plan.untimed else {
        return probe;
    };
    let reason = Reason::EntriesOnly(Box::new(why.clone()));
    coverage.refused.push((probe.event.clone(), reason));
    probe.of_entries()
}
