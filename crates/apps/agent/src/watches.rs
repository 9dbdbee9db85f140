//! Breakpoints of the program's own threads: a hit raises SIGTRAP in the thread that made it, at once, and
//! [`hit`] writes down what the thread had.
//!
//! The agent's thread opens the events, for each thread, while no thread is born ([`births`]); whatever begins later
//! inherits them. It alone has their descriptors: they end with it, by an exec, and when tiptoe is
//! gone. A fork's child has none.
//!
//! Registers are accounted for in memory that is shared with tiptoe: of a thread that is there before its events are
//! opened, of one that inherits them by itself, at its first hit.
//!
//! | state | kept by | changes when |
//! |---|---|---|
//! | which slot the hits begin at, on how many CPUs | `SLOT`, `CPUS` | [`observe`], the end of a session |
//! | what is watched | `WATCHED` | [`observe`], [`turn`] |
//! | descriptors | `EVENTS` | [`observe`], [`close`]: the agent's thread |
//!
//! *Cost*: the trap, of 15 to 35 us where measured, and about 1 us for five system calls: a value is read by the
//! kernel, so that reading it is no hit, and whatever is not mapped no fault.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

use tiptoe_breakpoint::{Accounting, Geometry, Kind, Request, Target, Wait};
use tiptoe_sys::raw::{self, ESRCH, Errno, call, close as close_fd, getpid, gettid, nr};
use tiptoe_wire::hits::{Asked, Cell, Hit, Hits, WORDS};
use tiptoe_wire::{Data, Plan, Watched};

use crate::hit::comm;
use crate::shared::{self, Shared};
use crate::signals::Trapped;
use crate::tasks;

pub mod births;
mod events;
mod stray;

pub use stray::take_stray;

use events::{DISABLED, EXECUTE, FLAGS, attr, perf_event_open};

/// Debug registers of a processor.
const REGISTERS: usize = 4;
/// Most events at a time.
const MOST: usize = 1 << 16;
/// Marks our events in a signal's data; below it stands the event's number.
const OURS: u64 = 0x7469_7074_6f65 << 16;
/// A thread that finds the ring full waits so often and long while nothing is read: tiptoe may itself wait for a CPU
/// that the program's threads keep busy.
const PATIENCE: u32 = 4;
const WAIT_NS: u64 = 100_000_000;
/// How often all events are opened at most.
const ROUNDS: u32 = 20;
/// Looks that must find no new thread before a round counts: a clone(2) in progress is visible by then.
const QUIET: u32 = 3;

const MODIFY_ATTRIBUTES: usize = 0x4008_240b;
const PR_TASK_PERF_EVENTS_DISABLE: usize = 31;
const PR_TASK_PERF_EVENTS_ENABLE: usize = 32;

/// Threads are born faster than events can be opened for them.
const EAGAIN: u64 = 11;
const EINVAL: u64 = 22;
const EMFILE: i32 = 24;
const ETIMEDOUT: Errno = Errno(110);

static SLOT: AtomicU32 = AtomicU32::new(0);
static CPUS: AtomicU32 = AtomicU32::new(0);
static COUNT: AtomicUsize = AtomicUsize::new(0);
static WATCHED: [[AtomicU64; Watched::WORDS]; REGISTERS] =
    [const { [const { AtomicU64::new(0) }; Watched::WORDS] }; REGISTERS];
/// Descriptors, each with its event's number above it.
static EVENTS: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];
static OPEN: AtomicUsize = AtomicUsize::new(0);
const NUMBER: u32 = 28;
/// The ring had room when it was last looked at.
static HAS_ROOM: AtomicBool = AtomicBool::new(true);

/// Waits for a lock of the accounting, as its other users do.
struct Futex;

impl Wait for Futex {
    const LOOKS: u32 = 100;

    fn park(&self, word: &AtomicU64, seen: u64) {
        let _ = raw::futex::wait_low(word, seen as u32, None);
    }

    fn unpark(&self, word: &AtomicU64) {
        raw::futex::wake_low(word, 1);
    }

    fn now_ns(&self) -> u64 {
        raw::monotonic_ns()
    }
}

/// What a session has of hits; `None` where nothing is watched.
fn hits<'a>(data: &Data<'a>) -> Option<Hits<'a>> {
    // Relaxed, here and throughout: one thread writes, and the first event comes after it.
    let slot = SLOT.load(Relaxed);
    (slot != 0).then_some(())?;
    Hits::new(data.slab_words(0, slot, WORDS)?)
}

