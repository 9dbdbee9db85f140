//! Brings the agent into a running process, such that tiptoe may die at any instant.
//!
//! One thread of the target is borrowed for some milliseconds; the others never stop.
//!
//! 1. `borrow` chooses a thread by the call that it waits in, stops it (ptrace) and unwinds its
//!    stack. It takes the thread only if no frame may hold a lock that the loader needs, because
//!    `dlopen` would deadlock.
//! 2. The thread is sent to the `stub`, whose parameters hold everything that it needs to return.
//!    ptrace ends here, so that the program continues even if tiptoe dies.
//! 3. The stub makes three memfds; tiptoe takes them over (`offer`), fills and seals them.
//! 4. The stub makes the program's own loader load the agent, and gives the agent the name that
//!    maps shows, because the name that it was opened by would lead a debugger to one of the
//!    debugger's own descriptors. Then it calls the agent's entry, cleans up, and makes the
//!    interrupted system call again.
//!
//! The agent stays, and two pages (the stub's *home*) in which the next injection starts without a
//! write to any text. No byte of any file's segment is ever changed; for some microseconds the
//! unused rest of one text page is.
//!
//! The program may call exec at any time, also of a file that gives it more rights, while another
//! process keeps the old memory. So a held thread must be checked again before its registers
//! change: the memory of one program must not decide where a thread of another continues.
//!
//! A thread that holds the loader's lock (in a constructor, or a callback of `dl_iterate_phdr`) may
//! hold it for long, and a borrowed thread would wait for it. So no thread is borrowed while the
//! lock is held. If the lock is taken in the microseconds between the look and `dlopen`, the
//! borrowed thread waits for it.
//!
//! One deadlock is not prevented, because no stack shows it: the borrowed thread holds a lock of
//! the program, and a library's constructor in another thread waits for that lock under the
//! loader's lock.

mod borrow;
mod cave;
mod error;
mod later_masks;
mod mapped_files;
mod masks;
mod memfds;
mod poll_backoff;
mod process;
mod restart;
mod standstill;
mod stub;
mod talk;
mod traced_thread;
mod unwind;

use std::fs::TryLockError;
use std::io;
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tiptoe_sys::host::Error;
use tiptoe_sys::host::procfs::{self, RunningProgram};

pub use error::InjectError;
pub use masks::{HookedCall, Masks, Unready, Words};
pub use process::is_given_up;
pub use traced_thread::thread_pointer;

use borrow::{BorrowedThread, Ground};
use cave::Guest;
use memfds::Offer;
use process::{Mapping, Process};
use stub::{Mailbox, state};
use talk::Talk;
use tiptoe_price::own;
use unwind::Stacks;

/// Time for a thread that tiptoe borrowed right before it died to reach its home and to notice that
/// tiptoe is dead.
const ARRIVAL: Duration = Duration::from_secs(1);

/// Called once tiptoe holds the data and the plan, sized and sealed against truncation. It must map
/// the plan writable, because later nothing can, and write what the agent needs at its entry. It
/// should be quick, because the borrowed thread waits.
pub type Prepare<'a> = dyn FnMut(&OwnedFd, &OwnedFd) -> io::Result<()> + 'a;

/// The agent and the process to bring it into.
pub struct Inject<'a> {
    /// The process.
    pub pid: u32,
    /// The program that the process runs. If it has called exec since, the injection fails.
    pub program: RunningProgram,
    /// The agent, a shared object.
    pub agent: &'a [u8],
    /// The offset from the load base of `extern "C" fn(data_fd: i32, plan_fd: i32) -> i64`.
    pub entry_offset: u64,
    /// Returns whether an agent is loaded already; then no second one is loaded.
    pub resident: &'a dyn Fn() -> Resident,
    /// Bytes of the data segment.
    pub data_size: u64,
    /// Bytes of the plan segment.
    pub plan_size: u64,
    /// Whether to enter a process under seccomp as well.
    pub allow_seccomp: bool,
    /// The time to find a thread, and then to load the agent.
    pub deadline: Duration,
    /// Fills the segments.
    pub prepare: &'a mut Prepare<'a>,
}

/// Whether a process already contains an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resident {
    /// Nothing.
    None,
    /// An agent that the loader has not finished loading.
    Loading,
    /// An agent whose entry is at this address.
    Entry(u64),
}

/// The result of an injection.
#[derive(Debug)]
pub struct Injection {
    /// The segment that the target writes.
    pub data: OwnedFd,
    /// The segment that tiptoe writes, through the mapping that `prepare` made.
    pub plan: OwnedFd,
    /// What the agent's entry returned.
    pub entry_result: i64,
    /// The agent's load base; 0 if the agent was already loaded.
    pub agent_base: u64,
}

/// Returns the names of the libraries that a program's file needs; `None` if it is no ELF file.
pub fn needed_libraries(program: &std::path::Path) -> Option<Vec<String>> {
    let file = std::fs::File::open(program).ok()?;
    mapped_files::needed(&crate::target_files::content(file).ok()?)
}

