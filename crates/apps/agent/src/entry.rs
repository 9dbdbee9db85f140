//! The two ways in: called on a borrowed thread (`-p`), or as a constructor
//! that runs before any other library's (`-- CMD`).

use core::ffi::c_int;
use core::mem::size_of_val;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tiptoe_sys::raw::{Errno, call, close, futex, getpid, membarrier, nr, sleep_ns};
use tiptoe_wire::{Data, passed::seals};

use crate::shared::{self, Shared};
use crate::{environ, hit, memory, serve, signals, space, tasks, thread, watches};

/// How often a starting program looks whether tiptoe still lives.
const LOOK_NS: u64 = 20_000_000;
/// How often it looks where it can only read.
const SOON_NS: u64 = 1_000_000;

/// What `/proc/PID/maps` calls the agent: tiptoe makes it the loader's name for a started
/// command's agent, too, which it loaded by a path that leads elsewhere later.
#[unsafe(no_mangle)]
#[used]
pub static TIPTOE_NAME: [u8; 30] = *b"/memfd:tiptoe-agent (deleted)\0";

#[unsafe(link_section = ".init_array")]
#[used]
static CONSTRUCTOR: extern "C" fn() = constructor;

/// Not 0 once the loader is done with this agent: no entry may be called before.
#[unsafe(no_mangle)]
static TIPTOE_LOADED: AtomicU32 = AtomicU32::new(0);

/// The key of the message in the environment that this image takes, which tiptoe writes into the file; 0 for none.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".data.tiptoe_key")]
#[used]
static TIPTOE_KEY: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The process in which a thread begins a session.
static BEGINNING: AtomicU32 = AtomicU32::new(0);

/// The right to begin a session. The thread that a tiptoe borrowed before it died may come
/// late, and side by side with the next one's.
struct Turn;

impl Turn {
    fn take() -> Result<Turn, Errno> {
        let pid = getpid();
        // Relaxed: the exchange decides. What names another process a fork has copied.
        let before = BEGINNING.load(Ordering::Relaxed);
        let taken = (before != pid).then(|| {
            // Acquire: pairs with the Release in `drop`.
            BEGINNING.compare_exchange(before, pid, Ordering::Acquire, Ordering::Relaxed)
        });
        match taken {
            Some(Ok(_)) => Ok(Turn),
            _ => Err(Errno(16)),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        BEGINNING.store(0, Ordering::Release); // pairs with `take`
    }
}

/// Begins a session on the segments behind two descriptors, which the caller
/// closes. Returns 0, or a negated errno; the program is as before then.
#[unsafe(no_mangle)]
pub extern "C" fn tiptoe_agent_entry(data_fd: c_int, plan_fd: c_int) -> i64 {
    match begin(data_fd, plan_fd) {
        Ok(_) => 0,
        Err(Errno(code)) => -(code as i64),
    }
}

fn begin(data_fd: c_int, plan_fd: c_int) -> Result<&'static Shared, Errno> {
    const EPERM: Errno = Errno(1);
    // What a dead tiptoe left is still being put back: that ends soon.
    const EBUSY: Errno = Errno(16);
    // Another tiptoe that lives has its session here.
    const EALREADY: Errno = Errno(114);
    if !are_segments(data_fd, plan_fd) {
        return Err(EPERM);
    }
    let _turn = Turn::take()?;
    // A program that has all it maps locked has locked this image, too. It runs as well without.
    let image = memory::image();
    let _ = memory::unlock(image.start, image.len());
    let shared = shared::create()?;
    let pid = getpid();
    // Relaxed, here and below: one thread begins a session, and what it writes
    // is published by the clone that starts the agent's thread.
    if shared.pid.load(Ordering::Relaxed) != pid {
        shared.forget_session();
        shared.thread.store(0, Ordering::Relaxed);
    } else if let Some(data) = shared.data() {
        // Relaxed: a tiptoe that dies now is waited for by the next one, or not.
        let owner = data.owner().map_or(0, |word| word.load(Ordering::Relaxed));
        return Err(match thread::is_owned(owner) {
            true => EALREADY,
            false => EBUSY,
        });
    }
    thread::wait_for_former(shared);
    if tasks::is_only_one() {
        // Where there are others the kernel waits for all CPUs, 10 to 20 ms: then the agent's thread registers.
        membarrier::register()?;
    }
    signals::learn_layout();
    shared.open_session(data_fd, plan_fd)?;
    let inherited = shared.pid.swap(pid, Ordering::Relaxed) != pid;
    shared.go.store(0, Ordering::Relaxed);
    if inherited {
        serve::disown(shared);
    }
    space::begin();
    watches::begin();
    thread::start(shared).inspect_err(|_| shared.drop_session())?;
    Ok(shared)
}

