//! Leaves functions to the kernel into which no jump fits, if the kernel's uprobe costs less than a trap on this machine.
//!
//! A trap is a signal, whose handler moves the thread on. A uprobe is as dear as that if the kernel must single-step the
//! function's first instruction, and cheaper by far if it emulates the instruction, as it does a `push`. If the kernel
//! does not take a probe, or counts only threads that exist already, the agent sets the trap.

use tiptoe_event::Via;
use tiptoe_kernel::{Step, may_count_processes};
use tiptoe_patch::Strategy;
use tiptoe_price::TrapAlternatives;

use super::install::not_patched;
use super::kernel::{Candidate, against, step_at};
use super::{Plan, Tracee};
use crate::error::{Error, Reason};
use crate::planner::{self, Follow, PlannedSite};
use crate::resolve::Probe;

impl Tracee {
    /// Removes the probes from the plan that the kernel counts at a lower price, and returns them.
    pub(super) fn take_costly_traps(
        &self,
        plan: &Plan,
        probes: &mut Vec<Probe>,
        planned: &mut planner::PatchPlan,
        lost: &[u64],
    ) -> Vec<Candidate> {
        let is_allowed = plan.request.via == Via::Auto
            && plan.request.hit_split().is_none()
            && plan.against_kernel().is_none();
        if !is_allowed || self.presence.quiet.is_some() {
            return Vec::new();
        }
        let is_trap = |(probe, site): &(&Probe, &Result<PlannedSite, Reason>)| match site {
            Ok(site) => site.has_room(lost) && is_plain_trap(probe, site),
            Err(_) => false,
        };
        let mut pairs = probes.iter().zip(&planned.probes);
        if !pairs.any(|pair| is_trap(&pair)) || !may_count_processes() {
            return Vec::new();
        }
        let Some(costs) = plan.fetch_trap_alternatives() else {
            return Vec::new();
        };
        let mut costly = Vec::new();
        let pairs: Vec<_> = probes.drain(..).zip(planned.probes.drain(..)).collect();
        for (probe, site) in pairs {
            let is_costly = is_trap(&(&probe, &site)) && costs.kernel_is_cheaper(step_at(&probe));
            match site {
                Ok(trap) if is_costly => costly.push(Candidate {
                    why: Some(why(&costs, step_at(&probe))),
                    probe,
                    trap: Some(trap),
                }),
                site => {
                    probes.push(probe);
                    planned.probes.push(site);
                }
            }
        }
        costly
    }

    /// Sets the traps of probes that the kernel did not take.
    pub(super) fn set_traps(&mut self, traps: Vec<(Probe, PlannedSite)>) -> Result<(), Error> {
        if traps.is_empty() {
            return Ok(());
        }
        let Some(link) = self.target.link.take() else {
            return Ok(());
        };
        let (mut probes, sites): (Vec<Probe>, Vec<PlannedSite>) = traps.into_iter().unzip();
        self.note_sites(sites.iter(), &[]);
        let sites = sites.into_iter().map(Ok).collect();
        let left = self.install_probes(&link, &mut probes, sites, &[]);
        self.target.link = Some(link);
        let left = left?.into_iter();
        self.coverage
            .refuse(left.map(|(probe, why)| not_patched(probe, why)));
        Ok(())
    }
}

/// Returns whether a probe would get a trap that does nothing but count.
fn is_plain_trap(probe: &Probe, site: &PlannedSite) -> bool {
    // At another address, the probe of the kernel could be inside another patch.
    let is_there = site.site.address == probe.address();
    let counts = probe.follow == Follow::No && against(probe).is_none();
    site.strategy == Strategy::Trap && is_there && counts
}

/// Returns why the kernel counts.
fn why(costs: &TrapAlternatives, step: Step) -> Reason {
    Reason::CostlyTrap {
        uprobe_ns: costs.kernel.of(step).ns,
        trap_ns: costs.trap.ns,
    }
}
