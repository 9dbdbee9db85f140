//! Watches the contended locks of one process, by the agent (tiptoe's library) or the kernel.

use std::collections::HashSet;
use std::time::Duration;

use tiptoe_attach::Attached;
use tiptoe_attach::link::Link;
use tiptoe_event::Via;
use tiptoe_futex::walk::{Frames, Library, RuntimePart};
use tiptoe_kernel::ProgramTimes;
use tiptoe_price::clock;
use tiptoe_session::{LockNote, Note};
use tiptoe_symbol::Class;
use tiptoe_wire::Site;
use tiptoe_wire::futex::{UNSEEN, WIDTH};

use super::{Arming, Coverage, Plan, TracedProcess, library, scope_names};
use crate::clock::RunClock;
use crate::counts::{self, SlabOwner};
use crate::error::{Error, Reason};
use crate::module::{Cache, Module};
use crate::planner::{self, Extent, is_libc, is_runtime};
use crate::request::Split;
use crate::ulocks::{EarlyWaits, Names, ThreadIds, WaitRecords, WaitTotals};

use futexes::KernelFutexes;
use seen_waits::SeenWaits;

mod futexes;
mod seen_waits;

pub const START_PAUSE: Duration = Duration::from_micros(200);
/// The longest time until a command's loader has mapped its libraries.
const LOADING: Duration = Duration::from_millis(500);
/// The length of the instruction that makes a futex call: `syscall`, or a call of the function that contains the
/// `syscall`.
const BACK: [u64; 2] = [2, 5];

#[derive(Default)]
pub struct LockWatch {
    in_kernel: Option<KernelFutexes>,
    sites: Vec<Site>,
    /// The biases of modules that the agent's stack walks skip, or for which the agent has no room.
    runtime: HashSet<u64>,
    names: Option<Names>,
    early: EarlyWaits,
    seen: SeenWaits,
    /// The modules that a command is about to load, and since when it runs.
    starting: Option<(Vec<Module>, Option<RunClock>)>,
    ids: ThreadIds,
}

