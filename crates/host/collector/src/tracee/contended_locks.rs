//! Watches the contended locks of one process.

use std::collections::HashSet;

use tiptoe_attach::link::Link;
use tiptoe_event::Via;
use tiptoe_futex::walk::{Frames, Library, RuntimePart};
use tiptoe_price::clock;
use tiptoe_session::{LockNote, Note};
use tiptoe_sys::host::procfs::Mapping;
use tiptoe_wire::Site;
use tiptoe_wire::futex::{UNSEEN, WIDTH};

use super::futexes::KernelFutexes;
use super::guards::install;
use super::loaded_libraries::library;
use super::seen_waits::SeenWaits;
use super::{Plan, Tracee};
use crate::clock::RunClock;
use crate::counts::{self, SlabOwner};
use crate::error::{Error, Reason};
use crate::module::{Cache, Module};
use crate::planner::{self, Extent, PlannedSite, is_libc, is_runtime};
use crate::request::Split;
use crate::ulocks::{self, EarlyWaits, Names, ThreadIds, WaitRecords, WaitTotals};

/// The length of the instruction that makes a futex call: `syscall`, or a call of the function that
/// contains it.
const BACK: [u64; 2] = [2, 5];

#[derive(Default)]
pub struct LockWatch {
    pub(super) in_kernel: Option<KernelFutexes>,
    sites: Vec<Site>,
    /// The biases of modules that the agent already skips, or has no room for.
    runtime: HashSet<u64>,
    names: Option<Names>,
    early: EarlyWaits,
    seen: SeenWaits,
    /// The modules of a command that is about to load them, and since when it runs.
    pub(super) starting: Option<(Vec<Module>, Option<RunClock>)>,
    ids: ThreadIds,
}

/// Makes the agent skip the standard library's functions that were compiled into a module.
/// Functions without room count as the user's.
fn walk_over_standard(frames: &Frames, module: &Module) {
    for extent in [Extent::All, Extent::MayWait] {
        let Some((rows, code)) = planner::standard_rows(module, extent) else {
            return;
        };
        let library = Library {
            base: module.bias,
            start: code.start.wrapping_add(module.bias),
            end: code.end.wrapping_add(module.bias),
            part: RuntimePart::Mixed,
        };
        if frames.add(&library, &rows) {
            return;
        }
    }
}

impl LockWatch {
    /// Makes the agent skip frames of the runtime's modules.
    pub(super) fn walk_over(&mut self, link: &Link, modules: &[Module]) {
        let Some(words) = link.data().slab_words(0, link.lock_slot, WIDTH) else {
            return;
        };
        let runtime = modules.iter().filter(|module| is_runtime(module));
        let (libc, others): (Vec<_>, Vec<_>) = runtime.partition(|module| is_libc(module));
        // libc first, because most walks end after its frames.
        for module in libc.into_iter().chain(others) {
            let rows = module.object.unwind_table().rows();
            let Some(code) = library(module).filter(|_| !rows.is_empty()) else {
                continue;
            };
            if self.runtime.insert(code.base) {
                let library = Library {
                    base: code.base,
                    start: code.start,
                    end: code.end,
                    part: match is_libc(module) {
                        true => RuntimePart::Libc,
                        false => RuntimePart::Other,
                    },
                };
                let frames = Frames::new(words);
                // Before the library, as `add_owner` says.
                for (functions, owner) in planner::owners(module) {
                    frames.add_owner(functions, owner);
                }
                // A library without room counts as the user's.
                let _ = frames.add(&library, rows);
            }
        }
        let users = modules.iter().filter(|module| !is_runtime(module));
        for module in users {
            if self.runtime.insert(module.bias) {
                walk_over_standard(&Frames::new(words), module);
            }
        }
    }
}

impl Tracee {
    /// Records which threads wait for locks. Must be called before anything is patched, because no
    /// hook saw these waits begin.
    pub(super) fn look_for_early_waits(&mut self, plan: &Plan, names: &Names) {
        if plan.locks() {
            // A wrong name is reported later, when the lock is watched.
            let hold = self.lock_to_hold(plan, &names.modules, &names.maps);
            let hold = hold.ok().flatten();
            self.locks.early = EarlyWaits::look(self.target.process, names, hold);
        }
    }

    pub(super) fn lock_to_hold(
        &self,
        plan: &Plan,
        modules: &[Module],
        maps: &[Mapping],
    ) -> Result<Option<u64>, Error> {
        let lock = plan
            .hold()
            .map(|name| ulocks::address_of(name, modules, maps));
        let pid = self.target.process.pid();
        lock.transpose().map_err(|why| Error::BadHold { pid, why })
    }

