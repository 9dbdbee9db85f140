//! Puts hooks and probes into a process that has the agent.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use tiptoe_attach::inject::{Masks, Words};
use tiptoe_attach::link::Link;
use tiptoe_attach::loader;
use tiptoe_attach::resident::{agent_code, agent_thread};
use tiptoe_patch::Abi;
use tiptoe_session::EventNote;
use tiptoe_sys::host::limits::address_space;
use tiptoe_sys::host::procfs::Mapping;
use tiptoe_wire::{Hello, Site, arena, tls};

use super::guards::{self, TrapFreeProcess, install};
use super::kernel::Candidate;
use super::loaded_libraries::{PlanState, library};
use super::{Plan, Tracee, broken_off, described_code};
use crate::error::{Error, Reason};
use crate::module::Module;
use crate::planner::{self, Follow, PlannedSite, ProcessState};
use crate::resolve::{self, Limit, Limits, Probe};

/// The thunks made for each followed function: one for each caller, on average.
const CALLERS: usize = 16;
/// How many times the threads are listed in search of the agent's.
const LISTS: usize = 20;
/// How many times arenas are planned, if the program has mapped something in their place.
const TRIES: u32 = 5;
/// The longest time until an agent sends its hello.
pub(super) const GREETING: Duration = Duration::from_secs(5);

impl Tracee {
    /// Maps arenas and callers' arenas; returns the bases of those that could not be mapped.
    pub(super) fn map_arenas(
        &self,
        link: &Link,
        plan: &planner::PatchPlan,
    ) -> Result<Vec<u64>, Error> {
        // The gaps between arenas would use up a limited address space.
        let outcomes = match address_space(self.target.process) {
            Some(_) => vec![false; plan.ranges.len()],
            None => link.map_code(&plan.ranges)?,
        };
        let failed = plan.ranges.iter().zip(outcomes).filter(|(_, done)| !done);
        let failed: Vec<&Range<u64>> = failed.map(|(range, _)| range).collect();
        // The program may have mapped something between two arenas.
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
        let prologues =
            mapped.map(|arena| (arena::prologue(arena.base), arena.prologue.as_slice()));
        link.write_code(&prologues.collect::<Vec<_>>())?;
        Ok(lost)
    }

    /// Arms hooks and probes; returns the probes that the kernel should count.
    pub(super) fn arm(
        &mut self,
        link: &Link,
        plan: &Plan,
        modules: &[Module],
        probes: &mut Vec<Probe>,
        ifuncs: Vec<Probe>,
    ) -> Result<Vec<Candidate>, Error> {
        let hello = link.wait_for_hello(GREETING).ok_or_else(|| {
            let pid = self.target.process.pid();
            match link.has_lost_target() {
                true => Error::TargetLost(pid),
                false => Error::AgentLate(pid),
            }
        })?;
        link.is_in(self.target.process, self.presence.program);
        // A list that is read while threads start and end may lack some.
        let agent = || agent_thread(self.target.process, link.data().thread());
        self.presence.thread = (0..LISTS).find_map(|_| agent());
        self.presence.check_confined(self.target.process)?;
        self.agent.later = self.first_later(&hello, plan)?;
        merge(probes, self.chosen(link, modules, ifuncs)?);
        let mut maps = self.target.process.maps()?;
        let record = self.loader_record(plan, modules);
        self.find_ports(plan, modules)?;
        let followed = probes.iter().filter(|probe| probe.follow.is_followed());
        let followed = followed.count();
        let follows = followed > 0 || (record.is_some() && plan.follow().is_followed());
        let changed = record.map(|(_, changed)| changed);
        let hold = self.lock_to_hold(plan, modules, &maps)?;
        let mut tries = 0;
        let (mut planned, lost) = loop {
            let state = ProcessState {
                follows,
                changed,
                hold,
                ..self.process_state(link, plan, &maps)
            };
            let planned = planner::plan(&state, modules, probes);
            broken_off::check()?;
            let lost = self.map_arenas(link, &planned)?;
            tries += 1;
            if lost.is_empty() || tries == TRIES {
                self.agent.later.callers = planned.callers_but(&lost);
                break (planned, lost);
            }
            // The program has mapped something there since its maps were read.
            maps = self.target.process.maps()?;
        };
        let masks = self.masks(hello.tls, link.prepare()?, &maps)?;
        self.presence.masks = Some(masks);
        let unseen = self.presence.unseen(modules).cloned();
        self.presence.quiet = unseen.map(|why| TrapFreeProcess { masks, why });
        link.set_trap_bytes(self.presence.quiet.is_none());
        link.split_mappings(
            &planned.ranges_of_own_mappings(&maps, |site| self.may_be_armed(site)),
        )?;
        self.ready_to_follow(link, followed, &planned.unwinders)?;
        if follows {
            link.describe(&described_code::of(modules))?;
        }
        let mut armed = guards::put_on(link, &masks, &planned, &lost)?;
        let trapping = planned.hooks.iter().filter(|hook| !hook.site.is_guard());
        let trapping: Vec<&PlannedSite> = trapping.collect();
        let outcomes = install(link, &trapping, &lost, self.presence.quiet.as_ref())?;
        armed.extend(addresses_of(&trapping, outcomes));
        self.agent.hooks = planned.hooks.iter().map(|hook| hook.site.address).collect();
        let costly = self.take_costly_traps(plan, probes, &mut planned, &lost);
        let all = planned.hooks.iter().chain(planned.probes.iter().flatten());
        self.note_sites(all, &lost);
        if plan.locks() {
            self.locks.walk_over(link, modules);
            let locks = std::mem::take(&mut planned.locks);
            self.watch_locks(link, plan, locks, (&armed, &lost), modules)?;
        }
        // Must be before the first probe, so that every library that is loaded afterwards is
        // reported.
        if let Some((record, _)) = record {
            let initial = modules.iter();
            let initial = initial.filter_map(|m| Some((m.object.key, library(m)?)));
            self.agent.later.initial = initial.collect();
            link.watch(record)?;
            self.agent.later.watching = true;
        }
        let left = self.install_probes(link, probes, planned.probes, &lost)?;
        let left = self.without_gates(left)?.into_iter().map(Candidate::from);
        Ok(left.chain(costly).collect())
    }