/// Makes the agent's stack walks skip the functions of standard libraries that were compiled into a module. Functions
/// for which the agent has no room count as the user's.
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
    /// Makes the agent's stack walks skip the frames of the runtimes of C and C++, to find the user's call site.
    pub fn walk_over(&mut self, link: &Link, modules: &[Module]) {
        let Some(words) = link.data().slab_words(0, link.lock_slot, WIDTH) else {
            return;
        };
        let runtime = modules.iter().filter(|module| is_runtime(module));
        let (libc, others): (Vec<_>, Vec<_>) = runtime.partition(|module| is_libc(module));
        // libc must be first, because most walks end after its frames.
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
                // Must be called before `add`, because later walks cache paths with the functions' kinds.
                for (functions, owner) in planner::owners(module) {
                    frames.add_owner(functions, owner);
                }
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

    /// Records the waits in progress.
    pub fn look_for_early_waits(&mut self, process: &TracedProcess, plan: &Plan, names: &Names) {
        if plan.locks() {
            // A wrong name in `--hold` is reported later, when the lock is watched.
            let hold = process.lock_to_hold(plan, &names.modules, &names.maps);
            let hold = hold.ok().flatten();
            self.early = EarlyWaits::look(process.target.process, names, hold);
        }
    }

    /// Watches the planned sites (patched places) of futex calls. The kernel watches the other calls. `outcomes` say
    /// why sites are not patched; `armed` are the addresses of hooks in place.
    pub fn watch_sites(
        &mut self,
        on: &mut Arming,
        planned: planner::Locks,
        outcomes: Vec<Option<Reason>>,
        mut armed: Vec<u64>,
        modules: &[Module],
    ) -> Result<(), Error> {
        let (mut left_out, mut in_part) = (planned.left_out, planned.in_part);
        let outcomes = planned.sites.iter().zip(outcomes);
        for (site, outcome) in outcomes {
            match outcome {
                None => {
                    self.sites.push(site.site);
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
        on.coverage.refuse(in_part);
        if left_out.is_empty() {
            return Ok(());
        }
        let calls = planned.calls.iter().filter(|(at, _)| armed.contains(at));
        let patched: Vec<u64> = calls
            .flat_map(|(_, call)| BACK.map(|len| call + len))
            .collect();
        let against = match on.plan.request.via {
            Via::Agent => Some(Reason::KernelExcluded),
            _ => {
                let watched = KernelFutexes::begin(on.process, on.plan, modules, Some(&patched));
                let watched = watched.map(|watched| self.in_kernel = Some(watched));
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
                on.coverage.notes.extend(notes.map(Note::from));
            }
            Some(against) => {
                let unseen = |why| Reason::CallsUnseen(Box::new([why, against.clone()]));
                let left_out = left_out.into_iter();
                let refused = left_out.map(|(place, why)| (place, unseen(why)));
                on.coverage.refuse(refused);
            }
        }
        Ok(())
    }

    pub fn watch_in_kernel(
        &mut self,
        process: &TracedProcess,
        plan: &Plan,
        modules: &[Module],
        coverage: &Coverage,
    ) -> Result<(), Error> {
        if is_32_bit(modules) {
            return Err(Error::LocksOf32Bit(process.target.comm.clone()));
        }
        if plan.hold().is_some() {
            return Err(Error::HoldWithoutAgent);
        }
        let watched = KernelFutexes::begin(process, plan, modules, None);
        self.in_kernel = Some(watched.map_err(|error| coverage.or_agent(error))?);
        Ok(())
    }

    pub fn expect_start(&mut self, before: Vec<Module>) {
        if self.in_kernel.is_some() {
            // These names are used if the command ends before its mappings are read.
            let mut modules = before.clone();
            for module in modules.iter_mut().filter(|module| module.has_its_place()) {
                module.text = module.object.image.layout().executable.clone();
            }
            self.names = Some(Names {
                modules,
                ..Names::default()
            });
            self.starting = Some((before, None));
        }
    }

    pub fn is_starting(&self) -> bool {
        self.starting.is_some()
    }

    /// Checks whether a started command has mapped its libraries, so that later waits have call sites. Returns whether
    /// libraries are missing.
    pub fn catch_start(&mut self, process: &TracedProcess, cache: &mut Cache) -> bool {
        let Some((before, since)) = &mut self.starting else {
            return false;
        };
        let since = since.get_or_insert_with(RunClock::start);
        let maps = process.target.process.maps().unwrap_or_default();
        let is_loading = cache.adopt(before, &maps) < before.len();
        if is_loading && since.elapsed() < LOADING && !process.target.has_ended() {
            return true;
        }
        self.starting = None;
        // Fails only if the process has ended. Without an agent in the command, there are no sites.
        let _ = self.look_for_names(process, &[], cache);
        false
    }

    pub fn look_for_names(
        &mut self,
        process: &TracedProcess,
        agent_sites: &[Site],
        cache: &mut Cache,
    ) -> Result<(), Error> {
        self.early.look_again(process.target.process);
        let maps = process.target.process.maps()?;
        if self.names.is_some() && self.has_left_kernel() {
            return Ok(());
        }
        let threads = process.target.process.threads()?;
        if let Some(link) = &process.target.link {
            let LockWatch { seen, ids, .. } = self;
            ids.look(process.target.process, &threads);
            seen.look(link, &threads, ids);
        }
        if let Some(names) = &mut self.names
            && names.maps == maps
        {
            names.stacks.look(process.target.process, &threads, &maps);
            return Ok(());
        }
        let modules: Vec<Module> = cache.modules(process.target.process, &maps)?;
        if let Some(link) = &process.target.link {
            self.walk_over(link, &modules);
        }
        if let Some(watched) = &mut self.in_kernel {
            watched.step_over(&modules)?;
        }
        let mut sites = self.sites.clone();
        sites.extend(agent_sites);
        // Known stacks are kept, because the kernel does not report the stacks of running threads.
        let known = self.names.take();
        let mut stacks = known.map(|names| names.stacks).unwrap_or_default();
        stacks.forget_ended(&threads);
        stacks.look(process.target.process, &threads, &maps);
        self.names = Some(Names {
            modules,
            maps,
            sites,
            stacks,
            ..Names::default()
        });
        Ok(())
    }

    pub fn waits_so_far(&self, process: &TracedProcess) -> Result<WaitTotals, Error> {
        let noted = self.records(process, Split::Lock)?;
        Ok(noted.map_or_else(WaitTotals::default, |(noted, _)| noted.totals()))
    }

    pub fn records(
        &self,
        process: &TracedProcess,
        by: Split,
    ) -> Result<Option<(WaitRecords, &Names)>, Error> {
        let Some(names) = &self.names else {
            return Ok(None);
        };
        // The waits of an ended process are known only up to the last look.
        let now = match process.target.has_ended() {
            true => self.seen.last_look(),
            false => clock::ticks(),
        };
        let mut noted = WaitRecords::at(now);
        if let Some(watched) = &self.in_kernel {
            let by_thread = by == Split::Thread;
            watched.add_to(&mut noted, process.target.process, by_thread)?;
        }
        self.early.add_to(&mut noted, by != Split::Scope);
        let Some(link) = &process.target.link else {
            return Ok(Some((noted, names)));
        };
        let scopes = (by == Split::Scope).then(|| scope_names(process));
        let scopes = scopes.transpose()?;
        let slots = link.lock_slot..link.lock_slot + WIDTH;
        let LockWatch { seen, ids, .. } = self;
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
        let failed = Error::unreadable("waits");
        counts::each_slab(link.data_file(), link.geometry(), slots, each).map_err(failed)?;
        Ok(Some((noted, names)))
    }

    pub fn kernel_note(&self, target: &Attached, coverage: &Coverage) -> Option<Note> {
        let watched = self.in_kernel.as_ref().filter(|watched| watched.is_alone)?;
        Some(watched.note(target, coverage.left_out.as_ref()))
    }

    pub fn stop_in_kernel(&mut self) {
        if let Some(watched) = &mut self.in_kernel {
            watched.futexes.stop();
        }
    }

    pub fn times_in_kernel(&self) -> Option<(ProgramTimes, Option<ProgramTimes>)> {
        let futexes = &self.in_kernel.as_ref()?.futexes;
        Some((futexes.times().unwrap_or_default(), futexes.times_of_all()))
    }

    /// Returns whether the process runs another program than the one that the kernel watches.
    pub fn has_left_kernel(&self) -> bool {
        let watched = self.in_kernel.as_ref();
        watched.is_some_and(|watched| watched.is_alone && watched.futexes.has_execed())
    }

    pub fn is_in_kernel(&self) -> bool {
        self.in_kernel
            .as_ref()
            .is_some_and(|watched| watched.is_alone)
    }
}

fn is_32_bit(modules: &[Module]) -> bool {
    let mut programs = modules.iter().filter(|module| module.is_program);
    programs.any(|program| program.object.image.header().class == Class::Elf32)
}
