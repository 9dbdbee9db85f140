//! Probes libraries that a program loads while it is traced.
//!
//! A thread that loads a library notifies tiptoe and waits up to 20 ms, under the loader's lock, and
//! up to 0.3 s longer in a whole trace if tiptoe gets no CPU time. In that time tiptoe resolves the specs in the library and plans patches, which the agent's thread
//! applies. So the patches are in place before the library's code runs. The agent remembers the
//! sites of each library, and patches it without tiptoe if it is closed and loaded again.

use std::collections::HashSet;
use std::time::Duration;

use tiptoe_attach::doorbell::Bell;
use tiptoe_attach::link::Link;
use tiptoe_patch::{Abi, CallerArena};
use tiptoe_session::{FunctionNote, Note};
use tiptoe_sys::host::procfs::Mapping;
use tiptoe_wire::{Library, Site, State};

use super::guards::install;
use super::install::not_patched;
use super::{Plan, Tracee, described_code};
use crate::error::{Error, Reason};
use crate::module::{Cache, FileKey, Module};
use crate::planner::{self, PlannedSite, ProcessState};
use crate::probe_slots::ProbeSlots;
use crate::resolve::{self, Probe};

/// The state from which the next plan continues.
#[derive(Default)]
pub(super) struct PlanState {
    pub abi: Abi,
    pub recall: i32,
    /// All sites that the agent has.
    pub agent_sites: Vec<Site>,
    pub probe_slots: ProbeSlots,
    /// What the kernel counts, by file and offset, wherever the file is mapped.
    pub in_kernel: HashSet<(FileKey, u64)>,
    pub callers: Vec<CallerArena>,
    /// All unwinders that have a number.
    pub unwinders: Vec<u64>,
    /// Libraries loaded when the session began, which the loader has not reported since.
    pub initial: Vec<(FileKey, Library)>,
    /// Specs that have matched nothing yet.
    pub waiting: Vec<String>,
    /// Libraries that were probed too late at least once.
    pub late: HashSet<String>,
    /// Whether the agent reports changes of the loader's list.
    pub watching: bool,
    /// The number of the last change that was served.
    pub served: u64,
}

/// The results of serving changes of the loader's list.
#[derive(Default)]
pub struct LibraryResults {
    pub notes: Vec<Note>,
    /// Matched functions that cannot be probed: the event and the reason.
    pub refused: Vec<(String, Reason)>,
}

impl Tracee {
    pub fn waiting(&self) -> &[String] {
        &self.agent.later.waiting
    }

    /// Returns a note if libraries ran before they were probed.
    pub fn missed(&self) -> Option<Note> {
        let times = self.watched()?.0.data().missed();
        (times > 0).then(|| FunctionNote::RanUnprobed { times }.into())
    }

    /// Returns the link to an agent that reports changes, and the number of the last served change.
    pub fn watched(&self) -> Option<(&Link, u64)> {
        let link = self
            .target
            .link
            .as_ref()
            .filter(|_| self.agent.later.watching)?;
        Some((link, self.agent.later.served))
    }

