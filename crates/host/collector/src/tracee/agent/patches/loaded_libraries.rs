//! Patches libraries that a program loads while it is traced.

use tiptoe_sys::host::procfs::Mapping;
use tiptoe_wire::Site;

use super::install::LeftProbe;
use super::site_writes::install;
use super::{Arming, Patches, arenas};
use crate::error::Error;
use crate::module::Module;
use crate::planner::{self, PlannedSite};
use crate::resolve::Probe;

impl Patches {
    /// Arms hooks and probes in libraries. Returns the probes' sites, and the probes that the agent cannot take.
    pub fn arm_later(
        &mut self,
        on: &mut Arming,
        maps: &[Mapping],
        modules: &[Module],
        probes: &mut Vec<Probe>,
    ) -> Result<(Vec<Site>, Vec<LeftProbe>), Error> {
        let (process, link) = (on.process, on.link);
        let state = self.later.process_state(link, on.plan, maps);
        let planned = planner::plan(&state, modules, probes);
        let lost = arenas::map(process.target.process, link, &planned)?;
        self.later.callers = planned.callers_but(&lost);
        link.split_mappings(
            &planned.ranges_of_own_mappings(maps, |site| process.may_be_armed(site)),
        )?;
        let followed = probes.iter().filter(|probe| probe.follow.is_followed());
        self.later
            .ready_to_follow(link, followed.count(), &planned.unwinders)?;
        let hooks: Vec<&PlannedSite> = planned.hooks.iter().collect();
        install(link, &hooks, &lost, process.presence.quiet.as_ref())?;
        self.hooks
            .extend(hooks.iter().map(|hook| hook.site.address));
        let all = hooks.into_iter().chain(planned.probes.iter().flatten());
        self.later.note_sites(all, &lost);
        let sites = planned.probes.iter().flatten().map(|probe| probe.site);
        let sites = sites.collect();
        let left = self.install_probes(on, probes, planned.probes, &lost)?;
        Ok((sites, left))
    }
}
