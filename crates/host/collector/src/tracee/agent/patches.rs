//! What the agent (tiptoe's library) has patched in a process, and the counters of the patches.

use std::ops::Range;

use tiptoe_attach::inject::Masks;
use tiptoe_attach::link::Link;
use tiptoe_sys::host::limits::address_space;
use tiptoe_sys::host::procfs::{Mapping, Process};
use tiptoe_wire::{Site, arena};

use crate::error::{Error, Reason};
use crate::module::{FileKey, Module};
use crate::planner::{self, Follow, PatchPlan, PlannedSite, ProcessState};
use crate::resolve::Probe;
use crate::tracee::{Candidate, Counter, Coverage, Plan, Source, TracedProcess};
use crate::tracee::{check_broken_off, refusals};
use site_writes::{addresses_of, install};

pub mod costly_traps;
pub mod described_code;
mod guards;
pub mod ifuncs;
mod install;
mod moved_code;
mod plan_state;
mod site_writes;

pub use plan_state::{PlanState, library};

const TRIES: u32 = 5;

#[derive(Default)]
pub struct Patches {
    pub counters: Vec<AgentCounter>,
    /// The functions of `--under`.
    pub gates: Vec<AgentCounter>,
    pub hooks: Vec<u64>,
    pub later: PlanState,
    /// Probes whose functions' parameters are not looked up yet, with the indexes of their counters.
    unread: Vec<(usize, Probe)>,
}

pub struct AgentCounter {
    pub counter: Counter,
    pub site: Site,
    pub file: FileKey,
    /// Whether every hit raises SIGTRAP.
    pub trap: bool,
    pub follow: Follow,
    /// How many registers hold the function's parameters, if calls are recorded and the number is known.
    pub parameters: Option<u8>,
}

impl AgentCounter {
    pub fn source(&self) -> Source {
        let (trap, follow) = (self.trap, self.follow);
        Source::Agent { trap, follow }
    }
}

pub struct Arming<'a> {
    pub plan: &'a Plan<'a>,
    pub process: &'a TracedProcess,
    pub link: &'a Link,
    pub coverage: &'a mut Coverage,
}

impl<'a> Arming<'a> {
    pub fn of(
        process: &'a TracedProcess,
        plan: &'a Plan<'a>,
        coverage: &'a mut Coverage,
    ) -> Result<Arming<'a>, Error> {
        Ok(Arming {
            plan,
            process,
            link: process.link()?,
            coverage,
        })
    }
}

#[derive(Clone, Copy)]
pub struct FirstHooks {
    pub follows: bool,
    pub changed: Option<u64>,
    pub hold: Option<u64>,
}

impl Patches {
    /// Plans the first patches, and maps their arenas, which hold the generated code (trampolines). If the program
    /// has mapped something there meanwhile, reads `maps` and plans again. Returns the plan, and the bases of arenas
    /// that could not be mapped.
    pub fn plan_first(
        &mut self,
        on: &Arming,
        first: FirstHooks,
        modules: &[Module],
        probes: &[Probe],
        maps: &mut Vec<Mapping>,
    ) -> Result<(PatchPlan, Vec<u64>), Error> {
        let process = on.process.target.process;
        let mut tries = 0;
        loop {
            let state = ProcessState {
                follows: first.follows,
                changed: first.changed,
                hold: first.hold,
                ..self.later.process_state(on.link, on.plan, maps)
            };
            let planned = planner::plan(&state, modules, probes);
            check_broken_off()?;
            let lost = map_arenas(process, on.link, &planned)?;
            tries += 1;
            if lost.is_empty() || tries == TRIES {
                self.later.callers = planned.callers_but(&lost);
                return Ok((planned, lost));
            }
            *maps = process.maps()?;
        }
    }

    /// Arms (writes the patches of) hooks and probes in libraries loaded later. Returns the probes' addresses, and
    /// the probes that the agent cannot take.
    pub fn arm_later(
        &mut self,
        on: &mut Arming,
        maps: &[Mapping],
        modules: &[Module],
        probes: &mut Vec<Probe>,
    ) -> Result<(Vec<u64>, Vec<Candidate>), Error> {
        let (process, link) = (on.process, on.link);
        let state = self.later.process_state(link, on.plan, maps);
        let planned = planner::plan(&state, modules, probes);
        let lost = map_arenas(process.target.process, link, &planned)?;
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
        let sites = planned.probes.iter().flatten();
        let addresses = sites.map(|planned| planned.site.address).collect();
        let left = self.install_probes(on, probes, planned.probes, &lost)?;
        Ok((addresses, left))
    }