/// Brings the agent into a running process.
pub fn inject(request: Inject<'_>) -> Result<Injection, InjectError> {
    let process = Process::open(request.pid, &request.program)?;
    let entered = enter(request, &process);
    // Whatever failed, it failed because the process died.
    entered.map_err(|error| match process.lives() {
        true => error,
        false => InjectError::Died { pid: process.pid },
    })
}

fn enter(request: Inject<'_>, process: &Process) -> Result<Injection, InjectError> {
    let deadline = Instant::now() + request.deadline;
    take_turn(process, deadline)?;
    let existing_entry = existing_entry(process, request.resident, deadline)?;
    let mappings = process.mappings()?;
    let loader = check_program(process, &mappings, request.allow_seccomp)?;
    let ground = Ground::find(process, &mappings, loader)?;
    let mut stacks = Stacks::new(process, mappings, loader);
    let calls = Calls::find(&mut stacks).ok_or(InjectError::NoLibc { pid: request.pid })?;
    let loads = existing_entry.is_none();
    let borrowed = borrow::borrow(process, stacks, ground, loads, deadline)?;

    // A thread that was borrowed late still gets the time that the loader needs.
    let deadline = deadline.max(Instant::now() + request.deadline / 2);
    let talk = Talk::new(process, &borrowed, deadline);
    let (stop, stopped) = mpsc::channel();
    std::thread::scope(|scope| {
        let talk = &talk;
        scope.spawn(move || talk.beat(&stopped));
        let entry = existing_entry.unwrap_or(0);
        let outcome = converse(request, entry, (process, &borrowed), talk, &calls);
        if outcome.is_err() {
            talk.abandon();
            borrow::mend(process, &borrowed);
        }
        drop(stop);
        outcome
    })
}

/// Talks with the stub, from its arrival to its departure.
fn converse(
    request: Inject<'_>,
    existing_entry: u64,
    (process, borrowed): (&Process, &BorrowedThread),
    talk: &Talk<'_>,
    calls: &Calls,
) -> Result<Injection, InjectError> {
    let pid = request.pid;
    let os = |call| move |error| InjectError::os(pid, call, error);
    talk.arrival()?;
    if talk.u32(offset_of!(Mailbox, cave_result))? != 0 {
        borrow::mend(process, borrowed);
    }
    talk.go(1)?;
    talk.wait(state::OFFERED)?;
    let at = offset_of!(Mailbox, fds);
    let fds = [
        talk.u32(at)? as i32,
        talk.u32(at + 4)? as i32,
        talk.u32(at + 8)? as i32,
    ];
    let offer = Offer::take(pid, borrowed.tid, fds)?;
    // An agent that is loaded already is not loaded again.
    let agent = match existing_entry {
        0 => request.agent,
        _ => &[],
    };
    offer
        .fill(agent, request.data_size, request.plan_size)
        .map_err(os("filling a memfd"))?;
    (request.prepare)(&offer.data, &offer.plan).map_err(os("preparing the segments"))?;
    offer.close_plan().map_err(os("sealing a memfd"))?;

    talk.put(offset_of!(Mailbox, dlopen), &calls.dlopen.to_le_bytes())?;
    talk.put(offset_of!(Mailbox, mode), &calls.mode.to_le_bytes())?;
    talk.put(
        offset_of!(Mailbox, errno_location),
        &calls.errno_location.to_le_bytes(),
    )?;
    talk.put(offset_of!(Mailbox, entry), &existing_entry.to_le_bytes())?;
    talk.put(
        offset_of!(Mailbox, entry_offset),
        &request.entry_offset.to_le_bytes(),
    )?;
    talk.put(offset_of!(Mailbox, path), unique_path(fds[0]).as_bytes())?;
    talk.go(2)?;
    talk.wait(state::DONE)
        .map_err(|error| explain(process, error))?;
    let entry_result = talk.u64(offset_of!(Mailbox, result))? as i64;
    let agent_base = talk.u64(offset_of!(Mailbox, base))?;
    talk.departure()?;
    own::note_stop(borrowed.since.elapsed());
    Ok(Injection {
        data: offer.data,
        plan: offer.plan,
        entry_result,
        agent_base,
    })
}

/// Returns [`InjectError::NoProc`] if the loader refused for lack of /proc, through which it opens
/// the agent.
fn explain(process: &Process, error: InjectError) -> InjectError {
    match error {
        InjectError::Refused { pid }
            if process.proc("root/proc/self").symlink_metadata().is_err() =>
        {
            InjectError::NoProc { pid }
        }
        other => other,
    }
}

/// The functions of libc that the stub calls.
struct Calls {
    dlopen: u64,
    mode: u64,
    errno_location: u64,
}

/// RTLD_NOW | RTLD_LOCAL.
const NOW: u64 = 2;
/// What `dlopen` itself adds.
const BY_DLOPEN: u64 = 0x8000_0000;

