//! What tiptoe has given so far to the agent (tiptoe's library): sites (places to patch), slots (indexes of
//! counters), arenas (memory for generated code), and libraries to watch.

use std::collections::HashSet;

use tiptoe_attach::doorbell::Bell;
use tiptoe_attach::link::Link;
use tiptoe_patch::{Abi, CallerArena};
use tiptoe_session::{FunctionNote, Note};
use tiptoe_sys::host::procfs::Mapping;
use tiptoe_wire::{Hello, Library, Site, tls};

use crate::error::Error;
use crate::module::{FileKey, Module};
use crate::planner::{PlannedSite, ProcessState};
use crate::probe_slots::ProbeSlots;
use crate::tracee::{Plan, TracedProcess};

/// The assumed number of callers of a followed function. Each caller needs its own thunk (the stub to which the call
/// returns).
const CALLERS: usize = 16;

#[derive(Default)]
pub struct PlanState {
    pub abi: Abi,
    pub recall: i32,
    pub agent_sites: Vec<Site>,
    pub probe_slots: ProbeSlots,
    pub callers: Vec<CallerArena>,
    pub unwinders: Vec<u64>,
    /// Libraries that were loaded when the session began, and that the loader has not reported since.
    pub initial: Vec<(FileKey, Library)>,
    pub waiting: Vec<String>,
    pub late: HashSet<String>,
    pub watching: bool,
    pub served: u64,
}

impl PlanState {
    /// `agent_sites` are an earlier session's.
    pub fn first(hello: &Hello, agent_sites: Vec<Site>) -> Result<PlanState, Error> {
        let thread = |word| i32::try_from(hello.tls + word);
        let too_far = |_| Error::TlsTooFar;
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

    pub fn process_state<'a>(
        &'a self,
        link: &Link,
        plan: &Plan,
        maps: &'a [Mapping],
    ) -> ProcessState<'a> {
        ProcessState {
            recall: self.recall,
            maps,
            agent_sites: &self.agent_sites,
            mapped: link.code_ranges(),
            callers: &self.callers,
            probe_slots: &self.probe_slots,
            geometry: link.geometry(),
            first_slot: link.free_slot(),
            unwinders: &self.unwinders,
            follows: plan.follow().is_followed(),
            locks: plan.locks(),
            hold: None,
            changed: None,
            abi: self.abi,
            hits: plan.hits(),
        }
    }

    pub fn note_sites<'a>(&mut self, planned: impl Iterator<Item = &'a PlannedSite>, lost: &[u64]) {
        let given = planned.filter(|plan| !plan.is_in_table && plan.has_room(lost));
        self.agent_sites.extend(given.map(|plan| plan.site));
    }

    pub fn ready_to_follow(
        &mut self,
        link: &Link,
        functions: usize,
        unwinders: &[u64],
    ) -> Result<(), Error> {
        link.make_thunks(functions * CALLERS)?;
        if unwinders != self.unwinders {
            link.name_unwinders(unwinders)?;
            self.unwinders = unwinders.to_vec();
        }
        Ok(())
    }

    /// Makes the agent report changes of the list of libraries in the loader's `record`. `modules` are loaded already.
    pub fn watch(&mut self, link: &Link, record: u64, modules: &[Module]) -> Result<(), Error> {
        let initial = modules.iter();
        let initial = initial.filter_map(|m| Some((m.object.key, library(m)?)));
        self.initial = initial.collect();
        link.watch(record)?;
        self.watching = true;
        Ok(())
    }

    pub fn missed(&self, process: &TracedProcess) -> Option<Note> {
        let times = self.watched(process)?.0.data().missed();
        (times > 0).then(|| FunctionNote::RanUnprobed { times }.into())
    }

    /// Returns the link to an agent that reports changes of libraries, and the number of the last change that tiptoe
    /// served.
    pub fn watched<'p>(&self, process: &'p TracedProcess) -> Option<(&'p Link, u64)> {
        let link = process.target.link.as_ref();
        Some((link.filter(|_| self.watching)?, self.served))
    }

    pub fn bell<'p>(&self, process: &'p TracedProcess) -> Option<Bell<'p>> {
        let (link, served) = self.watched(process)?;
        Some((link.data().doorbell()?, served as u32))
    }

    /// Returns what `look` returns; `None` if the program loaded or closed a library meanwhile, because `look` may have
    /// seen this library while the agent patched it.
    pub fn undisturbed<T>(&self, process: &TracedProcess, look: impl FnOnce() -> T) -> Option<T> {
        let looks = || {
            self.watched(process)
                .map_or(0, |(link, _)| link.data().looks())
        };
        let before = looks();
        let seen = look();
        (before % 2 == 0 && looks() == before).then_some(seen)
    }

    /// Returns the code ranges of the reported libraries. Removes from `modules` the libraries that need no new probes.
    pub fn libraries(
        &mut self,
        fresh: Option<Vec<u64>>,
        modules: &mut Vec<Module>,
    ) -> Vec<Library> {
        let all = || modules.iter().map(|module| module.bias).collect();
        let fresh: Vec<u64> = fresh.unwrap_or_else(all);
        let is_reported = |base: u64| fresh.contains(&base);
        modules.retain(|module| is_reported(module.bias));
        let mut libraries = Vec::new();
        self.initial.retain(|(file, library)| {
            let now = modules
                .iter()
                .position(|module| module.bias == library.base);
            let same = now.is_none_or(|at| modules[at].object.key == *file);
            if is_reported(library.base) {
                // If another library has this address now, the agent must not find the old library.
                let base = if same { library.base } else { u64::MAX };
                libraries.push(Library { base, ..*library });
                now.filter(|_| same).map(|at| modules.remove(at));
            }
            !is_reported(library.base)
        });
        libraries.extend(modules.iter().filter_map(library));
        let seen: HashSet<u64> = libraries.iter().map(|library| library.base).collect();
        let gone = fresh.iter().filter(|base| !seen.contains(base));
        let nothing_at = |base: &u64| Library {
            base: *base,
            start: 0,
            end: 0,
        };
        let gone: Vec<Library> = gone.map(nothing_at).collect();
        libraries.extend(gone);
        libraries
    }
}

pub fn library(module: &Module) -> Option<Library> {
    Some(Library {
        base: module.bias,
        start: module.text.iter().map(|range| range.start).min()?,
        end: module.text.iter().map(|range| range.end).max()?,
    })
}
