//! The agent's two entries: a call on a thread that tiptoe borrows (`-p`), and a constructor that runs before other
//! libraries' (`-- CMD`). An entry begins a session with two shared segments: the agent writes *data*, tiptoe writes
//! the *plan*.

use core::ffi::c_int;
use core::mem::size_of_val;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tiptoe_sys::raw::{Errno, call, close, futex, getpid, membarrier, nr, sleep_ns};
use tiptoe_wire::{Data, descriptors::seals};

use crate::owner::is_owned;
use crate::shared::{self, Shared};
use crate::thread::{self, SessionGuard};
use crate::{environ, hit, memory, serve, session, signals, space, tasks, tls, watches};

/// The interval of a starting program's checks whether its session has ended.
const LOOK_NS: u64 = 20_000_000;
/// The interval of other checks, between which nothing wakes the waiting thread.
const SOON_NS: u64 = 1_000_000;

/// The agent's name in `/proc/PID/maps`. tiptoe writes it into the loader's list, because the path there
/// (`/proc/self/fd/N`) later leads to another file.
#[unsafe(no_mangle)]
#[used]
pub static TIPTOE_NAME: [u8; 30] = *b"/memfd:tiptoe-agent (deleted)\0";

#[unsafe(link_section = ".init_array")]
#[used]
static CONSTRUCTOR: extern "C" fn() = constructor;

/// Becomes 1 once the loader has loaded this agent. tiptoe must not call [`tiptoe_agent_entry`] before.
#[unsafe(no_mangle)]
static TIPTOE_LOADED: AtomicU32 = AtomicU32::new(0);

/// The key in tiptoe's environment entry. tiptoe writes the key into the agent's file; 0 if there is no entry.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".data.tiptoe_key")]
#[used]
static TIPTOE_KEY: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Begins a session on the segments of two descriptors, which the caller closes. Returns 0, or a negated errno; the
/// program is then unchanged.
#[unsafe(no_mangle)]
pub extern "C" fn tiptoe_agent_entry(data_fd: c_int, plan_fd: c_int) -> i64 {
    match begin(data_fd, plan_fd, true) {
        Ok(_) => 0,
        Err(Errno(code)) => -(code as i64),
    }
}

/// Begins a session. `is_running` must be false if the program waits until its probes are armed.
fn begin(data_fd: c_int, plan_fd: c_int, is_running: bool) -> Result<&'static Shared, Errno> {
    const EPERM: Errno = Errno(1);
    if !are_segments(data_fd, plan_fd) {
        return Err(EPERM);
    }
    // If the program has called mlockall, the loader's mapping of this image is locked, too.
    let image = memory::image();
    let _ = memory::unlock(image.start, image.len());
    let shared = shared::create()?;
    let guard = lock(shared)?;
    let pid = getpid();
    // Relaxed, here and below: the lock orders sessions, and the clone of the agent's thread publishes the stores.
    let was_home = shared.is_home();
    if !was_home {
        session::forget(shared);
    }
    shared.must_leave.store(false, Ordering::Relaxed);
    if tasks::count() == 1 {
        // With several threads the registration takes 10 to 20 ms, so the agent's thread registers.
        membarrier::register()?;
    }
    signals::learn_layout();
    tls::learn_layout();
    session::begin(shared, data_fd, plan_fd)?;
    shared.pid.store(pid, Ordering::Relaxed);
    shared.go.store(is_running.into(), Ordering::Relaxed);
    if !was_home {
        serve::restore_attached(shared);
    }
    space::begin(shared);
    watches::begin();
    thread::start(guard).map_err(|(_guard, errno)| {
        session::give_up(shared);
        errno
    })?;
    Ok(shared)
}

/// Takes the session's lock. Waits at most about 5 ms for a former session's end, because the caller is a thread of the
/// program. tiptoe can try again.
fn lock(shared: &'static Shared) -> Result<SessionGuard, Errno> {
    const EBUSY: Errno = Errno(16);
    const EALREADY: Errno = Errno(114);
    for _ in 0..25 {
        let guard = SessionGuard::take(shared);
        // A forked child has a copy of its parent's `Shared`, but not of the segments.
        if let Some(data) = shared.data().filter(|_| shared.is_home()) {
            // Relaxed: if tiptoe dies just now, either error is right.
            let owner = data.owner().map_or(0, |word| word.load(Ordering::Relaxed));
            return Err(match is_owned(owner) {
                true => EALREADY,
                false => EBUSY,
            });
        }
        if let Some(guard) = guard {
            return Ok(guard);
        }
        sleep_ns(SOON_NS / 5);
    }
    Err(EBUSY)
}

fn are_segments(data_fd: c_int, plan_fd: c_int) -> bool {
    memory::has_seals(data_fd, seals::DATA) && memory::has_seals(plan_fd, seals::PLAN)
}

/// Takes no arguments, because musl's loader passes none.
extern "C" fn constructor() {
    TIPTOE_LOADED.store(1, Ordering::Release); // Release: tiptoe reads it from outside
    // Relaxed: tiptoe wrote the key before the image was loaded.
    let key = TIPTOE_KEY
        .each_ref()
        .map(|word| word.load(Ordering::Relaxed));
    if key == [0; 2] {
        // The agent was injected into a running program.
        return;
    }
    let Some(envp) = environ::find_array() else {
        return;
    };
    // SAFETY: this is the kernel's array, and the program has no other thread yet.
    let Some(passed) = (unsafe { environ::take(envp, key) }) else {
        return;
    };
    if !memory::has_seals(passed.agent, seals::AGENT) || !are_segments(passed.data, passed.plan) {
        return;
    }
    match begin(passed.data, passed.plan, false) {
        Ok(shared) => {
            if !wait_for_go(shared) {
                wait_for_owner(passed.data);
            }
            // The program's only thread gets its slab (block of counters) now, because the program may later forbid
            // itself the system calls for that.
            hit::give_slab_to_caller();
        }
        Err(errno) => {
            refuse(passed.data, errno);
            wait_for_owner(passed.data);
        }
    }
    for fd in [passed.agent, passed.data, passed.plan] {
        close(fd);
    }
}

/// Reports to tiptoe that no session began, without mapping the segment, because memory may be lacking.
fn refuse(data: c_int, Errno(code): Errno) {
    let words = Data::refusal(code as u64);
    let (at, offset) = (words.as_ptr() as usize, Data::REFUSAL_OFFSET as usize);
    // SAFETY: the call reads the words, which live through it.
    let _ = unsafe {
        call(
            nr::PWRITE64,
            [data as usize, at, size_of_val(&words), offset, 0, 0],
        )
    };
}

/// Makes the program wait until tiptoe releases the segment's owner word, or dies.
fn wait_for_owner(data: c_int) {
    loop {
        let mut word = 0u32;
        let (at, offset) = (&raw mut word as usize, Data::OWNER_OFFSET as usize);
        // SAFETY: the call writes the word, which lives through it.
        let read = unsafe {
            call(
                nr::PREAD64,
                [data as usize, at, size_of_val(&word), offset, 0, 0],
            )
        };
        if read != Ok(size_of_val(&word)) || !is_owned(word) {
            return;
        }
        sleep_ns(SOON_NS);
    }
}

/// Makes the program wait until its probes are armed. Returns `false` if the session has ended.
fn wait_for_go(shared: &Shared) -> bool {
    loop {
        // Acquire: pairs with the Release in `serve`.
        if shared.go.load(Ordering::Acquire) != 0 {
            return true;
        }
        if shared.data().is_none() {
            return false;
        }
        let _ = futex::wait(&shared.go, 0, Some(LOOK_NS));
    }
}