/// Whether two descriptors are memfds that are sealed as tiptoe seals its segments.
fn are_segments(data_fd: c_int, plan_fd: c_int) -> bool {
    memory::has_seals(data_fd, seals::DATA) && memory::has_seals(plan_fd, seals::PLAN)
}

/// glibc's loader passes argc, argv and envp; musl's passes nothing, so that
/// the environment is found without it.
extern "C" fn constructor() {
    TIPTOE_LOADED.store(1, Ordering::Release); // read from outside
    // Relaxed: written before the image was loaded.
    let key = TIPTOE_KEY
        .each_ref()
        .map(|word| word.load(Ordering::Relaxed));
    if key == [0; 2] {
        // Brought into a program that runs: its environment is not tiptoe's.
        return;
    }
    let Some(envp) = environ::find_array() else {
        return;
    };
    // SAFETY: the kernel's array, before any other code ran.
    let Some(passed) = (unsafe { environ::take(envp, key) }) else {
        return;
    };
    if !memory::has_seals(passed.agent, seals::AGENT) || !are_segments(passed.data, passed.plan) {
        return;
    }
    match begin(passed.data, passed.plan) {
        Ok(shared) => {
            if !wait_for_go(shared) {
                wait_for_owner(passed.data);
            }
            // The only thread: should it sandbox itself, its hits need no call any more.
            hit::settle_caller();
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

/// Tells tiptoe that this agent cannot serve, and why. It may have no memory to say so.
fn refuse(data: c_int, Errno(code): Errno) {
    let words = Data::refusal(code as u64);
    let (at, offset) = (words.as_ptr() as usize, Data::REFUSAL_OFFSET as usize);
    // SAFETY: the words live through the call, which reads them; the file is tiptoe's own.
    let _ = unsafe {
        call(
            nr::PWRITE64,
            [data as usize, at, size_of_val(&words), offset, 0, 0],
        )
    };
}

/// Holds the program back until tiptoe, which counts in another way, lets go of its segment.
fn wait_for_owner(data: c_int) {
    loop {
        let mut word = 0u32;
        let (at, offset) = (&raw mut word as usize, Data::OWNER_OFFSET as usize);
        // SAFETY: the word lives through the call, which writes it.
        let read = unsafe {
            call(
                nr::PREAD64,
                [data as usize, at, size_of_val(&word), offset, 0, 0],
            )
        };
        if read != Ok(size_of_val(&word)) || !thread::is_owned(word) {
            return;
        }
        sleep_ns(SOON_NS);
    }
}

/// Holds the program back until its probes stand; false where tiptoe is gone, or ended the
/// session before that.
fn wait_for_go(shared: &Shared) -> bool {
    loop {
        // Acquire: pairs with the Release in `serve`; 0 is "not yet".
        if shared.go.load(Ordering::Acquire) != 0 {
            return true;
        }
        if shared.data().is_none() {
            return false;
        }
        let _ = futex::wait(&shared.go, 0, Some(LOOK_NS));
    }
}
