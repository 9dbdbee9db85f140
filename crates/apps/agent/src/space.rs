//! The program's address space, as the agent keeps it: which file's code is where.
//!
//! It is filled by the agent's thread, which reads /proc/self/maps, and fed by the
//! program's own calls as libc makes them; `tiptoe_uprobe::feed` has the rules. A trap
//! byte that a thread meets is ours if the file there is the one that was patched. Sites
//! themselves are found by address: a file may be mapped twice, and each place has
//! trampolines of its own, within a jump's reach. Where the space does not vouch for
//! a site, because something else is mapped there or nothing is certain, the bytes
//! around it decide (`tiptoe_uprobe::window`): a program may copy its code into other memory
//! under the same addresses. So no trap waits for anything.
//!
//! | who | does | waits |
//! |---|---|---|
//! | any thread of the program | [`change`]: makes a call that changes code, and notes it | some looks for the lock |
//! | a signal handler | [`vouches`] | some looks for the lock, to read |
//! | the thread that loads a library | [`loading`]: what the loader maps is not seen | never |
//! | the agent's thread | [`tend`], [`read`]: reads the list; [`note_places`] | for the lock, bounded |
//!
//! A forked child has none, and the bytes decide there.

use core::mem::size_of;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use tiptoe_sys::raw::{self, call, getpid, nr};
use tiptoe_uprobe::feed::call::Call;
use tiptoe_uprobe::feed::{Answer, Feed, FileId, Reading};
use tiptoe_uprobe::lookup::Place;
use tiptoe_uprobe::table::TrapSite;
use tiptoe_uprobe::window;
use tiptoe_wire::{Data, Readings, Site, SiteFlags, slots};

use crate::clockwork;
use crate::files::{File, Which};
use crate::hit;
use crate::hooks::{self, Frame};
use crate::memory::{self, PAGE};
use crate::shared::{self, MAX_SITES, Shared};
use crate::signals::OURS;
use crate::thread::set_mask;
use crate::tls;

/// Tables of the page table, of 1 KB, which take memory when they are used: with more, what
/// is read is in doubt for good, and bytes decide.
const TABLES: usize = 1 << 11;
/// Files that are told apart, a power of two.
const FILES: usize = 1 << 12;
/// How often the agent's thread looks for the lock before it sleeps, and how often it sleeps
/// then: whoever is in may wait for a core.
const LOOKS: u32 = 1 << 10;
const SLEEPS: u32 = 20;
const SLEEP_NS: u64 = 1_000_000;
/// The list is read again by itself for this part of the time at most: 1 in so many.
const SHARE: u64 = 100;
/// How long the agent's thread sleeps until it looks whether it may read again.
const SOON_NS: u64 = 10_000_000;

/// The space of one process.
struct Space {
    feed: Feed<'static>,
    /// For each site its place in its file; 0 where that is not known.
    places: &'static [AtomicU64],
    /// The process that it is true of.
    pid: AtomicU32,
    /// The loader maps and unmaps.
    loading: AtomicBool,
    /// The list cannot be read.
    blind: AtomicBool,
    /// When it may be read again by itself, in ticks.
    due: AtomicU64,
    readings: AtomicU64,
    corrected: AtomicU64,
}

/// `None` also in a forked child, which has not even the memory: the word with its address is wiped there.
fn get() -> Option<&'static Space> {
    // Acquire: pairs with the Release in `make`.
    let at = shared::get()?.space.load(Ordering::Acquire);
    // SAFETY: the block is never freed, and only changed through atomics.
    unsafe { (at as *const Space).as_ref() }
}

/// A session begins. A forked child has no copy of its parent's: it gets a space of its own. Without memory there is
/// none, and bytes decide.
pub fn begin() {
    if get().is_none() {
        make();
    }
    if let Some(space) = get() {
        // What happened since the last session nobody saw.
        space.doubt();
    }
}

