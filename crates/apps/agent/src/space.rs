//! The *space*: the agent's record of which file's code is where in the program's memory.
//!
//! The agent's thread fills the space from /proc/self/maps, and hooks (interceptions) of the program's calls update it
//! (`tiptoe_uprobe::feed`). A trap's address leads to its mapping, then to the file offset, then to the sites (patched
//! places) at that offset. Each mapping of a file has its own site, so only the site at the trap's address counts.
//!
//! The space is *unsure* if it may have missed a change. Even then no hit of a probe must be lost, and no trap must
//! wait. So if the space is unsure, or has other code at a trap's address, the table of sites and the bytes around the
//! trap decide (`tiptoe_uprobe::window`). Other code is there if the program has copied patched code.
//!
//! | thread | action | waits |
//! |---|---|---|
//! | any thread of the program | [`change`]: makes and records a call that changes code | a few checks of the lock |
//! | a signal handler | [`find_own_trap`] | a few checks of the lock, to read |
//! | the thread that loads a library | [`loading`]: marks the loader's own mappings, which no hook sees | never |
//! | the agent's thread | [`read_if_unsure`], [`read`], [`add_sites`] | for the lock, bounded |

use core::mem::size_of;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use tiptoe_sys::raw::{self, call, getpid, nr};
use tiptoe_uprobe::feed::call::Call;
use tiptoe_uprobe::feed::{Answer, Feed, FileId, Reading};
use tiptoe_uprobe::lookup::Shape;
use tiptoe_uprobe::table::TrapSite;
use tiptoe_uprobe::window;
use tiptoe_wire::{Data, Readings, Site, SiteFlags, slots};

use crate::clockwork;
use crate::files::{File, ProcFile};
use crate::hit;
use crate::mask::{OURS, set_mask};
use crate::memory::{self, PAGE};
use crate::patched_code;
use crate::program_call::{self, Frame};
use crate::shared::{self, Shared};
use crate::tls;

/// The capacity of the space. Without room for another table (of mappings), the space stays unsure. A site without room
/// for its probe is found by its address.
const SHAPE: Shape = Shape {
    tables: 1 << 11,
    probes: 1 << 15,
};
/// The most files, a power of 2.
const FILES: usize = 1 << 12;
/// How often the agent's thread checks the lock before each sleep, and how often it sleeps, so that the holder may get
/// a CPU.
const LOOKS: u32 = 1 << 10;
const SLEEPS: u32 = 20;
const SLEEP_NS: u64 = 1_000_000;
/// Readings that tiptoe did not request take at most 1/`SHARE` of the time.
const SHARE: u64 = 100;
/// The sleep before /proc/self/maps is read again, if the space is still unsure.
const SOON_NS: u64 = 10_000_000;
/// The most bytes from a site's start to a trap inside the site, plus one.
const REACH: u64 = 8;

struct Space {
    feed: Feed<'static>,
    pid: AtomicU32,
    is_loading: AtomicBool,
    /// Whether /proc/self/maps cannot be read.
    is_blind: AtomicBool,
    /// Whether the probes of traps are looked up only under the lock.
    is_locked: AtomicBool,
    /// The earliest time of the next reading that tiptoe did not request, in ticks.
    due: AtomicU64,
    readings: AtomicU64,
    corrected: AtomicU64,
}

/// Returns the space; `None` in a forked child, where the fork wiped the space's address. There the bytes around a trap
/// decide whether the trap is ours.
fn get() -> Option<&'static Space> {
    // Acquire: pairs with the Release in `make`.
    let at = shared::get()?.space.load(Ordering::Acquire);
    // SAFETY: the block is never freed, and only changed through atomics.
    unsafe { (at as *const Space).as_ref() }
}

/// Begins a session. A process without a space, such as a forked child, gets one if there is memory.
pub fn begin(shared: &Shared) {
    if get().is_none() {
        make();
    }
    if let Some(space) = get() {
        let is_locked = shared.plan().is_some_and(|plan| plan.has_locked_lookups());
        space.is_locked.store(is_locked, Ordering::Relaxed); // Relaxed: constant within a session
        // The last reading may have failed only because no descriptor was free. Relaxed: as in `is_on`.
        space.is_blind.store(false, Ordering::Relaxed);
        // No hook saw the changes since the last session.
        space.doubt();
    }
}

