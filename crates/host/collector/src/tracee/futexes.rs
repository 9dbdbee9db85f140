//! Watches contended locks of one process through the kernel's futex tracepoints: all of its futex
//! calls, or beside the agent those from sites that could not be patched.

use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use tiptoe_attach::resident::agent_thread_of_another;
use tiptoe_kernel::futexes::{Depth, FutexDrops, Futexes, FutexesWanted};
use tiptoe_kernel::{Error as KernelError, ProgramTimes};
use tiptoe_session::{Dropped, LockNote, Note};
use tiptoe_symbol::Class;
use tiptoe_sys::host::procfs::Process;

use super::contended_locks::LockWatch;
use super::{Plan, Tracee};
use crate::drive::{RunClock, session_target};
use crate::error::{DropReason, Error, Reason};
use crate::module::{Cache, Module, Object};
use crate::planner::{is_libc, wrappers};
use crate::ulocks::WaitRecords;
use crate::words;

/// The longest time until a command's loader has mapped its libraries.
const LOADING: Duration = Duration::from_millis(500);

/// The futex calls that the kernel counts.
pub(super) struct InKernel {
    futexes: Futexes,
    /// Whether the agent counts the sites that it patched.
    beside_agent: bool,
    files: Vec<File>,
}

/// A file of the program, and its functions between futex calls and the user's code.
struct File {
    object: Rc<Object>,
    wrappers: Vec<(u64, Depth)>,
    /// The biases at which the kernel already skips these functions.
    biases: HashSet<u64>,
}

impl InKernel {
    /// Gives the kernel the functions of these modules, which it must skip to find a user's call
    /// site.
    fn step_over(&mut self, modules: &[Module]) -> Result<(), KernelError> {
        // libc must be last: until the kernel knows its functions, a wait has no caller, and the
        // kernel looks for one again at the wait's end.
        let (libc, others): (Vec<_>, Vec<_>) = modules.iter().partition(|module| is_libc(module));
        for module in others.into_iter().chain(libc) {
            let known = self
                .files
                .iter()
                .position(|file| Rc::ptr_eq(&file.object, &module.object));
            let index = known.unwrap_or_else(|| {
                self.files.push(File {
                    object: module.object.clone(),
                    wrappers: wrappers(module),
                    biases: HashSet::new(),
                });
                self.files.len() - 1
            });
            let file = &mut self.files[index];
            // A file that is not mapped yet has no address, unless it is linked at one.
            let placed = !module.text.is_empty() || has_its_place(module);
            if !placed || !file.biases.insert(module.bias) {
                continue;
            }
            let at = |(linked, depth): &(u64, Depth)| (linked.wrapping_add(module.bias), *depth);
            self.futexes.step_over(file.wrappers.iter().map(at))?;
        }
        Ok(())
    }
}

impl LockWatch {
    /// Prepares to look for the modules of a command that has not called exec.
    pub fn expect_start(&mut self, before: Vec<Module>) {
        let is_watched = self.in_kernel.is_some();
        self.starting = is_watched.then_some((before, None));
    }

    /// Returns whether the process is a command that may not have called exec yet.
    pub fn is_starting(&self) -> bool {
        self.starting.is_some()
    }

    /// Calls [`InKernel::step_over`], if the kernel counts.
    pub(super) fn step_over(&mut self, modules: &[Module]) -> Result<(), Error> {
        match &mut self.in_kernel {
            Some(watched) => watched.step_over(modules).map_err(Error::from),
            None => Ok(()),
        }
    }

    /// Stops counting in the kernel; the counts stay readable.
    pub fn stop_in_kernel(&mut self) {
        if let Some(watched) = &mut self.in_kernel {
            watched.futexes.stop();
        }
    }

    pub(super) fn note_in_kernel(
        &self,
        noted: &mut WaitRecords,
        process: Process,
        by_thread: bool,
    ) -> Result<(), Error> {
        let Some(InKernel { futexes, .. }) = &self.in_kernel else {
            return Ok(());
        };
        let drops = futexes.drops()?;
        noted.add_in_kernel(&futexes.read()?, futexes.calls()?, drops.ended_inside);
        let now = tiptoe_sys::raw::monotonic_ns();
        for (key, since) in futexes.waiting()? {
            let comm = process.thread_comm(key.thread as u32);
            let thread = format!("{} {}", key.thread, comm.unwrap_or_default());
            let who = if by_thread { &*thread } else { "" };
            noted.add_open_in_kernel(key, who, now.saturating_sub(since));
        }
        noted.add_drops(dropped(drops));
        Ok(())
    }

    /// Returns the kernel programs' run times, for this process and for all.
    pub fn times_in_kernel(&self) -> Option<(ProgramTimes, Option<ProgramTimes>)> {
        let watched = self.in_kernel.as_ref()?;
        let own = watched.futexes.times().unwrap_or_default();
        Some((own, watched.futexes.times_of_all()))
    }