impl Calls {
    /// Finds the functions. Before 2.34, glibc kept `dlopen` in a library of its own, which few
    /// programs load; libc itself has another form of it, for its own use.
    fn find(stacks: &mut Stacks<'_>) -> Option<Self> {
        let libc = stacks.libc()?;
        let of_its_own = || Some((libc.function("__libc_dlopen_mode")?, NOW | BY_DLOPEN));
        let dlopen = libc.function("dlopen").map(|dlopen| (dlopen, NOW));
        let (dlopen, mode) = dlopen.or_else(of_its_own)?;
        Some(Self {
            dlopen,
            mode,
            errno_location: libc.function("__errno_location")?,
        })
    }
}

/// Waits until no other injection into the process runs, by a lock of /proc/PID/mem (flock(2)). The
/// process holds the lock until it is dropped, and the kernel drops it if tiptoe dies. Only a
/// process that may trace the target can open that file, so that no other can block tiptoe. A
/// process that may trace the target can hold the lock for ever, as it can hold the target by
/// ptrace; the error names it.
fn take_turn(process: &Process, deadline: Instant) -> Result<(), InjectError> {
    let pid = process.pid;
    loop {
        match process.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => {
                return Err(InjectError::os(pid, "lock of /proc/PID/mem", error));
            }
            Err(TryLockError::WouldBlock) if Instant::now() > deadline => {
                let holder = process.lock_holder().map_or_else(
                    || "a process".to_owned(),
                    |holder| format!("process {holder}"),
                );
                return Err(InjectError::Busy {
                    pid,
                    why: format!(
                        "{holder} holds the lock of /proc/PID/mem, as another tiptoe does before its agent \
                         enters"
                    ),
                });
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Returns the entry of a loaded agent, once no other injection is under way. The thread that
/// another tiptoe borrowed continues when that tiptoe dies, and may be about to load an agent;
/// without this wait two agents would be loaded.
fn existing_entry(
    process: &Process,
    resident: &dyn Fn() -> Resident,
    deadline: Instant,
) -> Result<Option<u64>, InjectError> {
    let patience = Instant::now() + ARRIVAL;
    loop {
        let away = match cave::guest(process, &process.mappings()?) {
            Some(Guest::Thread) => true,
            Some(Guest::Unknown) => Instant::now() < patience,
            None => false,
        };
        match resident() {
            Resident::None if !away => return Ok(None),
            Resident::Entry(entry) if !away => return Ok(Some(entry)),
            _ if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
            _ => {
                return Err(InjectError::Busy {
                    pid: process.pid,
                    why: "its loader is not done with the agent of another tiptoe".into(),
                });
            }
        }
    }
}

/// Refuses what cannot be traced from inside; else returns the dynamic loader's address.
fn check_program(
    process: &Process,
    mappings: &[Mapping],
    allow_seccomp: bool,
) -> Result<u64, InjectError> {
    const ELF_CLASS_AND_MACHINE: [(usize, u8); 3] = [(4, 2), (18, 62), (19, 0)];
    let pid = process.pid;
    let status = process::status(pid, pid)?;
    if status.tracer != 0 {
        return Err(InjectError::AlreadyTraced {
            pid,
            by: status.tracer,
        });
    }
    if status.seccomp && !allow_seccomp {
        return Err(InjectError::Seccomp { pid });
    }
    let exe = procfs::Process::new(pid).and_then(procfs::Process::open_exe);
    let exe = exe.map_err(|error| match error {
        // A thread of the kernel has none.
        Error::NoSuchProcess { .. } => InjectError::Foreign { pid },
        Error::PermissionDenied { .. } => InjectError::os(
            pid,
            "open of /proc/PID/exe",
            io::ErrorKind::PermissionDenied.into(),
        ),
        error => InjectError::os(pid, "open of /proc/PID/exe", io::Error::other(error)),
    })?;
    let mut head = [0; 20];
    let read = std::os::unix::fs::FileExt::read_exact_at(&exe, &mut head, 0);
    if read.is_err()
        || ELF_CLASS_AND_MACHINE
            .iter()
            .any(|(at, value)| head[*at] != *value)
    {
        return Err(InjectError::Foreign { pid });
    }
    if mappings
        .iter()
        .any(|mapping| mapping.path.contains("/ld-musl-"))
    {
        return Err(InjectError::Musl { pid });
    }
    let base = process.auxv(libc::AT_BASE);
    let loader = base.filter(|base| mappings.iter().any(|m| m.start == *base));
    loader.ok_or(InjectError::Static { pid })
}

/// Returns a name for the agent's descriptor that the loader has not seen, because it would take
/// another file of the same name for the same library. Sixteen random bits are written as `/` or
/// `/./`.
fn unique_path(fd: i32) -> String {
    use std::hash::{BuildHasher as _, Hasher as _};
    let nonce = std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish();
    let mut path = String::from("/proc/thread-self/fd");
    for bit in 0..16 {
        path.push_str(if nonce >> bit & 1 == 0 { "/" } else { "/./" });
    }
    format!("{path}{fd}\0")
}