    /// Returns whether a site can be patched in this process.
    pub(super) fn may_be_armed(&self, site: &Site) -> bool {
        self.presence.quiet.is_none() || site.is_guard() || site.is_quiet()
    }

    /// Returns the state from which this plan and those of later libraries continue.
    fn first_later(&self, hello: &Hello, plan: &Plan) -> Result<PlanState, Error> {
        let thread = |word| i32::try_from(hello.tls + word);
        let too_far = |_| Error::TlsTooFar;
        let agent_sites = self.known_sites(plan)?;
        Ok(PlanState {
            recall: thread(tls::RECALL).map_err(too_far)?,
            abi: Abi {
                tls: thread(0).map_err(too_far)?,
                frames: thread(tls::FRAMES).map_err(too_far)?,
                agent: hello.addresses,
            },
            agent_sites,
            ..PlanState::default()
        })
    }

    /// Returns the loader's record if later libraries matter: a spec may match them, they may
    /// contain an unwinder, or they may report scopes.
    fn loader_record(&self, plan: &Plan, modules: &[Module]) -> Option<(u64, u64)> {
        let is_command = plan.request.is_command();
        let come = resolve::may_come_later(&plan.probes, self.target.process, modules, is_command);
        let wanted = come || plan.follow().is_followed() || plan.request.needs_scopes();
        wanted
            .then(|| loader::record(self.target.process))
            .flatten()
    }

    /// Prepares the agent to follow `functions` more functions.
    pub(super) fn ready_to_follow(
        &mut self,
        link: &Link,
        functions: usize,
        unwinders: &[u64],
    ) -> Result<(), Error> {
        link.make_thunks(functions * CALLERS)?;
        if unwinders != self.agent.later.unwinders {
            link.name_unwinders(unwinders)?;
            self.agent.later.unwinders = unwinders.to_vec();
        }
        Ok(())
    }

    /// Returns the signals that the agent owns, and where it records the threads that block them.
    fn masks(
        &self,
        tls: i64,
        [generation, first, frames]: [u64; 3],
        maps: &[Mapping],
    ) -> Result<Masks, Error> {
        const SIGILL_AND_SIGTRAP: u64 = 1 << 3 | 1 << 4;
        if self.presence.thread.is_none() {
            return Err(Error::NoAgentThread);
        }
        Ok(Masks {
            pid: self.target.process.pid(),
            program: self.presence.program,
            spare: self.presence.thread,
            agent_code: agent_code(maps),
            signals: SIGILL_AND_SIGTRAP,
            words: Words {
                tls,
                generation: generation as u32,
                beginnings: [first, frames],
                is_glibc: maps.iter().any(is_glibc),
            },
        })
    }

    /// Returns the probes left to the kernel, without the functions of `--under`. Fails if the
    /// agent took none of these functions.
    fn without_gates(
        &mut self,
        left: Vec<(Probe, Option<Reason>)>,
    ) -> Result<Vec<(Probe, Option<Reason>)>, Error> {
        let (gates, others): (Vec<_>, Vec<_>) = left
            .into_iter()
            .partition(|(probe, _)| probe.follow == Follow::Gate);
        let gates = gates.into_iter();
        let refusals =
            gates.map(|(gate, reason)| (gate.event, reason.unwrap_or(Reason::AgentCannot)));
        let refusals: Vec<(String, Reason)> = refusals.collect();
        match refusals.first() {
            Some((event, why)) if self.gates.is_empty() => {
                let (event, why) = (event.clone(), why.clone());
                Err(Error::NoGate { event, why })
            }
            _ => {
                self.coverage.refuse(refusals);
                Ok(others)
            }
        }
    }

