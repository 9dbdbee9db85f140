//! Probes libraries that a program loads while it is traced.
//!
//! A thread that loads a library notifies tiptoe and waits under the loader's lock: up to 0.5 s for an unwinder, 20
//! ms for other libraries. Beyond these 20 ms, all waits of a trace share a reserve of 0.3 s, because a busy machine
//! runs tiptoe late. Meanwhile tiptoe finds the requested functions and plans patches. The thread of the agent
//! (tiptoe's library) writes the patches before the loaded library's code runs. If a known library is closed and
//! loaded again at its address, the agent patches the library without tiptoe.

use std::time::Duration;

use tiptoe_attach::link::Link;
use tiptoe_session::{FunctionNote, Note};
use tiptoe_sys::raw::monotonic_ns;
use tiptoe_wire::State;

use super::{Arming, Plan, Tracee, described_code, refusals};
use crate::error::{Error, Reason};
use crate::module::{Cache, Module};
use crate::resolve::{self, Probe};

#[derive(Default)]
pub struct LibraryResults {
    pub notes: Vec<Note>,
    pub refused: Vec<(String, Reason)>,
}

impl Tracee {
    pub fn serve_loader(&mut self, plan: &Plan, cache: &mut Cache) -> LibraryResults {
        let mut results = LibraryResults::default();
        let watched = self.agent.patches.later.watched(&self.process);
        let reported = watched.map(|(link, served)| (link.data().reported(), served));
        let Some((reported, _)) = reported.filter(|(reported, served)| reported != served) else {
            return results;
        };
        let has_left = self.process.presence.left.get().is_some();
        let is_serving = |link: &Link| link.data().state() == State::Serving;
        if !has_left && self.process.link().is_ok_and(is_serving) {
            let done = self.serve_changes(plan, cache, &mut results);
            results.refused.append(&mut self.coverage.refused);
            let is_lost = self.process.link().is_ok_and(Link::has_lost_target);
            let failed = done.err().filter(|_| !is_lost);
            let note = failed.map(|error| FunctionNote::NotProbed {
                why: error.to_string(),
            });
            results.notes.extend(note.map(Note::from));
        }
        // The answer is needed on failure, too, because the loading thread waits for it.
        self.agent.patches.later.served = reported;
        if let Ok(link) = self.process.link() {
            link.answer_loader(reported);
        }
        self.agent.patches.read_parameters();
        results
    }

    fn serve_changes(
        &mut self,
        plan: &Plan,
        cache: &mut Cache,
        results: &mut LibraryResults,
    ) -> Result<(), Error> {
        let (process, link) = (&self.process, self.process.link()?);
        let patches = &mut self.agent.patches;
        let fresh: Option<Vec<u64>> = link.data().fresh().map(Iterator::collect);
        let maps = process.target.process.maps()?;
        let mut modules = cache.modules(process.target.process, &maps)?;
        // Ports (tables by which a library calls the agent) of all modules are opened, because known libraries may
        // have been closed and loaded again.
        self.scopes.open_ports(process, plan, &modules)?;
        if plan.follow().is_followed() {
            link.describe(&described_code::of(&modules))?;
        }
        let libraries = patches.later.libraries(fresh, &mut modules);
        let entries = plan.entries();
        let mut found = resolve::later(&plan.probes, entries, process.target.process, &modules);
        let waiting = &mut patches.later.waiting;
        waiting.retain(|spec| !found.met.contains(spec));
        let in_kernel = &self.kernel.places;
        let is_new = |probe: &Probe| !in_kernel.contains(&(probe.object.key, probe.file_offset()));
        found.probes.retain(is_new);
        results.notes.append(&mut found.notes);
        results.refused.append(&mut found.refused);
        let ifuncs = found.ifuncs.into_iter();
        let ifuncs = ifuncs.map(|probe| (probe.event, Reason::ChoiceIsLater));
        results.refused.extend(ifuncs);
        let on = &mut Arming::of(process, plan, &mut self.coverage)?;
        let (armed, left) = patches.arm_later(on, &maps, &modules, &mut found.probes)?;
        results.refused.extend(refusals(left, &Reason::CannotPatch));
        link.own_libraries(&libraries)?;
        if link.data().given_up() > patches.later.served {
            let has_any = |module: &&Module| armed.iter().any(|at| module.contains(*at));
            let late = modules.iter().filter(has_any);
            let late = late.filter(|module| patches.later.late.insert(module.name.clone()));
            results
                .notes
                .extend(late.map(|module| too_late(module, link)));
        }
        Ok(())
    }
}

fn too_late(module: &Module, link: &Link) -> Note {
    // The agent's time is also CLOCK_MONOTONIC in ns.
    let took = Duration::from_nanos(monotonic_ns().saturating_sub(link.data().since()));
    let note = FunctionNote::ProbedLate {
        library: module.name.clone(),
        after_ms: took.as_millis().max(1) as u64,
    };
    note.into()
}
