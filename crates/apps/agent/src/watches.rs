//! Watches variables by breakpoints. A hit, an access to the variable, raises SIGTRAP in its thread, and [`hit`]
//! records the registers.
//!
//! For each thread and variable, the agent's thread opens a breakpoint, an *event* of perf_event_open(2). While it
//! opens events, [`births`] delays the creation of threads. Later threads inherit the events, forked children do not.
//! Only the agent's thread has the events' descriptors, so the events end with that thread: at an exec, and when tiptoe
//! ends.
//!
//! | state ([`Watches`]) | changes when |
//! |---|---|
//! | whether hits are recorded | [`observe`], [`begin`] |
//! | the number of CPUs | [`observe`] |
//! | the watched addresses | [`begin`], [`observe`], [`turn`], [`close`] |
//! | descriptors | [`begin`], [`observe`], [`go_on`], [`close`], [`after_retreat`] |
//!
//! *Cost*: the trap, 15 to 35 us, and about 1 us for system calls. One call reads the variable, because a read by our
//! own code would be a hit, and a fault if the memory is unmapped.

use core::mem::size_of;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

use tiptoe_sys::raw::{self, ESRCH, Errno, call, close as close_fd, getpid, gettid, nr};
use tiptoe_wire::hits::{AsyncRequest, Cell, Hit, Hits};
use tiptoe_wire::{Data, Plan, WatchTarget};

use crate::memory;
use crate::own_thread::comm;
use crate::shared::{self, Shared};
use crate::signals::TrapData;
use crate::tasks;

mod accounting;
pub mod births;
mod events;
mod stray;

pub use accounting::born;
pub use stray::take_stray;

use accounting::{is_new, look, meet_self};
use events::{DISABLED, FLAGS, attr, perf_event_open};

const REGISTERS: usize = 4;
const MOST: usize = 1 << 16;
/// Marks the signal data of our events. The low 16 bits are the variable's number.
const OURS: u64 = 0x7469_7074_6f65 << 16;
/// How many waits for a free cell may time out before a hit is dropped: several, because tiptoe may lack a CPU.
const PATIENCE: u32 = 4;
const WAIT_NS: u64 = 100_000_000;
const ROUNDS: u32 = 20;
/// How many readings of the list of threads must show no new one, because a thread in creation may be missing.
const QUIET: u32 = 3;

const MODIFY_ATTRIBUTES: usize = 0x4008_240b;
const PR_TASK_PERF_EVENTS_DISABLE: usize = 31;
const PR_TASK_PERF_EVENTS_ENABLE: usize = 32;

/// The error if threads are created faster than events can be opened for them.
const EAGAIN: u64 = 11;
const EINVAL: u64 = 22;
const EMFILE: i32 = 24;
const ETIMEDOUT: Errno = Errno(110);

const NUMBER: u32 = 28;

/// The variables that a session watches. [`begin`] resets all but `cpus`, `targets` and `events`, whose values are
/// unused while `count` and `open` are 0.
struct Watches {
    is_on: AtomicBool,
    cpus: AtomicU32,
    count: AtomicUsize,
    targets: [[AtomicU64; WatchTarget::WORDS]; REGISTERS],
    /// The address of [`MOST`] words, mapped when first needed: an event's descriptor, and the variable's number from
    /// bit [`NUMBER`] on.
    events: AtomicPtr<AtomicU32>,
    open: AtomicUsize,
    has_room: AtomicBool,
    /// Whether the agent's thread must disable the events, because this period's allowed hits are used up.
    must_rest: AtomicBool,
    /// 0 after the agent's thread has ended, until the next agent's thread has opened the events.
    is_back: AtomicU32,
}

static WATCHES: Watches = Watches {
    is_on: AtomicBool::new(false),
    cpus: AtomicU32::new(0),
    count: AtomicUsize::new(0),
    targets: [const { [const { AtomicU64::new(0) }; WatchTarget::WORDS] }; REGISTERS],
    events: AtomicPtr::new(core::ptr::null_mut()),
    open: AtomicUsize::new(0),
    has_room: AtomicBool::new(true),
    must_rest: AtomicBool::new(false),
    is_back: AtomicU32::new(1),
};

fn hits<'a>(data: &Data<'a>) -> Option<Hits<'a>> {
    // Relaxed, here and in `watched`: the agent's thread writes these words before it opens the first event, or in
    // `turn`.
    WATCHES.is_on.load(Relaxed).then(|| data.hits())?
}

fn watched(number: usize) -> Option<WatchTarget> {
    (number < WATCHES.count.load(Relaxed)).then_some(())?;
    let words = WATCHES.targets.get(number)?.each_ref();
    Some(WatchTarget::of(words.map(|word| word.load(Relaxed))))
}

fn set_watched(plan: &Plan, number: usize, at: usize) {
    let words = WATCHES.targets.get(number).into_iter().flatten();
    for (offset, word) in words.enumerate() {
        word.store(plan.address(at + offset), Relaxed);
    }
}