fn make() -> Option<()> {
    let words = Feed::words(TABLES, FILES);
    let head = size_of::<Space>().next_multiple_of(PAGE);
    let at = memory::not_forked(head + (words + MAX_SITES) * size_of::<u64>()).ok()?;
    // SAFETY: fresh zeroed memory of that length, which is never unmapped; seen as atomics
    // only from here on.
    let all: &'static [AtomicU64] =
        unsafe { core::slice::from_raw_parts((at + head) as *const AtomicU64, words + MAX_SITES) };
    let (words, places) = all.split_at_checked(words)?;
    let space = Space {
        feed: Feed::new(words, TABLES, FILES)?,
        places,
        pid: AtomicU32::new(getpid()),
        loading: AtomicBool::new(false),
        blind: AtomicBool::new(false),
        due: AtomicU64::new(0),
        readings: AtomicU64::new(0),
        corrected: AtomicU64::new(0),
    };
    // SAFETY: the head of that memory is large enough, and page-aligned.
    unsafe { (at as *mut Space).write(space) };
    shared::get()?.space.store(at as u64, Ordering::Release); // pairs with `get`
    Some(())
}

impl Space {
    fn is_home(&self) -> bool {
        self.pid.load(Ordering::Relaxed) == getpid() // constant
    }

    /// Whether it may be fed.
    fn is_on(&self) -> bool {
        // Relaxed: without the list there is nothing that could be wrong.
        !self.blind.load(Ordering::Relaxed) && self.is_home()
    }

    /// Something may have happened that nobody saw.
    fn doubt(&self) {
        self.feed.begin_unseen();
        self.feed.end_unseen();
    }

    fn read_once(&self) -> Option<Reading> {
        let Some(list) = File::open(Which::Maps) else {
            self.blind.store(true, Ordering::Relaxed); // as in `is_on`
            return None;
        };
        let began = clockwork::ticks();
        let reading = self.feed.read_again(LOOKS, |buffer| {
            let into = buffer.as_mut_ptr() as usize;
            // SAFETY: the kernel writes at most the buffer's length.
            unsafe { call(nr::READ, [list.fd() as usize, into, buffer.len(), 0, 0, 0]) }.ok()
        });
        drop(list);
        let now = clockwork::ticks();
        let pause = now.wrapping_sub(began).saturating_mul(SHARE);
        self.due.store(now.saturating_add(pause), Ordering::Relaxed); // agent's thread only
        reading
    }

