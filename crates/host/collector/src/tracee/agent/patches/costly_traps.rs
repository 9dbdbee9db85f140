//! Lets the kernel count functions into which no jump fits, if a uprobe costs less than a trap on this machine.
//!
//! A uprobe costs as much as a trap if the kernel must single-step the function's first instruction. A uprobe costs
//! far less if the kernel emulates that instruction, for example a `push`. The agent (tiptoe's library) sets the trap
//! if the kernel refuses the probe, or would not count hits by threads that are created later.

use tiptoe_event::Via;
use tiptoe_kernel::{Step, may_count_processes};
use tiptoe_price::TrapAlternatives;

use super::Arming;
use crate::error::Reason;
use crate::planner::{Follow, PatchPlan, PlannedSite};
use crate::resolve::Probe;
use crate::tracee::{Candidate, against, step_at};

/// Removes from the plan the probes that the kernel counts at a lower price, and returns them.
pub fn take(
    on: &Arming,
    probes: &mut Vec<Probe>,
    planned: &mut PatchPlan,
    lost: &[u64],
) -> Vec<Candidate> {
    let plan = on.plan;
    let is_allowed = plan.request.via == Via::Auto
        && plan.request.hit_split().is_none()
        && plan.against_kernel().is_none();
    if !is_allowed || on.process.presence.quiet.is_some() {
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

fn is_plain_trap(probe: &Probe, site: &PlannedSite) -> bool {
    // If the trap is at another address, a uprobe at the probe's address could be inside another patch.
    let is_there = site.site.address == probe.address();
    let counts = probe.follow == Follow::No && against(probe).is_none();
    site.is_trap() && is_there && counts
}

fn why(costs: &TrapAlternatives, step: Step) -> Reason {
    Reason::CostlyTrap {
        uprobe_ns: costs.kernel.of(step).ns,
        trap_ns: costs.trap.ns,
    }
}