    /// Returns the doorbell of an agent that reports changes.
    pub fn bell(&self) -> Option<Bell<'_>> {
        let (link, served) = self.watched()?;
        Some((link.data().doorbell()?, served as u32))
    }

    /// Runs `look`. Returns `None` if the program's libraries changed in between, because `look`
    /// may have seen a library half patched.
    pub(super) fn undisturbed<T>(&self, look: impl FnOnce() -> T) -> Option<T> {
        let looks = || self.watched().map_or(0, |(link, _)| link.data().looks());
        let before = looks();
        let seen = look();
        (before % 2 == 0 && looks() == before).then_some(seen)
    }

    /// Probes the libraries that the agent reported, and lets the loading thread continue.
    pub fn serve_loader(&mut self, plan: &Plan, cache: &mut Cache) -> LibraryResults {
        let mut results = LibraryResults::default();
        let reported = self.watched().map(|(link, _)| link.data().reported());
        let Some(reported) = reported.filter(|reported| *reported != self.agent.later.served)
        else {
            return results;
        };
        let Some(link) = self.target.link.take() else {
            return results;
        };
        if self.presence.left.get().is_none() && link.data().state() == State::Serving {
            let done = self.serve_changes(&link, plan, cache, &mut results);
            let failed = done.err().filter(|_| !link.has_lost_target());
            let note = failed.map(|error| FunctionNote::NotProbed {
                why: error.to_string(),
            });
            results.notes.extend(note.map(Note::from));
        }
        // Must be done on failure, too, because the loading thread waits for it.
        self.agent.later.served = reported;
        link.answer_loader(reported);
        self.target.link = Some(link);
        self.read_parameters();
        results
    }

    fn serve_changes(
        &mut self,
        link: &Link,
        plan: &Plan,
        cache: &mut Cache,
        results: &mut LibraryResults,
    ) -> Result<(), Error> {
        let fresh: Option<Vec<u64>> = link.data().fresh().map(Iterator::collect);
        let maps = self.target.process.maps()?;
        let mut modules = cache.modules(self.target.process, &maps)?;
        // Old libraries, too, may have been closed and loaded again.
        self.open_ports(link, plan, &modules)?;
        if plan.follow().is_followed() {
            link.describe(&described_code::of(&modules))?;
        }
        let libraries = self.libraries(fresh, &mut modules);
        let armed = self.arm_later(link, plan, (&maps, &modules), results)?;
        link.own_libraries(&libraries)?;
        if link.data().given_up() > self.agent.later.served {
            let late = modules.iter().filter(|module| has_any(module, &armed));
            let late = late.filter(|module| self.agent.later.late.insert(module.name.clone()));
            results
                .notes
                .extend(late.map(|module| too_late(module, link)));
        }
        Ok(())
    }

    /// Returns the code ranges of the libraries that the agent reported. Leaves in `modules` those
    /// that were not looked at yet.
    fn libraries(&mut self, fresh: Option<Vec<u64>>, modules: &mut Vec<Module>) -> Vec<Library> {
        let all = || modules.iter().map(|module| module.bias).collect();
        let fresh: Vec<u64> = fresh.unwrap_or_else(all);
        let is_reported = |base: u64| fresh.contains(&base);
        modules.retain(|module| is_reported(module.bias));
        let mut libraries = Vec::new();
        self.agent.later.initial.retain(|(file, library)| {
            let now = modules
                .iter()
                .position(|module| module.bias == library.base);
            let same = now.is_none_or(|at| modules[at].object.key == *file);
            if is_reported(library.base) {
                // If another library has this address now, the agent must not find the old one
                // there.
                let base = if same { library.base } else { u64::MAX };
                libraries.push(Library { base, ..*library });
                now.filter(|_| same).map(|at| modules.remove(at));
            }
            !is_reported(library.base)
        });
        libraries.extend(modules.iter().filter_map(library));
        let seen: HashSet<u64> = libraries.iter().map(|library| library.base).collect();
        let gone = fresh.iter().filter(|base| !seen.contains(base));
        let gone: Vec<Library> = gone.map(|base| nothing_at(*base)).collect();
        libraries.extend(gone);
        libraries
    }

    /// Arms hooks and probes in libraries. Returns the probes' sites.
    fn arm_later(
        &mut self,
        link: &Link,
        plan: &Plan,
        (maps, modules): (&[Mapping], &[Module]),
        results: &mut LibraryResults,
    ) -> Result<Vec<Site>, Error> {
        let mut found = resolve::later(&plan.probes, plan.entries(), self.target.process, modules);
        self.agent
            .later
            .waiting
            .retain(|spec| !found.met.contains(spec));
        let in_kernel = &self.agent.later.in_kernel;
        let is_new = |probe: &Probe| !in_kernel.contains(&(probe.object.key, probe.file_offset()));
        found.probes.retain(is_new);
        results.notes.append(&mut found.notes);
        let ifuncs = found.ifuncs.drain(..);
        results.refused.append(&mut found.refused);
        results
            .refused
            .extend(ifuncs.map(|probe| (probe.event, Reason::ChoiceIsLater)));
        let planned = planner::plan(
            &self.process_state(link, plan, maps),
            modules,
            &found.probes,
        );
        let lost = self.map_arenas(link, &planned)?;
        self.agent.later.callers = planned.callers_but(&lost);
        link.split_mappings(&planned.ranges_of_own_mappings(maps, |site| self.may_be_armed(site)))?;
        let followed = found
            .probes
            .iter()
            .filter(|probe| probe.follow.is_followed());
        self.ready_to_follow(link, followed.count(), &planned.unwinders)?;
        let hooks: Vec<&PlannedSite> = planned.hooks.iter().collect();
        install(link, &hooks, &lost, self.presence.quiet.as_ref())?;
        self.agent
            .hooks
            .extend(hooks.iter().map(|hook| hook.site.address));
        self.note_sites(
            hooks.into_iter().chain(planned.probes.iter().flatten()),
            &lost,
        );
        let sites = planned
            .probes
            .iter()
            .flatten()
            .map(|probe| probe.site)
            .collect();
        let left = self.install_probes(link, &mut found.probes, planned.probes, &lost)?;
        let left = left.into_iter();
        let left = left.map(|(probe, why)| not_patched(probe, why));
        results.refused.extend(left);
        Ok(sites)
    }

    /// Returns the planner's state of a process, for a plan after the first.
    pub(super) fn process_state<'a>(
        &'a self,
        link: &Link,
        plan: &Plan,
        maps: &'a [Mapping],
    ) -> ProcessState<'a> {
        let later = &self.agent.later;
        ProcessState {
            recall: later.recall,
            maps,
            agent_sites: &later.agent_sites,
            mapped: link.code_ranges(),
            callers: &later.callers,
            probe_slots: &later.probe_slots,
            geometry: link.geometry(),
            first_slot: link.free_slot(),
            unwinders: &later.unwinders,
            follows: plan.follow().is_followed(),
            locks: plan.locks(),
            hold: None,
            changed: None,
            abi: later.abi,
            hits: plan.hits(),
        }
    }

    /// Records the new sites that the agent has.
    pub(super) fn note_sites<'a>(
        &mut self,
        planned: impl Iterator<Item = &'a PlannedSite>,
        lost: &[u64],
    ) {
        let given = planned.filter(|plan| !plan.is_in_table && plan.has_room(lost));
        self.agent
            .later
            .agent_sites
            .extend(given.map(|plan| plan.site));
    }
}

/// Returns the address range of a module's code, for the agent.
pub(super) fn library(module: &Module) -> Option<Library> {
    Some(Library {
        base: module.bias,
        start: module.text.iter().map(|range| range.start).min()?,
        end: module.text.iter().map(|range| range.end).max()?,
    })
}

fn has_any(module: &Module, sites: &[Site]) -> bool {
    let inside = |site: &Site| {
        module
            .text
            .iter()
            .any(|range| range.contains(&site.address))
    };
    sites.iter().any(inside)
}

fn nothing_at(base: u64) -> Library {
    Library {
        base,
        start: 0,
        end: 0,
    }
}

fn too_late(module: &Module, link: &Link) -> Note {
    let took = Duration::from_nanos(now().saturating_sub(link.data().since()));
    let note = FunctionNote::ProbedLate {
        library: module.name.clone(),
        after_ms: took.as_millis().max(1) as u64,
    };
    note.into()
}

/// Returns CLOCK_MONOTONIC in ns, as the agent uses it.
fn now() -> u64 {
    tiptoe_sys::raw::monotonic_ns()
}