/// Begins a session that watches nothing yet. An earlier session that was killed, or a forked child's parent, may have
/// left other values.
pub fn begin() {
    births::begin();
    WATCHES.is_on.store(false, Relaxed);
    WATCHES.count.store(0, Relaxed);
    WATCHES.open.store(0, Relaxed);
    WATCHES.has_room.store(true, Relaxed);
    WATCHES.must_rest.store(false, Relaxed);
    WATCHES.is_back.store(1, Relaxed);
}

/// Begins to watch variables. tiptoe's plan lists the number of CPUs, then the variables.
pub fn observe(shared: &Shared, plan: &Plan, data: &Data, count: usize) -> u64 {
    if count > REGISTERS {
        return EINVAL;
    }
    WATCHES.cpus.store(plan.address(0) as u32, Relaxed);
    (0..count).for_each(|number| set_watched(plan, number, 1 + number * WatchTarget::WORDS));
    WATCHES.count.store(count, Relaxed);
    WATCHES.is_on.store(true, Relaxed);
    open_all(shared, data)
}

/// Opens events for all threads. If a thread is created meanwhile, all events are closed and opened again, because the
/// kernel does not report which events that thread inherited.
///
/// Opening only the missing events could give a thread an event twice, because the kernel swaps inherited events
/// between threads. A thread with too many events can create no more threads (clone(2) fails with ENOSPC, seen on Linux
/// 6.18).
fn open_all(shared: &Shared, data: &Data) -> u64 {
    let Some(hits) = hits(data) else {
        return EINVAL;
    };
    let _hold = births::CreationHold::new(shared);
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
            Err(OpenFailure { errno, tid }) => {
                data.set_result(2, u64::from(tid));
                return errno.0 as u64;
            }
        }
    }
    EAGAIN
}

/// Disables events whose allowed hits are used up, or serves a request. Returns whether there was work.
pub fn tend(shared: &Shared, data: &Data) -> bool {
    let Some(hits) = hits(data) else { return false };
    // Relaxed: the flag guards no memory, only the kernel's events.
    if WATCHES.must_rest.swap(false, Relaxed) {
        switch(PR_TASK_PERF_EVENTS_DISABLE);
    } else if hits.take_request(AsyncRequest::Wake) {
        hits.set_waking(true);
        if hits.set_resting(false) {
            switch(PR_TASK_PERF_EVENTS_ENABLE);
        }
        hits.set_waking(false);
    } else if hits.take_request(AsyncRequest::Look) {
        look(shared, &hits);
    } else {
        return false;
    }
    true
}

pub fn are_inherited() -> bool {
    WATCHES.count.load(Relaxed) != 0
}

/// Enables or disables this thread's events, and those inherited from them.
fn switch(what: usize) {
    // SAFETY: the call changes only events of this thread.
    let _ = unsafe { call(nr::PRCTL, [what, 0, 0, 0, 0, 0]) };
}

/// Opens the events again in the thread that replaced the agent's thread.
pub fn go_on(shared: &Shared, data: &Data) {
    if WATCHES.count.load(Relaxed) != 0
        && let Some(hits) = hits(data)
    {
        open_all(shared, data);
        if !births::is_alone() {
            hits.note_gap();
        }
    }
    WATCHES.is_back.store(1, Release);
    raw::futex::wake(&WATCHES.is_back, u32::MAX);
}

/// Records the end of the agent's thread, which closed its descriptors.
pub fn after_retreat() {
    WATCHES.open.store(0, Relaxed); // Relaxed: published by the start of the next agent's thread
    WATCHES.is_back.store(0, Relaxed); // Relaxed: likewise
}

/// Waits until the breakpoints are open again, at most a second.
pub fn wait_until_back() {
    for _ in 0..10 {
        // Acquire: pairs with the Release in `go_on`.
        if WATCHES.count.load(Relaxed) == 0 || WATCHES.is_back.load(Acquire) != 0 {
            return;
        }
        let _ = raw::futex::wait(&WATCHES.is_back, 0, Some(WAIT_NS));
    }
}

/// Accounts for all threads but the agent's. Returns how many are new.
fn meet_all(hits: &Hits) -> u64 {
    let own = gettid();
    let mut new = 0;
    tasks::each(|tid| new += u64::from(tid != own && is_new(hits, tid)));
    new
}

struct OpenFailure {
    errno: Errno,
    tid: u32,
}