/// What is watched by a number; `None` beyond what is.
fn watched(number: usize) -> Option<Watched> {
    (number < COUNT.load(Relaxed)).then_some(())?;
    let words = WATCHED.get(number)?;
    Some(Watched::of(words.each_ref().map(|word| word.load(Relaxed))))
}

fn set_watched(plan: &Plan, number: usize, at: usize) {
    let words = WATCHED.get(number).into_iter().flatten();
    for (offset, word) in words.enumerate() {
        word.store(plan.address(at + offset), Relaxed);
    }
}

/// A session begins, in which nothing is watched yet: what stands here may be a parent's.
pub fn begin() {
    births::begin();
    SLOT.store(0, Relaxed);
    COUNT.store(0, Relaxed);
    OPEN.store(0, Relaxed);
}

/// Begins to watch: where the hits go, how many CPUs there are, and then what. (agent's thread)
pub fn observe(shared: &Shared, plan: &Plan, data: &Data, count: usize) -> u64 {
    if count > REGISTERS {
        return EINVAL;
    }
    CPUS.store(plan.address(1) as u32, Relaxed);
    (0..count).for_each(|number| set_watched(plan, number, 2 + number * Watched::WORDS));
    COUNT.store(count, Relaxed);
    SLOT.store(plan.address(0) as u32, Relaxed);
    open_all(shared, data)
}

/// Opens events for all threads, while none is born. A thread that is born all the same has inherited those that its
/// parent had just then, and nobody says which: then all are closed and opened again. To open for such a thread what it may
/// lack, or to try how many registers it has left, would be wrong: the kernel swaps what threads have inherited, its
/// account of one is another's then, and a thread that gets an event too many can make no thread any more (clone(2) says
/// ENOSPC, seen on Linux 6.18).
fn open_all(shared: &Shared, data: &Data) -> u64 {
    let Some(hits) = hits(data) else {
        return EINVAL;
    };
    let _held = births::Held::new(shared);
    let mut late = 0;
    for round in 0..ROUNDS {
        let came = meet_all(&hits);
        if round > 0 {
            late += came;
        }
        match open_each(&hits) {
            Ok(Some(opened)) => {
                data.set_result(0, opened);
                data.set_result(1, late);
                return 0;
            }
            Ok(None) => {
                close_events();
                births::settle();
            }
            Err(Failed { errno, tid }) => {
                data.set_result(2, u64::from(tid));
                return errno.0 as u64;
            }
        }
    }
    EAGAIN
}

/// Does what somebody has asked for; whether there was anything. (agent's thread)
pub fn tend(shared: &Shared, data: &Data) -> bool {
    let Some(hits) = hits(data) else { return false };
    // Relaxed: whoever sees it acts upon the events alone.
    if MUST_REST.swap(false, Relaxed) {
        switch(PR_TASK_PERF_EVENTS_DISABLE);
    } else if hits.is_asked(Asked::Wake) {
        hits.set_waking(true);
        if hits.set_resting(false) {
            switch(PR_TASK_PERF_EVENTS_ENABLE);
        }
        hits.set_waking(false);
    } else if hits.is_asked(Asked::Look) {
        look(shared, &hits);
    } else {
        return false;
    }
    true
}

/// Has threads that are no more give their registers back.
fn look(shared: &Shared, hits: &Hits) {
    let pid = shared.pid.load(Relaxed); // constant within a session
    hits.part(|tid| {
        let is_gone = !raw::thread_alive(pid, tid);
        if is_gone {
            let release = |accounts: &Accounts, request: &Request| {
                let _ = accounts.release(request);
            };
            account(hits, release, tid);
        }
        is_gone
    });
}

/// Switches the events off or on that this thread has opened, and what others inherited of them.
fn switch(what: usize) {
    // SAFETY: it concerns nothing else.
    let _ = unsafe { call(nr::PRCTL, [what, 0, 0, 0, 0, 0]) };
}

/// Begins again in a thread that took the agent's place. (agent's thread)
pub fn go_on(shared: &Shared, data: &Data) {
    if COUNT.load(Relaxed) != 0
        && let Some(hits) = hits(data)
    {
        open_all(shared, data);
        if !births::is_alone() {
            hits.note_gap();
        }
    }
    IS_BACK.store(1, Release);
    raw::futex::wake(&IS_BACK, u32::MAX);
}

/// 0 from when the agent's thread is asked to leave for a moment until another one has taken its place.
static IS_BACK: AtomicU32 = AtomicU32::new(1);