fn make() -> Option<()> {
    let words = Feed::words(SHAPE, FILES);
    let head = size_of::<Space>().next_multiple_of(PAGE);
    let at = memory::not_forked(head + words * size_of::<u64>()).ok()?;
    // SAFETY: fresh zeroed memory of that length, never unmapped and only used as atomics.
    let words: &'static [AtomicU64] =
        unsafe { core::slice::from_raw_parts((at + head) as *const AtomicU64, words) };
    let space = Space {
        feed: Feed::new(words, SHAPE, FILES)?,
        pid: AtomicU32::new(getpid()),
        is_loading: AtomicBool::new(false),
        is_blind: AtomicBool::new(false),
        is_locked: AtomicBool::new(false),
        due: AtomicU64::new(0),
        readings: AtomicU64::new(0),
        corrected: AtomicU64::new(0),
    };
    // SAFETY: the head of the memory is large enough, and page-aligned.
    unsafe { (at as *mut Space).write(space) };
    shared::get()?.space.store(at as u64, Ordering::Release); // pairs with `get`
    Some(())
}

impl Space {
    fn is_home(&self) -> bool {
        self.pid.load(Ordering::Relaxed) == getpid() // Relaxed: constant
    }

    fn is_on(&self) -> bool {
        // Relaxed: a thread that sees the old value uses a space that was never read, which is empty.
        !self.is_blind.load(Ordering::Relaxed) && self.is_home()
    }

    /// Reports to tiptoe the unpatched copies of patched code: those in `range`, or all.
    fn note_copies(&self, range: Option<&Range<u64>>) {
        let is_patched = patched_code::is_patched;
        self.feed
            .each_unpatched_copy(range, is_patched, patched_code::note);
    }

    fn doubt(&self) {
        self.feed.begin_unseen();
        self.feed.end_unseen();
    }

    fn read_once(&self) -> Option<Reading> {
        let Some(list) = File::open(ProcFile::Maps) else {
            self.is_blind.store(true, Ordering::Relaxed); // Relaxed: as in `is_on`
            return None;
        };
        let began = clockwork::counter();
        let reading = self.feed.read_again(LOOKS, |buffer| list.read(buffer));
        drop(list);
        let now = clockwork::counter();
        let pause = now.wrapping_sub(began).saturating_mul(SHARE);
        self.due.store(now.saturating_add(pause), Ordering::Relaxed); // Relaxed: used only by the agent's thread
        reading
    }

    fn read(&self, data: &Data) {
        let mut reading = None;
        self.insist(|| {
            // Relaxed: as in `is_on`.
            if !self.is_blind.load(Ordering::Relaxed) {
                reading = self.read_once();
            }
            reading.is_some() || self.is_blind.load(Ordering::Relaxed)
        });
        if let Some(reading) = reading {
            // Relaxed: used only by the agent's thread.
            let readings = self.readings.fetch_add(1, Ordering::Relaxed) + 1;
            let corrected = self
                .corrected
                .fetch_add(reading.corrected, Ordering::Relaxed);
            data.set_readings(&Readings {
                readings,
                corrected: corrected + reading.corrected,
                mappings: reading.mappings as u64,
                bytes: reading.bytes,
            });
        }
    }

    /// Repeats `work` until it got the lock; `false` if the lock stays taken too long.
    fn insist(&self, mut work: impl FnMut() -> bool) -> bool {
        (0..SLEEPS).any(|turn| {
            if turn > 0 {
                raw::sleep_ns(SLEEP_NS);
            }
            work()
        })
    }
}

/// Reads the list of mappings, and reports unpatched copies of patched code.
pub fn read(data: &Data) -> u64 {
    if let Some(space) = get() {
        space.read(data);
        // Relaxed: ordered by the loader's lock. A library that is being loaded has no patches yet, so it would look
        // like an unpatched copy.
        if !space.is_loading.load(Ordering::Relaxed) && data.served() >= data.reported() {
            space.note_copies(None);
        }
    }
    0
}

