//! Brings the agent (tiptoe's library) into a running process. The process continues even if tiptoe dies during the
//! injection.
//!
//! tiptoe borrows one thread of the target for some milliseconds, while the other threads run.
//!
//! 1. `borrow` chooses a thread and stops it by ptrace. No function on that thread's stack may hold a lock that the
//!    loader needs, because `dlopen` would deadlock.
//! 2. The thread runs the `stub` (injected code), whose parameters contain the thread's registers. So the thread can
//!    return without tiptoe, and ptrace ends here.
//! 3. The stub makes three memfds. tiptoe copies their descriptors, fills the memfds and seals them (`memfds`).
//! 4. The stub calls `dlopen` for the agent, and renames the agent in the loader's list ([`crate::loader`] says why).
//!    Then it calls the agent's entry, cleans up, and repeats the interrupted system call.
//!
//! Two things stay in the process: the agent, and two pages (the stub's *home*), where the next injection
//! starts. The bytes of a file's segments never change. Only the unused rest of one text page changes, for some
//! microseconds.
//!
//! The program may call exec at any time, even for a setuid file, and another process may keep the old memory in
//! use. So tiptoe must check a stopped thread's program again before it changes registers. Otherwise the old
//! program's memory could decide where a thread of the new program continues.
//!
//! A thread may hold the loader's lock for long, in a constructor or in a callback of `dl_iterate_phdr`. During
//! such a hold tiptoe borrows no thread. If another thread takes the lock after tiptoe's last check, `dlopen` waits
//! in the borrowed thread.
//!
//! One deadlock cannot be prevented: in another thread, a library's constructor holds the loader's lock and waits for
//! a lock of the borrowed thread. No stack shows this wait.

mod borrow;
mod cave;
mod free_masks;
mod later_masks;
mod mailbox_client;
mod mapped_files;
mod masks;
mod memfds;
mod poll_backoff;
mod process;
mod restart;
mod standstill;
mod stub;
mod traced_thread;
mod unwind;

use std::fs::TryLockError;
use std::io;
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tiptoe_sys::host::procfs::{self, Mapping, RunningProgram};
use tiptoe_sys::host::{Error, random};

pub use crate::error::inject_error::{
    BadDescriptor, BusyReason, Delay, InjectCall, InjectError, UnfitThread,
};
pub use free_masks::{HookedCall, MaskFailure};
pub use masks::{Masks, Words};
pub(crate) use process::auxv_value;
pub use process::is_given_up;
pub use traced_thread::thread_pointer;

use borrow::{BorrowedThread, StubStart};
use cave::HomeOccupant;
use mailbox_client::MailboxClient;
pub(crate) use memfds::OfferedFds;
use process::Process;
use stub::{Mailbox, state};
use tiptoe_price::own;
use unwind::Stacks;

/// If tiptoe dies right after it borrows a thread, the thread reaches its home and notices tiptoe's death within this
/// time.
const ARRIVAL: Duration = Duration::from_secs(1);

/// A callback that runs when the lengths of the data and plan segments are sealed. It must write what the agent's
/// entry reads, and must map the plan writable, because later seals forbid such a mapping. It should be quick,
/// because the borrowed thread waits.
pub type Prepare<'a> = dyn FnMut(&OwnedFd, &OwnedFd) -> io::Result<()> + 'a;

/// A request for an injection.
pub struct Inject<'a> {
    /// The process.
    pub pid: u32,
    /// The process's program. The injection fails if the process now runs another program.
    pub program: RunningProgram,
    /// The agent, a shared object.
    pub agent: &'a [u8],
    /// The entry's offset in the agent: `extern "C" fn(data_fd: i32, plan_fd: i32) -> i64`.
    pub entry_offset: u64,
    /// Returns whether the process already contains an agent.
    pub resident: &'a dyn Fn() -> Resident,
    /// Bytes of the data segment.
    pub data_size: u64,
    /// Bytes of the plan segment.
    pub plan_size: u64,
    /// Whether to enter a process under seccomp.
    pub allow_seccomp: bool,
    /// The time to find a thread. Loading the agent may take the rest of this time, or half of this time if less than
    /// half is left.
    pub deadline: Duration,
    /// Fills the segments.
    pub prepare: &'a mut Prepare<'a>,
}

