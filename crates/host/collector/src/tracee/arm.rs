//! Puts hooks and probes into a process that has the agent (tiptoe's library).

use super::{
    Arming, Candidate, FirstHooks, Plan, PlanState, Tracee, costly_traps, described_code,
    find_ports, ifuncs,
};
use crate::error::Error;
use crate::module::Module;
use crate::resolve::Probe;

impl Tracee {
    /// Returns the probes that the kernel should count.
    pub(super) fn arm(
        &mut self,
        plan: &Plan,
        modules: &[Module],
        probes: &mut Vec<Probe>,
        ifuncs: Vec<Probe>,
    ) -> Result<Vec<Candidate>, Error> {
        let hello = self.process.greet()?;
        let patches = &mut self.agent.patches;
        patches.later = PlanState::first(&hello, self.process.known_sites(plan)?)?;
        let refused = &mut self.coverage.refused;
        let chosen = ifuncs::chosen(self.process.link()?, modules, ifuncs, refused)?;
        ifuncs::merge(probes, chosen);
        let mut maps = self.process.target.process.maps()?;
        let record = self.process.loader_record(plan, modules);
        find_ports(&self.process, plan, modules)?;
        let followed = probes.iter().filter(|probe| probe.follow.is_followed());
        let followed = followed.count();
        let first = FirstHooks {
            follows: followed > 0 || (record.is_some() && plan.follow().is_followed()),
            changed: record.map(|(_, changed)| changed),
            hold: self.process.lock_to_hold(plan, modules, &maps)?,
        };
        let on = Arming::of(&self.process, plan, &mut self.coverage)?;
        let (mut planned, lost) = patches.plan_first(&on, first, modules, probes, &mut maps)?;
        let masks = self.process.own_signals(hello.tls, &maps, modules)?;
        let on = &mut Arming::of(&self.process, plan, &mut self.coverage)?;
        let own_mappings =
            planned.ranges_of_own_mappings(&maps, |site| on.process.may_be_armed(site));
        on.link.split_mappings(&own_mappings)?;
        let unwinders = &planned.unwinders;
        patches
            .later
            .ready_to_follow(on.link, followed, unwinders)?;
        if first.follows {
            on.link.describe(&described_code::of(modules))?;
        }
        let armed = patches.arm_hooks(on, &masks, &planned, &lost)?;
        let costly = costly_traps::take(on, probes, &mut planned, &lost);
        let all = planned.hooks.iter().chain(planned.probes.iter().flatten());
        patches.later.note_sites(all, &lost);
        if plan.locks() {
            self.locks.walk_over(on.link, modules);
            let outcomes = patches.arm_lock_sites(on, &planned.locks.sites, &lost)?;
            let locks = std::mem::take(&mut planned.locks);
            self.locks
                .watch_sites(on, locks, outcomes, armed, modules)?;
        }
        // The agent must watch the loader before probes are installed. Otherwise a library loaded in between would
        // get no probes.
        if let Some((record, _)) = record {
            patches.later.watch(on.link, record, modules)?;
        }
        let left = patches.install_probes(on, probes, planned.probes, &lost)?;
        let left = patches.without_gates(left, on.coverage)?;
        Ok(left.into_iter().chain(costly).collect())
    }
}