/// Reads the list if the space is unsure, but not too often. Returns the longest sleep before the next try.
pub fn read_if_unsure(data: &Data) -> Option<u64> {
    let space = get().filter(|space| space.feed.is_unsure())?;
    // Relaxed: as in `is_on`; used only by the agent's thread.
    if space.is_blind.load(Ordering::Relaxed) {
        return None;
    }
    if clockwork::counter() >= space.due.load(Ordering::Relaxed) {
        space.read(data);
    }
    space.feed.is_unsure().then_some(SOON_NS)
}

/// Adds sites to the space, before they are patched. If there are hooks among the sites, the space becomes unsure,
/// because new hooks saw no earlier change.
pub fn add_sites(
    shared: &Shared,
    data: &Data,
    count: usize,
    site: impl Fn(usize) -> Option<(usize, Site)>,
) {
    let Some(space) = get() else { return };
    let sites = || (0..count).filter_map(&site);
    let is_unknown = |(_, site): (usize, Site)| space.feed.file_offset_of(site.address).is_none();
    if space.feed.is_unsure() || sites().any(is_unknown) {
        space.read(data);
    }
    // A site replaces an earlier session's site at the same address, which has other generated code.
    let replaces = |other: u32, address: u64| {
        let other = shared.table.site(other as usize);
        other.is_none_or(|other| other.address == address)
    };
    // If the lock stays taken, traps find the sites by address.
    space.insist(|| {
        let sites = sites().map(|(index, site)| (site.address, index as u32));
        space.feed.add_probes(LOOKS, sites, replaces)
    });
    if sites().any(|(_, site)| site.flags.has(SiteFlags::HOOK)) {
        space.doubt();
    }
}

pub fn find_own_trap(shared: &Shared, address: u64) -> Option<TrapSite> {
    let by_index = |index: u32| shared.table.trap_site(index as usize, address);
    let answer = match get() {
        Some(space) => {
            let is_its = |index| by_index(index).is_some();
            match space.is_locked.load(Ordering::Relaxed) {
                false => space.feed.find(address, REACH, is_its),
                true => space.feed.find_locked(address, REACH, is_its),
            }
        }
        None => Answer::Missed,
    };
    let (slot, index) = match answer {
        Answer::Speculative(index) => (slots::SPECULATIVE, index),
        Answer::Locked(index) => (slots::LOCKED, index),
        Answer::Missed => return find_by_address(shared, address, slots::MISSED),
        Answer::Unsure => return find_by_address(shared, address, slots::UNSURE),
    };
    count(shared, slot);
    by_index(index).filter(|found| shared.is_live(found.index))
}

/// Returns the site of a trap that the space does not confirm. Counts the trap in `slot`.
#[cold]
fn find_by_address(shared: &Shared, address: u64, slot: u32) -> Option<TrapSite> {
    let found = shared.table.find(address)?;
    if !shared.is_live(found.index) {
        return None;
    }
    let is_here = shared.is_here();
    if is_here {
        count(shared, slot);
    }
    match get().filter(|space| space.feed.has_probe(found.index as u32)) {
        Some(space) => space.feed.note_miss(),
        // A site without a probe is in no file, or the space is full. So the address decides.
        None if is_here => return Some(found),
        None => {}
    }
    // The page can be read, because the thread has just executed an instruction there.
    let page = address / PAGE as u64;
    let window = found.site.address..found.site.address + u64::from(found.site.len);
    let may_be_ours = window::may_be_ours(&found.site, |at| {
        // Bytes outside the window (the patch) may belong to another site's patch.
        let other = !window.contains(&at) && shared.table.covers(at);
        // SAFETY: as said above, the page can be read.
        let read = || unsafe { (at as *const u8).read_volatile() };
        (at / PAGE as u64 == page && !other).then(read)
    });
    may_be_ours.then_some(found)
}

pub fn count_fork() {
    if let Some(shared) = shared::at_home() {
        count(shared, slots::FORKS);
    }
}