/// Whether a process contains an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resident {
    /// No agent.
    None,
    /// An agent that is not fully loaded.
    Loading,
    /// A loaded agent's entry.
    Entry(u64),
}

/// The result of an injection.
#[derive(Debug)]
pub struct Injection {
    /// The segment that the target writes.
    pub data: OwnedFd,
    /// The segment that tiptoe writes.
    pub plan: OwnedFd,
    /// What the agent's entry returned.
    pub entry_result: i64,
    /// The agent's load base; 0 if it was already loaded.
    pub agent_base: u64,
}

pub(crate) fn needed_libraries(program: &Path) -> Option<Vec<String>> {
    let file = std::fs::File::open(program).ok()?;
    mapped_files::needed(&crate::target_files::content(file).ok()?)
}

/// Brings the agent into a running process.
pub fn inject(request: Inject<'_>) -> Result<Injection, InjectError> {
    let process = Process::open(request.pid, &request.program)?;
    let entered = enter(request, &process);
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
    let stub_start = StubStart::find(process, &mappings, loader)?;
    let mut stacks = Stacks::new(process, mappings, loader);
    let calls = Calls::find(&mut stacks).ok_or(InjectError::NoLibc { pid: request.pid })?;
    let needs_loader = existing_entry.is_none();
    let borrowed = borrow::borrow(process, stacks, stub_start, needs_loader, deadline)?;

    // The loader needs time even if the thread was borrowed late.
    let deadline = deadline.max(Instant::now() + request.deadline / 2);
    let mailbox = MailboxClient::new(process, &borrowed, deadline);
    let (stop, stopped) = mpsc::channel();
    std::thread::scope(|scope| {
        let mailbox = &mailbox;
        scope.spawn(move || mailbox.beat(&stopped));
        let entry = existing_entry.unwrap_or(0);
        let outcome = converse(request, entry, &borrowed, mailbox, &calls);
        if outcome.is_err() {
            mailbox.abandon();
            borrow::mend(process, &borrowed);
        }
        drop(stop);
        outcome
    })
}

fn converse(
    request: Inject<'_>,
    existing_entry: u64,
    borrowed: &BorrowedThread,
    mailbox: &MailboxClient<'_>,
    calls: &Calls,
) -> Result<Injection, InjectError> {
    let (pid, process) = (request.pid, mailbox.process);
    let os = |call| move |error| InjectError::os(pid, call, error);
    mailbox.arrival()?;
    if mailbox.u32(offset_of!(Mailbox, cave_result))? != 0 {
        borrow::mend(process, borrowed);
    }
    mailbox.go(1)?;
    mailbox.wait(state::OFFERED)?;
    let at = offset_of!(Mailbox, fds);
    let fds = [
        mailbox.u32(at)? as i32,
        mailbox.u32(at + 4)? as i32,
        mailbox.u32(at + 8)? as i32,
    ];
    let offer = OfferedFds::take(pid, borrowed.tid, fds)?;
    // A loaded agent is not loaded again, so its memfd stays empty.
    let agent = match existing_entry {
        0 => request.agent,
        _ => &[],
    };
    offer
        .fill(agent, request.data_size, request.plan_size)
        .map_err(os(InjectCall::FillMemfd))?;
    (request.prepare)(&offer.data, &offer.plan).map_err(os(InjectCall::PrepareSegments))?;
    offer.close_plan().map_err(os(InjectCall::SealMemfd))?;

    for (field, word) in [
        (offset_of!(Mailbox, dlopen), calls.dlopen),
        (offset_of!(Mailbox, mode), calls.mode),
        (offset_of!(Mailbox, errno_location), calls.errno_location),
        (offset_of!(Mailbox, entry), existing_entry),
        (offset_of!(Mailbox, entry_offset), request.entry_offset),
    ] {
        mailbox.put(field, &word.to_le_bytes())?;
    }
    mailbox.put(offset_of!(Mailbox, path), unique_path(fds[0]).as_bytes())?;
    mailbox.go(2)?;
    mailbox
        .wait(state::DONE)
        .map_err(|error| explain(process, error))?;
    let entry_result = mailbox.u64(offset_of!(Mailbox, result))? as i64;
    let agent_base = mailbox.u64(offset_of!(Mailbox, base))?;
    mailbox.departure()?;
    own::note_stop(borrowed.since.elapsed());
    Ok(Injection {
        data: offer.data,
        plan: offer.plan,
        entry_result,
        agent_base,
    })
}

