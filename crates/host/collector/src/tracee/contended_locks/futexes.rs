//! Watches contended locks through the kernel's futex tracepoints. Counts all futex calls of a process, or those from
//! unpatched code if the agent (tiptoe's library) counts the others.

use std::collections::HashSet;
use std::rc::Rc;

use tiptoe_attach::Attached;
use tiptoe_attach::resident::agent_thread_of_another;
use tiptoe_kernel::Error as KernelError;
use tiptoe_kernel::futexes::{Depth, FutexDrops, Futexes, FutexesWanted};
use tiptoe_session::{Dropped, LockNote, Note};
use tiptoe_sys::host::procfs::Process;

use crate::error::{DropReason, Error, Reason};
use crate::module::{Module, Object};
use crate::planner::{is_libc, wrappers};
use crate::tracee::{Plan, TracedProcess};
use crate::ulocks::WaitRecords;
use crate::words;
use crate::words::session_target;

pub struct KernelFutexes {
    pub futexes: Futexes,
    /// Whether only the kernel reports the locks.
    pub is_alone: bool,
    files: Vec<File>,
}

struct File {
    object: Rc<Object>,
    wrappers: Vec<(u64, Depth)>,
    biases: HashSet<u64>,
}

impl KernelFutexes {
    /// The agent counts the calls that return to the addresses in `patched`; `None` if it counts none.
    pub fn begin(
        process: &TracedProcess,
        plan: &Plan,
        modules: &[Module],
        patched: Option<&[u64]>,
    ) -> Result<KernelFutexes, Error> {
        let (pid, presence) = (process.target.process, &process.presence);
        pid.known_in_kernel()?;
        let futexes = Futexes::load(FutexesWanted {
            pid: pid.pid(),
            by_thread: plan.lock_threads(),
            before_exec: process.target.is_before_exec(),
            beside_agent: patched.is_some(),
            agent_thread: presence.thread.or_else(|| agent_thread_of_another(pid)),
        });
        let mut watched = KernelFutexes {
            futexes: futexes?,
            is_alone: patched.is_none(),
            files: Vec::new(),
        };
        let patched = patched.unwrap_or_default().iter().copied();
        watched.futexes.leave_alone(patched)?;
        watched.step_over(modules)?;
        watched.futexes.start()?;
        Ok(watched)
    }

    /// Gives the BPF program the functions that it must skip to find a user's call site.
    pub fn step_over(&mut self, modules: &[Module]) -> Result<(), KernelError> {
        // libc must be last. While libc is unknown, the BPF program finds no call site, and looks again at the wait's
        // end. With libc alone, the program could take another runtime's function for the user's.
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
            // A file that is not mapped yet has an address only if it is linked at a fixed address.
            let placed = !module.text.is_empty() || module.has_its_place();
            if !placed || !file.biases.insert(module.bias) {
                continue;
            }
            let at = |(linked, depth): &(u64, Depth)| (linked.wrapping_add(module.bias), *depth);
            self.futexes.step_over(file.wrappers.iter().map(at))?;
        }
        Ok(())
    }

    pub fn add_to(
        &self,
        noted: &mut WaitRecords,
        process: Process,
        by_thread: bool,
    ) -> Result<(), Error> {
        let futexes = &self.futexes;
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

    /// `left_out` is why only the kernel reports the locks.
    pub fn note(&self, target: &Attached, left_out: Option<&Reason>) -> Note {
        let calls = self.futexes.calls().unwrap_or_default();
        let calls = calls.waits.saturating_add(calls.wakes);
        let took = self.futexes.times().unwrap_or_default().run_ns;
        let note = LockNote::InKernel {
            process: session_target(target),
            why: left_out.map(Reason::to_string),
            call_ns: took.checked_div(calls),
        };
        note.into()
    }
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