    /// Arms all hooks, first those of `guards`.
    pub fn arm_hooks(
        &mut self,
        on: &Arming,
        masks: &Masks,
        planned: &PatchPlan,
        lost: &[u64],
    ) -> Result<Vec<u64>, Error> {
        let mut armed = guards::put_on(on.link, masks, planned, lost)?;
        let trapping = planned.hooks.iter().filter(|hook| !hook.site.is_guard());
        let trapping: Vec<&PlannedSite> = trapping.collect();
        let quiet = on.process.presence.quiet.as_ref();
        let outcomes = install(on.link, &trapping, lost, quiet)?;
        armed.extend(addresses_of(&trapping, outcomes));
        self.hooks = planned.hooks.iter().map(|hook| hook.site.address).collect();
        Ok(armed)
    }

    pub fn arm_lock_sites(
        &mut self,
        on: &Arming,
        planned: &[PlannedSite],
        lost: &[u64],
    ) -> Result<Vec<Option<Reason>>, Error> {
        let sites: Vec<&PlannedSite> = planned.iter().collect();
        let outcomes = install(on.link, &sites, lost, on.process.presence.quiet.as_ref())?;
        self.later.note_sites(planned.iter(), lost);
        Ok(outcomes)
    }

    /// Removes the functions of `--under` from the probes left to the kernel. Fails if the agent took none of these
    /// functions.
    pub fn without_gates(
        &self,
        left: Vec<Candidate>,
        coverage: &mut Coverage,
    ) -> Result<Vec<Candidate>, Error> {
        let is_gate = |left: &Candidate| left.probe.follow == Follow::Gate;
        let (gates, others): (Vec<_>, Vec<_>) = left.into_iter().partition(is_gate);
        let mut refusals = refusals(gates, &Reason::AgentCannot);
        if self.gates.is_empty()
            && let Some((event, why)) = refusals.next()
        {
            return Err(Error::NoGate { event, why });
        }
        coverage.refuse(refusals);
        Ok(others)
    }

    pub fn set_traps(
        &mut self,
        on: &mut Arming,
        traps: Vec<(Probe, PlannedSite)>,
    ) -> Result<(), Error> {
        let (mut probes, sites): (Vec<Probe>, Vec<PlannedSite>) = traps.into_iter().unzip();
        self.later.note_sites(sites.iter(), &[]);
        let sites = sites.into_iter().map(Ok).collect();
        let left = self.install_probes(on, &mut probes, sites, &[])?;
        on.coverage.refuse(refusals(left, &Reason::CannotPatch));
        Ok(())
    }

    /// Must not run while a thread in dlopen waits for tiptoe, because reading a debug file may take a second.
    pub fn read_parameters(&mut self) {
        for (index, probe) in self.unread.drain(..) {
            if let Some(counter) = self.counters.get_mut(index) {
                counter.parameters = probe.object.parameter_registers(&probe.function);
            }
        }
    }

    /// Returns the refusal of a probe whose instruction another probe of this run displaces.
    pub fn displaced_by(&self, probe: &Probe) -> Option<Reason> {
        let address = probe.address();
        let covers = |at: u64, len: u8| (at..at + u64::from(len)).contains(&address);
        let mut placed = self.counters.iter();
        let other = placed.find(|one| covers(one.site.address, one.site.len))?;
        Some(Reason::Covered(other.counter.event.clone()))
    }

    pub fn follows_calls(&self) -> bool {
        let mut all = self.counters.iter().chain(&self.gates);
        all.any(|one| one.follow.is_followed())
    }
}

/// Returns the bases of arenas (for trampolines) and callers' arenas (for return addresses) that could not be mapped.
fn map_arenas(process: Process, link: &Link, plan: &PatchPlan) -> Result<Vec<u64>, Error> {
    // A range includes the gaps between its arenas. If the address space is limited, each arena is mapped alone to save
    // the gaps.
    let outcomes = match address_space(process) {
        Some(_) => vec![false; plan.ranges.len()],
        None => link.map_code(&plan.ranges)?,
    };
    let failed = plan.ranges.iter().zip(outcomes).filter(|(_, done)| !done);
    let failed: Vec<&Range<u64>> = failed.map(|(range, _)| range).collect();
    let alone = plan.arenas.iter().map(|arena| arena.base);
    let alone = alone.filter(|base| failed.iter().any(|range| range.contains(base)));
    let alone: Vec<u64> = alone.collect();
    let ranges: Vec<Range<u64>> = alone.iter().map(|base| *base..base + arena::LEN).collect();
    let outcomes = link.map_code(&ranges)?;
    let code = alone.into_iter().zip(outcomes);
    let outcomes = link.map_callers(&plan.new_callers)?;
    let callers = plan.new_callers.iter().copied().zip(outcomes);
    let lost = code.chain(callers).filter(|(_, done)| !done);
    let lost: Vec<u64> = lost.map(|(base, _)| base).collect();
    let mapped = plan
        .arenas
        .iter()
        .filter(|arena| !lost.contains(&arena.base));
    let prologues = mapped.map(|arena| (arena::prologue(arena.base), arena.prologue.as_slice()));
    link.write_code(&prologues.collect::<Vec<_>>())?;
    Ok(lost)
}