    /// Returns whether the process runs another program than the one watched in the kernel.
    pub(super) fn has_left_kernel(&self) -> bool {
        let watched = self.in_kernel.as_ref();
        watched.is_some_and(|watched| !watched.beside_agent && watched.futexes.has_execed())
    }

    /// Returns whether only the kernel reports its locks.
    pub fn is_in_kernel(&self) -> bool {
        let watched = self.in_kernel.as_ref();
        watched.is_some_and(|watched| !watched.beside_agent)
    }
}

impl Tracee {
    /// The pause between two looks for the libraries of a command that loads them.
    pub const START_PAUSE: Duration = Duration::from_micros(200);

    pub(super) fn watch_in_kernel(&mut self, plan: &Plan, modules: &[Module]) -> Result<(), Error> {
        if is_32_bit(modules) {
            return Err(Error::LocksOf32Bit(self.target.comm.clone()));
        }
        if plan.hold().is_some() {
            return Err(Error::HoldWithoutAgent);
        }
        let watched = self.watch_calls(plan, modules, None);
        watched.map_err(|error| self.coverage.or_agent(error))
    }

    /// Makes the kernel report the futex calls that do not return to `patched` addresses.
    pub(super) fn watch_left_out(
        &mut self,
        plan: &Plan,
        modules: &[Module],
        patched: &[u64],
    ) -> Result<(), Error> {
        self.watch_calls(plan, modules, Some(patched))
    }

    fn watch_calls(
        &mut self,
        plan: &Plan,
        modules: &[Module],
        patched: Option<&[u64]>,
    ) -> Result<(), Error> {
        self.target.process.known_in_kernel()?;
        let futexes = Futexes::load(FutexesWanted {
            pid: self.target.process.pid(),
            by_thread: plan.lock_threads(),
            before_exec: modules.iter().all(|module| module.text.is_empty()),
            beside_agent: patched.is_some(),
            agent_thread: self
                .presence
                .thread
                .or_else(|| agent_thread_of_another(self.target.process)),
        });
        let mut watched = InKernel {
            futexes: futexes?,
            beside_agent: patched.is_some(),
            files: Vec::new(),
        };
        let patched = patched.unwrap_or_default().iter().copied();
        watched.futexes.leave_alone(patched)?;
        watched.step_over(modules)?;
        watched.futexes.start()?;
        self.locks.in_kernel = Some(watched);
        Ok(())
    }

    /// Looks whether a started command has mapped its libraries, so that later waits have call
    /// sites. Returns whether it still loads some.
    pub fn catch_start(&mut self, cache: &mut Cache) -> bool {
        let Some((before, since)) = &mut self.locks.starting else {
            return false;
        };
        let since = since.get_or_insert_with(RunClock::start);
        let maps = self.target.process.maps().unwrap_or_default();
        let is_loading = cache.adopt(before, &maps) < before.len();
        if is_loading && since.elapsed() < LOADING && !self.target.has_ended() {
            return true;
        }
        self.locks.starting = None;
        // Fails only if the process has ended.
        let _ = self.look_for_names(cache);
        false
    }

    /// Returns a note that only the kernel reports its locks, with the reason and the cost.
    pub fn kernel_note(&self) -> Option<Note> {
        let watched = self.locks.in_kernel.as_ref();
        let watched = watched.filter(|watched| !watched.beside_agent)?;
        let calls = watched.futexes.calls().unwrap_or_default();
        let calls = calls.waits.saturating_add(calls.wakes);
        let took = watched.futexes.times().unwrap_or_default().run_ns;
        let note = LockNote::InKernel {
            process: session_target(&self.target),
            why: self.coverage.left_out.as_ref().map(Reason::to_string),
            call_ns: took.checked_div(calls),
        };
        Some(note.into())
    }
}

/// Returns whether a module is always mapped at its linked address.
fn has_its_place(module: &Module) -> bool {
    module.is_program && !module.object.image.header().position_independent
}

fn is_32_bit(modules: &[Module]) -> bool {
    let mut programs = modules.iter().filter(|module| module.is_program);
    programs.any(|program| program.object.image.header().class == Class::Elf32)
}

fn dropped(drops: FutexDrops) -> Vec<Dropped> {
    words::dropped([
        (drops.no_room_for_thread, DropReason::ManyFutexThreads),
        (drops.no_room_for_row, DropReason::ManyFutexes),
        (drops.no_end, DropReason::NoFutexEnd),
        (drops.negative, DropReason::NegativeFutexWait),
        (drops.nested, DropReason::NestedCall),
        (drops.missed, DropReason::MissedCall),
        (drops.other_calls, DropReason::OtherFutexCalls),
    ])
}