/// Opens all events of each known thread. Returns the number of threads; `None` if a thread was created meanwhile.
fn open_each(hits: &Hits) -> Result<Option<u64>, OpenFailure> {
    let own = gettid();
    let (mut opened, mut done) = (0, Ok(()));
    let mut is_spoilt = false;
    tasks::each(|tid| {
        is_spoilt |= tid != own && is_new(hits, tid);
        if tid == own || is_spoilt || done.is_err() {
            return;
        }
        match open_events(tid) {
            Ok(()) => opened += 1,
            Err(ESRCH) => {}
            Err(errno) => done = Err(OpenFailure { errno, tid }),
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

fn open_events(tid: u32) -> Result<(), Errno> {
    make_events()?;
    for number in 0..WATCHES.count.load(Relaxed) as u32 {
        let fd = open(tid, number)?;
        if !keep(fd, number) {
            close_fd(fd);
            return Err(Errno(EMFILE));
        }
    }
    Ok(())
}

fn events_made() -> &'static [AtomicU32] {
    let at = WATCHES.events.load(Relaxed); // Relaxed: only the holder of the session's lock uses this memory
    match at.is_null() {
        true => &[],
        // SAFETY: `make_events` mapped zeroed memory of that length there, for good.
        false => unsafe { core::slice::from_raw_parts(at, MOST) },
    }
}

fn make_events() -> Result<(), Errno> {
    if WATCHES.events.load(Relaxed).is_null() {
        let at = memory::private(MOST * size_of::<AtomicU32>())?;
        WATCHES.events.store(at as *mut AtomicU32, Relaxed); // Relaxed: as in `events_made`
    }
    Ok(())
}

fn keep(fd: i32, number: u32) -> bool {
    let at = WATCHES.open.load(Relaxed);
    let Some(place) = events_made().get(at) else {
        return false;
    };
    place.store(fd as u32 | number << NUMBER, Relaxed);
    WATCHES.open.store(at + 1, Relaxed);
    true
}

fn open(tid: u32, number: u32) -> Result<i32, Errno> {
    let watched = watched(number as usize).ok_or(Errno(EINVAL as i32))?;
    perf_event_open(&attr(&watched, FLAGS, OURS | u64::from(number)), tid)
}

/// Makes one event of each thread watch another address.
pub fn turn(plan: &Plan, data: &Data) -> u64 {
    let number = plan.address(0) as u32;
    set_watched(plan, number as usize, 1);
    let Some(watched) = watched(number as usize) else {
        return EINVAL;
    };
    let is_off = hits(data).is_some_and(|hits| hits.is_resting());
    let flags = if is_off { FLAGS | DISABLED } else { FLAGS };
    let attr = attr(&watched, flags, OURS | u64::from(number));
    let at = attr.as_ptr() as usize;
    let events = events_made()
        .iter()
        .take(WATCHES.open.load(Relaxed))
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

pub fn close() {
    close_events();
    WATCHES.count.store(0, Relaxed);
}

/// Closes all events, and so those that threads inherited.
fn close_events() {
    for event in events_made().iter().take(WATCHES.open.swap(0, Relaxed)) {
        close_fd((event.load(Relaxed) & ((1 << NUMBER) - 1)) as i32);
    }
}

pub fn note_exec(execs: bool) {
    if let Some(shared) = shared::at_home()
        && let Some(hits) = shared.data().as_ref().and_then(hits)
    {
        hits.set_execs(execs);
    }
}

/// Handles a signal of one of our events. Returns `false` for any other signal.
pub fn hit(trapped: &TrapData) -> bool {
    let is_ours = trapped.data & !0xffff == OURS;
    if is_ours && let Some(shared) = shared::at_home() {
        // If the session has just ended, the hit is dropped.
        let _ = note(shared, trapped);
    }
    is_ours
}

fn note(shared: &Shared, trapped: &TrapData) -> Option<()> {
    let data = shared.data()?;
    let hits = hits(&data)?;
    let is_last = hits.uses_up();
    if hits.is_on() {
        let tid = gettid();
        meet_self(&data, &hits, tid);
        match room(&hits) {
            Some(cell) => record(&hits, cell, tid, trapped),
            None => hits.lose(),
        }
    }
    if is_last && hits.set_resting(true) {
        WATCHES.must_rest.store(true, Relaxed); // Relaxed: ordered by the system call below
        raw::futex::wake(data.owner()?, u32::MAX);
    }
    Some(())
}

/// Returns a free cell for a hit. Waits for one, unless the last call found none.
fn room<'a>(hits: &Hits<'a>) -> Option<Cell<'a>> {
    let mut patience = if WATCHES.has_room.load(Relaxed) {
        PATIENCE
    } else {
        0
    };
    let mut cell = hits.reserve();
    while cell.is_none()
        && patience > 0
        && let Some((futex, seen)) = hits.wait()
    {
        // Without a time-out tiptoe has probably freed cells, but other threads may have taken them.
        if raw::futex::wait(futex, seen, Some(WAIT_NS)) == Err(ETIMEDOUT) {
            patience -= 1;
        }
        cell = hits.reserve();
    }
    WATCHES.has_room.store(cell.is_some(), Relaxed);
    cell
}

fn record(hits: &Hits, cell: Cell, tid: u32, trapped: &TrapData) {
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
    // SAFETY: only the cell's own words are written, which no other thread reads until the cell is complete. The
    // kernel stops at unmapped memory.
    let read = unsafe { call(nr::PROCESS_VM_READV, [getpid() as usize, to, 2, from, 2, 0]) };
    cell.complete(read.unwrap_or(0) as u64);
}