    fn read(&self, data: &Data) {
        let mut tries = (0..SLEEPS).map_while(|turn| {
            if turn > 0 {
                raw::sleep_ns(SLEEP_NS);
            }
            // Relaxed: as in `is_on`.
            (!self.blind.load(Ordering::Relaxed)).then(|| self.read_once())
        });
        let reading = tries.find_map(|reading| reading);
        if let Some(reading) = reading {
            // Relaxed: agent's thread only.
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

    fn place(&self, site: usize) -> Option<Place> {
        let word = self.places.get(site)?.load(Ordering::Relaxed); // written before it is armed
        Place::from_word(word)
    }
}

/// Reads the list. (agent's thread)
pub fn read(data: &Data) -> u64 {
    if let Some(space) = get() {
        space.read(data);
    }
    0
}

/// Reads the list if something is unsure, though not too often; how long the agent's
/// thread may sleep. (agent's thread)
pub fn tend(data: &Data) -> Option<u64> {
    let space = get().filter(|space| space.feed.is_unsure())?;
    // Relaxed: as in `is_on`; agent's thread only.
    if space.blind.load(Ordering::Relaxed) {
        return None;
    }
    if clockwork::ticks() >= space.due.load(Ordering::Relaxed) {
        space.read(data);
    }
    space.feed.is_unsure().then_some(SOON_NS)
}

/// Notes which file each of these sites is in, before they are armed. Hooks that stand from
/// now on have not seen what was before. (agent's thread)
pub fn note_places(data: &Data, count: usize, site: impl Fn(usize) -> Option<(usize, Site)>) {
    let Some(space) = get() else { return };
    let unknown = |(_, site): (usize, Site)| space.feed.place_of(site.address).is_none();
    if space.feed.is_unsure() || (0..count).filter_map(&site).any(unknown) {
        space.read(data);
    }
    let mut hooks = false;
    for (index, site) in (0..count).filter_map(site) {
        let place = space.feed.place_of(site.address);
        if let Some(word) = space.places.get(index) {
            word.store(place.map_or(0, Place::word), Ordering::Relaxed); // before it is armed
        }
        hooks |= site.flags.has(SiteFlags::HOOK);
    }
    if hooks {
        space.doubt();
    }
}

/// Whether a trap at `address`, within a site, is ours. In a signal handler.
pub fn vouches(shared: &Shared, found: &TrapSite, address: u64) -> bool {
    let known = get().and_then(|space| Some((space, space.place(found.index)?)));
    let is_known = match known {
        Some((space, place)) => {
            let answer = space.feed.is_at(address, found.site.address, place);
            count(
                shared,
                match answer {
                    Answer::Speculative => slots::SPECULATIVE,
                    Answer::Locked => slots::LOCKED,
                    Answer::Missed => slots::MISSED,
                },
            );
            answer != Answer::Missed
        }
        None => shared.is_here(),
    };
    is_known || {
        // The thread just executed an instruction of this page.
        let page = address / PAGE as u64;
        let window = found.site.address..found.site.address + u64::from(found.site.len);
        window::may_be_ours(&found.site, |at| {
            // What is behind the window may be another one's already.
            let other = !window.contains(&at) && shared.table.covers(at);
            // SAFETY: as said, so the page is there, and code is only read as bytes.
            let read = || unsafe { (at as *const u8).read_volatile() };
            (at / PAGE as u64 == page && !other).then(read)
        })
    }
}

/// Adds one to a slot of the calling thread's slab, which it gets where it has none.
fn count(shared: &Shared, slot: u32) {
    let index = shared.descriptor_index(tls::descriptor());
    let descriptor = index.and_then(|index| shared.claims.descriptor(index));
    // Relaxed: the thread's own word.
    match descriptor.map_or(0, |own| own.slab.load(Ordering::Relaxed)) {
        0 => hit::cold(slot.into(), 0, 0),
        slab => {
            let word = slab as usize + slot as usize * size_of::<u64>();
            // SAFETY: as trampolines do: at a slab's address there is memory for good, and
            // it has these words in front of its counters.
            let word = unsafe { &*(word as *const AtomicU64) };
            word.fetch_add(1, Ordering::Relaxed); // a count orders nothing
        }
    }
}

/// Makes a call that changes what of files can be run where, and notes it; `None` where the
/// program makes the call itself.
pub fn change(number: usize, frame: &Frame) -> Option<i64> {
    let args = [
        frame.rdi, frame.rsi, frame.rdx, frame.r10, frame.r8, frame.r9,
    ];
    let call = Call::of(number, args)?;
    let space = get().filter(|space| space.feed.concerns(&call))?;
    // A thread that unmaps its own stack must not come back here.
    let stack = core::ptr::from_ref(frame) as u64;
    if call.frees(stack) || !space.is_on() {
        return None;
    }
    // What runs on top of this could ask, or change, too.
    let mask = set_mask(!OURS);
    let make = || hooks::perform(number, frame);
    let result = space.feed.perform(&call, || file(frame.r8), make);
    set_mask(mask);
    if let Some(shared) = shared::get() {
        count(shared, slots::CHANGES);
        if space.feed.is_unsure() {
            wake(shared);
        }
    }
    Some(result)
}

/// The loader begins to map and unmap, or is done with that: nobody sees what it does.
/// Under the loader's lock.
pub fn loading(begins: bool) {
    let Some(space) = get().filter(|space| space.is_on()) else {
        return;
    };
    // Relaxed: under the loader's lock.
    let before = space.loading.swap(begins, Ordering::Relaxed);
    if before && begins {
        return;
    }
    if !before {
        space.feed.begin_unseen();
    }
    if !begins {
        space.feed.end_unseen();
        shared::get().map(wake);
    }
}

fn wake(shared: &Shared) {
    if let Some(owner) = shared.data().and_then(|data| data.owner()) {
        raw::futex::wake(owner, u32::MAX);
    }
}

/// The file behind a descriptor, as /proc/self/maps names most.
fn file(descriptor: u64) -> Option<FileId> {
    // struct stat: the device and the inode come first.
    let mut stat = [0u64; 18];
    let into = stat.as_mut_ptr() as usize;
    // SAFETY: the kernel writes 144 bytes, which `stat` has.
    unsafe { call(nr::FSTAT, [descriptor as usize, into, 0, 0, 0, 0]) }.ok()?;
    let [device, inode, ..] = stat;
    let major = (device >> 8 & 0xfff) | (device >> 32 & 0xffff_f000);
    let minor = (device & 0xff) | (device >> 12 & 0xffff_ff00);
    Some(FileId {
        device: major << 32 | minor,
        inode,
    })
}