/// Turns `Refused` into `NoProc` if the program sees no /proc, through which its loader opens the agent.
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

struct Calls {
    dlopen: u64,
    mode: u64,
    errno_location: u64,
}

/// RTLD_NOW | RTLD_LOCAL.
const NOW: u64 = 2;
/// The flag that `dlopen` itself adds.
const BY_DLOPEN: u64 = 0x8000_0000;

impl Calls {
    /// Finds the functions in libc. Before 2.34, `dlopen` was in a library of glibc that few programs load, but libc
    /// had an internal form of `dlopen`.
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

/// Waits until no other injection into the process runs, then locks /proc/PID/mem (flock(2)) until `process` is
/// dropped or tiptoe dies. Only a process that may trace the target can open that file, and so block tiptoe.
fn take_turn(process: &Process, deadline: Instant) -> Result<(), InjectError> {
    let pid = process.pid;
    loop {
        match process.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => {
                return Err(InjectError::os(pid, InjectCall::LockMemory, error));
            }
            Err(TryLockError::WouldBlock) if Instant::now() > deadline => {
                let why = BusyReason::MemoryLocked(process.lock_holder());
                return Err(InjectError::Busy { pid, why });
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Returns a loaded agent's entry. First waits until no other injection is in progress, because a thread that a
/// dead tiptoe borrowed could still load an agent.
fn existing_entry(
    process: &Process,
    resident: &dyn Fn() -> Resident,
    deadline: Instant,
) -> Result<Option<u64>, InjectError> {
    let patience = Instant::now() + ARRIVAL;
    loop {
        let away = match cave::occupant(process, &process.mappings()?) {
            Some(HomeOccupant::Thread) => true,
            Some(HomeOccupant::Unknown) => Instant::now() < patience,
            None => false,
        };
        match resident() {
            Resident::None if !away => return Ok(None),
            Resident::Entry(entry) if !away => return Ok(Some(entry)),
            _ if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
            _ => {
                return Err(InjectError::Busy {
                    pid: process.pid,
                    why: BusyReason::LoaderBusy,
                });
            }
        }
    }
}

/// Returns the dynamic loader's address; fails if the agent cannot work in this program.
fn check_program(
    process: &Process,
    mappings: &[Mapping],
    allow_seccomp: bool,
) -> Result<u64, InjectError> {
    const ELF_CLASS_AND_MACHINE: [(usize, u8); 3] = [(4, 2), (18, 62), (19, 0)];
    let pid = process.pid;
    let status = process::status(pid, pid)?;
    if status.tracer_pid != 0 {
        return Err(InjectError::AlreadyTraced {
            pid,
            by: status.tracer_pid,
        });
    }
    if status.seccomp != 0 && !allow_seccomp {
        return Err(InjectError::Seccomp { pid });
    }
    let exe = procfs::Process::new(pid).and_then(procfs::Process::open_exe);
    let exe = exe.map_err(|error| match error {
        // A kernel thread has no program.
        Error::NoSuchProcess { .. } => InjectError::Foreign { pid },
        Error::PermissionDenied { .. } => InjectError::os(
            pid,
            InjectCall::OpenProgram,
            io::ErrorKind::PermissionDenied.into(),
        ),
        error => InjectError::os(pid, InjectCall::OpenProgram, io::Error::other(error)),
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
    let is_musl = |path: &Path| path.to_string_lossy().contains("/ld-musl-");
    let mut paths = mappings.iter().filter_map(|m| m.path.as_deref());
    if paths.any(is_musl) {
        return Err(InjectError::Musl { pid });
    }
    let base = process.auxv(libc::AT_BASE);
    let loader = base.filter(|base| mappings.iter().any(|m| m.start == *base));
    loader.ok_or(InjectError::Static { pid })
}

/// Returns a new path of the agent's descriptor, because the loader takes files with the same path for the same
/// library. Each of 16 random bits adds `/` or `/./`.
fn unique_path(fd: i32) -> String {
    let [nonce]: [u64; 1] = random::words();
    let mut path = String::from("/proc/thread-self/fd");
    for bit in 0..16 {
        path.push_str(if nonce >> bit & 1 == 0 { "/" } else { "/./" });
    }
    format!("{path}{fd}\0")
}