/// The agent's thread has left for a moment, and its descriptors with it.
pub fn after_retreat() {
    OPEN.store(0, Relaxed); // published by the thread's start
    IS_BACK.store(0, Relaxed); // likewise
}

/// Waits until breakpoints stand again where there were some, not longer than a second.
pub fn wait_until_back() {
    for _ in 0..10 {
        // Acquire: pairs with the Release in `go_on`.
        if COUNT.load(Relaxed) == 0 || IS_BACK.load(Acquire) != 0 {
            return;
        }
        let _ = raw::futex::wait(&IS_BACK, 0, Some(WAIT_NS));
    }
}

/// Meets the threads that there are; how many had not been met before.
fn meet_all(hits: &Hits) -> u64 {
    let own = gettid();
    let mut new = 0;
    tasks::each(|tid| new += u64::from(tid != own && reserve(hits, tid)));
    new
}

/// For whom an event could not be had.
struct Failed {
    errno: Errno,
    tid: u32,
}

/// Opens all events of each thread that was met; how many threads those are. `None` if another one was born meanwhile.
fn open_each(hits: &Hits) -> Result<Option<u64>, Failed> {
    let own = gettid();
    let (mut opened, mut done) = (0, Ok(()));
    let mut is_spoilt = false;
    tasks::each(|tid| {
        is_spoilt |= tid != own && reserve(hits, tid);
        if tid == own || is_spoilt || done.is_err() {
            return;
        }
        match open_events(tid) {
            Ok(()) => opened += 1,
            // It has just ended.
            Err(ESRCH) => {}
            Err(errno) => done = Err(Failed { errno, tid }),
        }
    });
    done?;
    for _ in 0..QUIET {
        if is_spoilt || meet_all(hits) > 0 {
            return Ok(None);
        }
    }
    Ok(Some(opened))
}

/// Opens a thread's events.
fn open_events(tid: u32) -> Result<(), Errno> {
    for number in 0..COUNT.load(Relaxed) as u32 {
        let fd = open(tid, number)?;
        if !keep(fd, number) {
            close_fd(fd);
            return Err(Errno(EMFILE));
        }
    }
    Ok(())
}

/// Keeps a descriptor until the end; whether there is room.
fn keep(fd: i32, number: u32) -> bool {
    let at = OPEN.load(Relaxed);
    let Some(place) = EVENTS.get(at) else {
        return false;
    };
    place.store(fd as u32 | number << NUMBER, Relaxed);
    OPEN.store(at + 1, Relaxed);
    true
}

/// The event of a thread, which whatever it makes inherits.
fn open(tid: u32, number: u32) -> Result<i32, Errno> {
    let watched = watched(number as usize).ok_or(Errno(EINVAL as i32))?;
    perf_event_open(&attr(&watched, FLAGS, OURS | u64::from(number)), tid)
}

/// Somebody used up the window's allowance, whom nobody has put to rest yet.
static MUST_REST: AtomicBool = AtomicBool::new(false);

/// Has an event of all threads watch something else. (agent's thread)
pub fn turn(plan: &Plan, data: &Data) -> u64 {
    let number = plan.address(0) as u32;
    set_watched(plan, number as usize, 1);
    let Some(watched) = watched(number as usize) else {
        return EINVAL;
    };
    // One that rests goes on resting.
    let is_off = hits(data).is_some_and(|hits| hits.is_resting());
    let flags = if is_off { FLAGS | DISABLED } else { FLAGS };
    let attr = attr(&watched, flags, OURS | u64::from(number));
    let at = attr.as_ptr() as usize;
    let events = EVENTS
        .iter()
        .take(OPEN.load(Relaxed))
        .map(|event| event.load(Relaxed));
    let mut outcome = 0;
    for event in events.filter(|event| event >> NUMBER == number) {
        let fd = event & ((1 << NUMBER) - 1);
        // SAFETY: the attributes live through the call; the descriptor is ours.
        let moved = unsafe { call(nr::IOCTL, [fd as usize, MODIFY_ATTRIBUTES, at, 0, 0, 0]) };
        if let Err(errno) = moved {
            outcome = errno.0 as u64;
        }
    }
    outcome
}

/// Ends all events: what threads hit from here on raises nothing. (agent's thread)
pub fn close() {
    close_events();
    COUNT.store(0, Relaxed);
}