/// Adds 1 to a slot of the calling thread's slab (block of counters), claimed if necessary.
fn count(shared: &Shared, slot: u32) {
    let index = shared.descriptor_index(tls::descriptor());
    let descriptor = index.and_then(|index| shared.claims.descriptor(index));
    // Relaxed: this is the thread's own word.
    match descriptor.map_or(0, |own| own.slab.load(Ordering::Relaxed)) {
        0 => hit::cold(slot.into(), 0, 0),
        slab => {
            let word = slab as usize + slot as usize * size_of::<u64>();
            // SAFETY: a slab's address stays mapped for ever, with these words before its counters.
            let word = unsafe { &*(word as *const AtomicU64) };
            word.fetch_add(1, Ordering::Relaxed); // Relaxed: a count orders nothing
        }
    }
}

/// Returns `None` if the program must make the call.
pub fn change(number: usize, frame: &Frame) -> Option<i64> {
    let call = decoded(number, frame)?;
    match patched_code::moved_by(&call) {
        Some(code) => {
            let make = || patched_code::make_move(frame, &code);
            Some(make_recorded(&call, frame, make).unwrap_or_else(make))
        }
        None => make_recorded(&call, frame, || program_call::perform(number, frame)),
    }
}

fn decoded(number: usize, frame: &Frame) -> Option<Call> {
    let args = [
        frame.rdi, frame.rsi, frame.rdx, frame.r10, frame.r8, frame.r9,
    ];
    Call::of(number, args)
}

pub fn moves_inherited_patches(number: usize, frame: &Frame) -> bool {
    let is_child = shared::get().is_some_and(|shared| !shared.is_here());
    let moves = |call: Call| patched_code::moved_by(&call).is_some();
    is_child && decoded(number, frame).is_some_and(moves)
}

fn make_recorded(call: &Call, frame: &Frame, make: impl FnOnce() -> i64) -> Option<i64> {
    let space = get().filter(|space| space.feed.concerns(call))?;
    // A thread that unmaps its own stack cannot return to this code.
    let stack = core::ptr::from_ref(frame) as u64;
    if call.frees(stack) || !space.is_on() {
        return None;
    }
    // Signals are blocked, because a handler could make such a call, too, and deadlock on the lock.
    let mask = set_mask(!OURS);
    let result = space.feed.perform(call, || file(frame.r8), make);
    if let Some(range) = call.mapped(result) {
        space.note_copies(Some(&range));
        // The new mapping shows the file's bytes, which have no patches.
        if matches!(call, Call::Map { .. }) && patched_code::is_patched(&range) {
            patched_code::note(range);
        }
    }
    set_mask(mask);
    if let Some(shared) = shared::get() {
        count(shared, slots::CHANGES);
        if space.feed.is_unsure() {
            shared.wake_agents_thread();
        }
    }
    Some(result)
}

/// The caller must hold the loader's lock.
pub fn loading(begins: bool) {
    let Some(space) = get().filter(|space| space.is_on()) else {
        return;
    };
    // Relaxed: ordered by the loader's lock.
    let before = space.is_loading.swap(begins, Ordering::Relaxed);
    if before && begins {
        return;
    }
    if !before {
        space.feed.begin_unseen();
    }
    if !begins {
        space.feed.end_unseen();
        shared::get().map(Shared::wake_agents_thread);
    }
}

/// Returns the file of a descriptor, by the numbers that /proc/self/maps shows.
fn file(descriptor: u64) -> Option<FileId> {
    let mut stat = [0u64; 18];
    let into = stat.as_mut_ptr() as usize;
    // SAFETY: the kernel writes 144 bytes, the size of `stat`.
    unsafe { call(nr::FSTAT, [descriptor as usize, into, 0, 0, 0, 0]) }.ok()?;
    let [device, inode, ..] = stat;
    let major = (device >> 8 & 0xfff) | (device >> 32 & 0xffff_f000);
    let minor = (device & 0xff) | (device >> 12 & 0xffff_ff00);
    Some(FileId {
        device: major << 32 | minor,
        inode,
    })
}