    /// Returns probes of the implementations that IFUNCs chose in this process.
    fn chosen(
        &mut self,
        link: &Link,
        modules: &[Module],
        ifuncs: Vec<Probe>,
    ) -> Result<Vec<Probe>, Error> {
        let resolvers: Vec<u64> = ifuncs.iter().map(Probe::address).collect();
        let chosen = link.resolve(&resolvers)?;
        let mut probes = Vec::new();
        for (ifunc, address) in ifuncs.into_iter().zip(chosen) {
            let home = modules
                .iter()
                .find(|m| m.text.iter().any(|range| range.contains(&address)));
            let function = home.and_then(|module| {
                let image = &module.object.image;
                let found = image.function_containing(address.wrapping_sub(module.bias))?;
                let here = found.address.wrapping_add(module.bias) == address;
                here.then(|| (module, found.clone()))
            });
            match function {
                Some((module, function)) => {
                    let limit = match ifunc.follow.is_followed() {
                        true => Limits::new(module, modules).of(&function),
                        false => Limit::None,
                    };
                    let refused = &mut self.coverage.refused;
                    let Some(follow) = limit.of_wish(ifunc.follow, &ifunc.event, refused) else {
                        continue;
                    };
                    let selected = EventNote::Selected {
                        function: function.display_name().into_owned(),
                    };
                    let notes = vec![selected.into()];
                    let object = module.object.clone();
                    probes.push(Probe {
                        notes,
                        object,
                        bias: module.bias,
                        function,
                        follow,
                        ..ifunc
                    });
                }
                None => {
                    let refused = (ifunc.event, Reason::UnknownChoice);
                    self.coverage.refused.push(refused);
                }
            }
        }
        Ok(probes)
    }
}

fn is_glibc(mapping: &Mapping) -> bool {
    let name = mapping.file().and_then(|path| path.file_name());
    name.is_some_and(|name| {
        let name = name.to_string_lossy();
        name.starts_with("libc.so.6") || name.starts_with("libc-2.")
    })
}

/// Adds probes. If another probe has the same address, the new one only adds names to it.
fn merge(probes: &mut Vec<Probe>, more: Vec<Probe>) {
    let mut places: BTreeMap<u64, usize> = probes
        .iter()
        .enumerate()
        .map(|(index, probe)| (probe.address(), index))
        .collect();
    for probe in more {
        match places.get(&probe.address()) {
            Some(index) => {
                let known = &mut probes[*index].names;
                let name = probe
                    .event
                    .rsplit(':')
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                known.extend([name].into_iter().chain(probe.names));
                known.sort();
                known.dedup();
            }
            None => {
                places.insert(probe.address(), probes.len());
                probes.push(probe);
            }
        }
    }
}

/// Writes trampolines; returns the sites that can be armed, ordered by address.
pub(super) fn write_trampolines(
    link: &Link,
    planned: &[&PlannedSite],
    lost: &[u64],
) -> Result<Vec<usize>, Error> {
    let mut order: Vec<usize> = (0..planned.len())
        .filter(|i| planned[*i].has_room(lost))
        .collect();
    order.sort_by_key(|index| planned[*index].site.address);
    let writes: Vec<(u64, &[u8])> = order
        .iter()
        .flat_map(|index| &planned[*index].writes)
        .map(|(address, bytes)| (*address, bytes.as_slice()))
        .collect();
    link.write_code(&writes)?;
    Ok(order)
}

/// Arms sites in this order. Their trampolines must have been written. Returns for each planned
/// site why it is not armed.
pub(super) fn patch(
    link: &Link,
    planned: &[&PlannedSite],
    order: &[usize],
) -> Result<Vec<Option<Reason>>, Error> {
    let (again, fresh): (Vec<usize>, Vec<usize>) =
        order.iter().partition(|index| planned[**index].is_in_table);
    let sites: Vec<Site> = fresh.iter().map(|index| planned[*index].site).collect();
    let known: Vec<u64> = again
        .iter()
        .map(|index| planned[*index].site.address)
        .collect();
    let mut recalled: Vec<u64> = again
        .iter()
        .filter(|index| planned[**index].has_others)
        .map(|index| planned[*index].site.trampoline)
        .collect();
    recalled.sort_unstable();
    link.recall(&recalled)?;
    let mut reasons = vec![Some(Reason::NoTrampoline); planned.len()];
    let outcomes = link.arm(&sites)?.into_iter().chain(link.arm_again(&known)?);
    for (index, outcome) in fresh.into_iter().chain(again).zip(outcomes) {
        reasons[index] = reason(outcome);
    }
    Ok(reasons)
}

pub(super) fn addresses_of<'a>(
    planned: &'a [&PlannedSite],
    outcomes: Vec<Option<Reason>>,
) -> impl Iterator<Item = u64> + 'a {
    let armed = planned
        .iter()
        .zip(outcomes)
        .filter(|(_, why)| why.is_none());
    armed.map(|(planned, _)| planned.site.address)
}

fn reason(outcome: u64) -> Option<Reason> {
    match outcome {
        0 => None,
        1 => Some(Reason::CodeDiffers),
        _ => Some(Reason::CodeUnwritable),
    }
}