/// Ends all events, and with them what others inherited of them.
fn close_events() {
    for event in EVENTS.iter().take(OPEN.swap(0, Relaxed)) {
        close_fd((event.load(Relaxed) & ((1 << NUMBER) - 1)) as i32);
    }
}

/// Accounts for a thread's registers, unless that was done; whether it was not.
fn reserve(hits: &Hits, tid: u32) -> bool {
    let is_new = hits.meet(tid);
    if is_new {
        let reserve = |accounts: &Accounts, request: &Request| {
            // Who is refused was given them by the kernel all the same: nothing is to be undone.
            let _ = accounts.reserve(request);
        };
        account(hits, reserve, tid);
    }
    is_new
}

type Accounts<'a> = Accounting<'a, Futex>;

fn account(hits: &Hits, act: impl Fn(&Accounts, &Request), tid: u32) {
    let words = hits.accounting();
    let accounts = words.and_then(|words| {
        let geometry = Geometry::of_process(CPUS.load(Relaxed))?;
        Accounting::new(geometry, words.atomics(), &Futex)
    });
    let Some(accounts) = accounts else { return };
    let target = Target::Task {
        task: tid.into(),
        cpu: None,
    };
    for number in 0..COUNT.load(Relaxed) {
        let is_code = watched(number).is_some_and(|watched| watched.access == EXECUTE);
        let kind = if is_code {
            Kind::Instruction
        } else {
            Kind::Data
        };
        act(&accounts, &Request::new(target, kind, number as u64));
    }
}

/// The program calls exec now, or that has failed.
pub fn note_exec(execs: bool) {
    if let Some(shared) = shared::at_home()
        && let Some(hits) = shared.data().as_ref().and_then(hits)
    {
        hits.set_execs(execs);
    }
}

/// Takes a signal that an event of ours raised; whether it is one.
pub fn hit(trapped: &Trapped) -> bool {
    let is_ours = trapped.data & !0xffff == OURS;
    if is_ours && let Some(shared) = shared::at_home() {
        // A session that has just ended counts no more.
        let _ = note(shared, trapped);
    }
    is_ours
}

fn note(shared: &Shared, trapped: &Trapped) -> Option<()> {
    let data = shared.data()?;
    let hits = hits(&data)?;
    let is_last = hits.uses_up();
    if hits.is_on() {
        let tid = gettid();
        reserve(&hits, tid);
        match room(&hits) {
            Some(cell) => record(&hits, cell, tid, trapped),
            None => hits.lose(),
        }
    }
    if is_last && hits.set_resting(true) {
        MUST_REST.store(true, Relaxed); // the wake-up is behind a system call
        raw::futex::wake(data.owner()?, u32::MAX);
    }
    Some(())
}

/// A cell: where there is none the thread waits until tiptoe has read, but not again where that did not help.
fn room<'a>(hits: &Hits<'a>) -> Option<Cell<'a>> {
    let mut patience = if HAS_ROOM.load(Relaxed) { PATIENCE } else { 0 };
    let mut cell = hits.reserve();
    while cell.is_none()
        && patience > 0
        && let Some((futex, seen)) = hits.wait()
    {
        // Others may be faster where something was read.
        if raw::futex::wait(futex, seen, Some(WAIT_NS)) == Err(ETIMEDOUT) {
            patience -= 1;
        }
        cell = hits.reserve();
    }
    HAS_ROOM.store(cell.is_some(), Relaxed);
    cell
}

fn record(hits: &Hits, cell: Cell, tid: u32, trapped: &Trapped) {
    cell.write(&Hit {
        epoch: hits.epoch(),
        address: trapped.address,
        tid,
        is_late: trapped.is_late,
        time_ns: raw::monotonic_ns(),
        ip: trapped.ip,
        flags: trapped.flags,
        name: comm(),
        registers: trapped.registers,
    });
    let len = watched((trapped.data & 0xffff) as usize).map_or(0, |watched| watched.len.min(8));
    let (into, stack) = cell.room();
    let [_, _, _, _, sp, ..] = trapped.registers;
    let to = [into as usize, len as usize, into as usize + 8, stack];
    let from = [trapped.address as usize, len as usize, sp as usize, stack];
    let (to, from) = (to.as_ptr() as usize, from.as_ptr() as usize);
    // SAFETY: what is written are the cell's own words, which nobody else looks at before it is complete; the
    // kernel copies as much as is mapped.
    let read = unsafe { call(nr::PROCESS_VM_READV, [getpid() as usize, to, 2, from, 2, 0]) };
    cell.complete(read.unwrap_or(0) as u64);
}