    /// Arms the sites of futex calls, and leaves the others to the kernel.
    pub(super) fn watch_locks(
        &mut self,
        link: &Link,
        plan: &Plan,
        planned: planner::Locks,
        (hooked, lost): (&[u64], &[u64]),
        modules: &[Module],
    ) -> Result<(), Error> {
        let (mut left_out, mut in_part) = (planned.left_out, planned.in_part);
        let mut armed: Vec<u64> = hooked.to_vec();
        let sites: Vec<&PlannedSite> = planned.sites.iter().collect();
        let outcomes = install(link, &sites, lost, self.presence.quiet.as_ref())?;
        self.note_sites(planned.sites.iter(), lost);
        let outcomes = planned.sites.iter().zip(outcomes);
        for (site, outcome) in outcomes {
            match outcome {
                None => {
                    self.locks.sites.push(site.site);
                    armed.push(site.site.address);
                }
                Some(why) => {
                    let at = site.site.address;
                    let is_call = planned.calls.iter().any(|(call, _)| *call == at);
                    let left = if is_call { &mut left_out } else { &mut in_part };
                    left.push((planner::name_of(modules, at), why));
                }
            }
        }
        self.coverage.refuse(in_part);
        if left_out.is_empty() {
            return Ok(());
        }
        let calls = planned.calls.iter().filter(|(at, _)| armed.contains(at));
        let patched: Vec<u64> = calls
            .flat_map(|(_, call)| BACK.map(|len| call + len))
            .collect();
        let against = match plan.request.via {
            Via::Agent => Some(Reason::KernelExcluded),
            _ => {
                let watched = self.watch_left_out(plan, modules, &patched);
                watched.err().map(Reason::from)
            }
        };
        match against {
            None => {
                let notes = left_out.into_iter();
                let notes = notes.map(|(place, why)| LockNote::PlaceInKernel {
                    place,
                    why: why.to_string(),
                });
                self.coverage.notes.extend(notes.map(Note::from));
            }
            Some(against) => {
                let unseen = |why| Reason::CallsUnseen(Box::new([why, against.clone()]));
                let left_out = left_out.into_iter();
                let refused = left_out.map(|(place, why)| (place, unseen(why)));
                self.coverage.refuse(refused);
            }
        }
        Ok(())
    }

    /// Reads the mappings, for names and for libraries loaded since, and where threads have their
    /// stacks.
    pub fn look_for_names(&mut self, cache: &mut Cache) -> Result<(), Error> {
        self.locks.early.look_again(self.target.process);
        let maps = self.target.process.maps()?;
        if self.locks.names.is_some() && self.locks.has_left_kernel() {
            return Ok(());
        }
        let threads = self.target.process.threads()?;
        if let Some(link) = &self.target.link {
            let LockWatch { seen, ids, .. } = &mut self.locks;
            ids.look(self.target.process, &threads);
            seen.look(link, &threads, ids);
        }
        if let Some(names) = &mut self.locks.names
            && names.maps == maps
        {
            names.stacks.look(self.target.process, &threads, &maps);
            return Ok(());
        }
        let modules: Vec<Module> = cache.modules(self.target.process, &maps)?;
        if let Some(link) = self.target.link.take() {
            self.locks.walk_over(&link, &modules);
            self.target.link = Some(link);
        }
        self.locks.step_over(&modules)?;
        let mut sites = self.locks.sites.clone();
        sites.extend(self.agent.later.agent_sites.iter().copied());
        // Known stacks are kept, because the kernel does not report those of threads that run now.
        let known = self.locks.names.take();
        let mut stacks = known.map(|names| names.stacks).unwrap_or_default();
        stacks.forget_ended(&threads);
        stacks.look(self.target.process, &threads, &maps);
        self.locks.names = Some(Names {
            modules,
            maps,
            sites,
            stacks,
            ..Names::default()
        });
        Ok(())
    }

    /// Returns the sums of all waits so far; zero if locks are not watched.
    pub fn waits_so_far(&self) -> Result<WaitTotals, Error> {
        let noted = self.wait_records(Split::Lock)?;
        Ok(noted.map_or_else(WaitTotals::default, |(noted, _)| noted.totals()))
    }

    /// Returns the recorded waits, for rows of this kind; `None` if locks are not watched.
    pub fn wait_records(&self, by: Split) -> Result<Option<(WaitRecords, &Names)>, Error> {
        let Some(names) = &self.locks.names else {
            return Ok(None);
        };
        // Waits in an ended process were seen only until the last look.
        let now = match self.target.has_ended() {
            true => self.locks.seen.last_look(),
            false => clock::ticks(),
        };
        let mut noted = WaitRecords::at(now);
        let process = self.target.process;
        self.locks
            .note_in_kernel(&mut noted, process, by == Split::Thread)?;
        self.locks.early.add_to(&mut noted, by != Split::Scope);
        let Some(link) = &self.target.link else {
            return Ok(Some((noted, names)));
        };
        let scopes = (by == Split::Scope).then(|| self.scope_names());
        let scopes = scopes.transpose()?;
        let slots = link.lock_slot..link.lock_slot + WIDTH;
        let LockWatch { seen, ids, .. } = &self.locks;
        let each = |owner: Option<&SlabOwner>, words: &[u64]| match owner {
            Some(owner) => {
                let ended = Some(owner.tid).filter(|tid| seen.has_ended(*tid));
                let seen_ns = |index| seen.seen_ns(ended.unwrap_or(0), index, words);
                let seen_ns: &dyn Fn(u32) -> u64 = &seen_ns;
                let thread = ids.label(owner.tid, &owner.comm);
                noted.add_holder(owner.tid, &thread);
                noted.add_thread(&thread, words, scopes.as_ref(), ended.map(|_| seen_ns));
            }
            None => noted.add_unseen(words.get(UNSEEN as usize).copied().unwrap_or(0)),
        };
        let failed = |error| Error::UnreadableSlabs {
            what: "waits",
            error,
        };
        counts::each_slab(link.data_file(), link.geometry(), slots, each).map_err(failed)?;
        Ok(Some((noted, names)))
    }
}
