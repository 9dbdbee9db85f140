//! The agent's state: one block for the life of the process, with the present session's fields.

use core::mem::size_of;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use tiptoe_sync::ThreadLock;
use tiptoe_sys::raw::{Errno, futex, getpid};
use tiptoe_uprobe::claim::{Claims, Descriptor};
use tiptoe_uprobe::table::Table;
use tiptoe_uprobe::thunks::{RECORD_WORDS, Thunks};
use tiptoe_wire::calls::{HASH, MAX_THUNKS, TABLE_BITS, THUNK_CODE};
use tiptoe_wire::{Data, Geometry, Plan, SLOT_WORDS, Words};

use crate::arenas::Arenas;
use crate::described::DescribedCode;
use crate::libraries::{self, Libraries, Library};
use crate::memory::{self, PAGE};
use crate::segments::Segments;
use crate::unwind_info;

mod room;

use room::PageAllocator;

const MAX_SITES: usize = 1 << 18;
/// The most threads that have a slab (a block of counters) at one time.
const MAX_DESCRIPTORS: usize = 16_383;
const THUNK_TABLE: usize = 2 * Thunks::entries(TABLE_BITS);
/// Flags beside the number of slabs: each slab has a ring of records; breakpoints' hits follow the slabs.
const RINGS: u32 = 1 << 31;
const HITS: u32 = 1 << 30;

/// State that outlives a session. A forked child has a copy, in which the words of `lock`, `here`, `gate`,
/// `signals_owner`, `space`, `regions`, `descriptors` and `claims` are wiped.
pub struct Shared {
    /// The process that began the session. A forked child has its parent's number here.
    pub pid: AtomicU32,
    /// INVARIANT: only the thread that holds this lock begins, serves or ends a session: the agent's thread, or one
    /// that has a [`crate::thread::SessionGuard`].
    pub lock: ThreadLock<'static>,
    pub must_leave: AtomicBool,
    /// Whether a started program may run its constructors.
    pub go: AtomicU32,
    /// Whether another tracer that removed its trap byte may have overwritten our patch.
    pub must_rearm: AtomicBool,
    /// The sites (places in code) of all sessions, patched or not. [`ARMED`] has the layout of a site's word.
    pub table: Table<'static>,
    pub libraries: Libraries,
    pub claims: Claims<'static>,
    pub thunks: Thunks<'static>,
    pub described: DescribedCode,
    pub arenas: Arenas,
    thunk_table: u64,
    thunk_code: usize,
    unwind_info: usize,
    unwinders: [AtomicU64; unwind_info::UNWINDERS],
    regions: &'static [AtomicU64],
    credit: AtomicU64,
    descriptors: &'static [Descriptor],
    records: usize,
    data: AtomicUsize,
    shape: AtomicU64,
    keep: AtomicBool,
    lock_slot: AtomicU32,
    scope_slot: AtomicU32,
    here: &'static AtomicU32,
    /// Nonzero while a thread may get a slab at its first hit of a probe.
    gate: &'static AtomicU32,
    pub signals_owner: &'static AtomicU32,
    /// The address of the agent's list of mappings ([`crate::space`]), or 0.
    pub space: &'static AtomicU64,
    plan: AtomicUsize,
    plan_len: AtomicUsize,
    segments: Segments,
}

/// The address and number of the sites' records, for a later tiptoe.
#[unsafe(no_mangle)]
static TIPTOE_SITES: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(core::ptr::null_mut());

pub fn get() -> Option<&'static Shared> {
    // Acquire: pairs with the Release in `create`. SAFETY: the block is never freed, and changed only through
    // atomics.
    unsafe { SHARED.load(Ordering::Acquire).as_ref() }
}

/// Returns where the pointer to the state is stored. The state's address is random, so a process with the same pointer
/// there is a fork of this one.
pub fn address_of_pointer() -> u64 {
    (&raw const SHARED) as u64
}

/// Returns the state if this process, and not its parent, has a session.
pub fn at_home() -> Option<&'static Shared> {
    get().filter(|s| s.is_home() && s.data().is_some())
}

const WIPED: usize = PageAllocator::of::<Descriptor>(MAX_DESCRIPTORS)
    + PageAllocator::of::<AtomicU32>(5)
    + PageAllocator::of::<AtomicU64>(1)
    + PageAllocator::of::<AtomicU64>(MAX_DESCRIPTORS);
const LASTING: usize = WIPED
    + PageAllocator::of::<[AtomicU64; SLOT_WORDS]>(MAX_SITES)
    + PageAllocator::of::<AtomicU64>(Arenas::WORDS)
    + PageAllocator::of::<Library>(libraries::MOST)
    + PageAllocator::of::<AtomicU64>(DescribedCode::WORDS)
    + PageAllocator::of::<AtomicU64>(THUNK_TABLE)
    + 2 * THUNK_CODE
    + PAGE
    + PageAllocator::of::<Shared>(1);

pub fn create() -> Result<&'static Shared, Errno> {
    if let Some(shared) = get() {
        return Ok(shared);
    }
    let room = PageAllocator::new(LASTING)?;
    let at = room.at;
    memory::wipe_on_fork(at, WIPED)
        .and_then(|()| lay_out(room))
        .inspect_err(|_| memory::unmap(at, LASTING))
}

/// Lays the state out. The part that a fork wipes must be first.
fn lay_out(mut room: PageAllocator) -> Result<&'static Shared, Errno> {
    let descriptors: &'static [Descriptor] = room.slice(MAX_DESCRIPTORS)?;
    let words: &'static [AtomicU32; 5] = room.slice(5)?.as_array().ok_or(Errno(12))?;
    let [used, here, signals_owner, gate, lock] = words;
    let space = room.slice(1)?.first().ok_or(Errno(12))?;
    let regions = room.slice(MAX_DESCRIPTORS)?;
    // The parts that each session uses are adjacent, because a fork allocates a page table for each used 2 MiB.
    let libraries = Libraries::new(room.slice(libraries::MOST)?);
    let arenas = room.slice(Arenas::WORDS)?;
    let block = room.bytes(PageAllocator::of::<Shared>(1))? as *mut Shared;
    let slots: &'static [[AtomicU64; SLOT_WORDS]] = room.slice(MAX_SITES)?;
    let described = DescribedCode::new(room.slice(DescribedCode::WORDS)?);
    let thunk_table = room.slice(THUNK_TABLE)?;
    let thunk_code = room.bytes(THUNK_CODE)?;
    let thunk_records = room.slice(MAX_THUNKS * RECORD_WORDS)?;
    let unwind_info = room.bytes(PAGE)?;
    let shared = Shared {
        pid: AtomicU32::new(0),
        lock: ThreadLock::new(lock),
        must_leave: AtomicBool::new(false),
        go: AtomicU32::new(0),
        must_rearm: AtomicBool::new(false),
        table: Table::new(slots),
        libraries,
        claims: Claims::new(descriptors, used),
        thunks: Thunks::new(thunk_table, thunk_records, TABLE_BITS, HASH),
        described,
        arenas: Arenas::new(arenas),
        thunk_table: thunk_table.as_ptr() as u64,
        thunk_code,
        unwind_info,
        unwinders: [const { AtomicU64::new(0) }; unwind_info::UNWINDERS],
        regions,
        credit: AtomicU64::new(0),
        descriptors,
        records: slots.as_ptr() as usize,
        data: AtomicUsize::new(0),
        shape: AtomicU64::new(0),
        keep: AtomicBool::new(false),
        lock_slot: AtomicU32::new(0),
        scope_slot: AtomicU32::new(0),
        here,
        gate,
        signals_owner,
        space,
        plan: AtomicUsize::new(0),
        plan_len: AtomicUsize::new(0),
        segments: Segments::new(),
    };
    // SAFETY: `block` is fresh, aligned to a page and large enough.
    unsafe { block.write(shared) };
    let none = core::ptr::null_mut();
    // Release: pairs with the Acquire in `get`. The exchange fails if another thread, borrowed by a tiptoe that has
    // died, was faster.
    let first = SHARED.compare_exchange(none, block, Ordering::Release, Ordering::Relaxed);
    first.map_err(|_| Errno(16))?;
    // SAFETY: the block was written above, and is never freed.
    Ok(unsafe { &*block })
}

/// In a site's word, the bit of a patched site. The higher bits are the number of the site's library plus 1, or 0 if
/// the library is not tracked.
const ARMED: u64 = 1;
/// The library number of sites whose library was closed before tiptoe had read it. No library has this number.
pub const NOWHERE: usize = libraries::MOST;

impl Shared {
    fn armed_word(&self, index: usize) -> u64 {
        // Relaxed: a reader may use the old value for a while.
        let word = self.table.word(index);
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    pub fn is_armed(&self, index: usize) -> bool {
        self.armed_word(index) & ARMED != 0
    }

    pub fn set_armed(&self, index: usize, armed: bool) {
        if let Some(word) = self.table.word(index) {
            // Relaxed: as in `armed_word`.
            match armed {
                true => word.fetch_or(ARMED, Ordering::Relaxed),
                false => word.fetch_and(!ARMED, Ordering::Relaxed),
            };
        }
    }

    pub fn library_of(&self, index: usize) -> Option<usize> {
        ((self.armed_word(index) >> 1) as usize).checked_sub(1)
    }

    /// Called only by the agent's thread.
    pub fn set_library(&self, index: usize, number: Option<usize>) {
        if let Some(word) = self.table.word(index) {
            let number = number.map_or(0, |number| number as u64 + 1);
            let with = |word| Some(number << 1 | word & ARMED);
            // Relaxed: as in `armed_word`. The update cannot fail.
            let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with);
        }
    }

    /// Returns whether a site's code is still mapped.
    pub fn is_live(&self, index: usize) -> bool {
        let number = self.library_of(index);
        !number.is_some_and(|number| self.libraries.is_closed(number))
    }

    pub fn publish_sites(&self) {
        let [records, count] = &TIPTOE_SITES;
        records.store(self.records as u64, Ordering::Relaxed); // Relaxed: published by the count
        count.store(self.table.len() as u64, Ordering::Release); // Release: orders the records before the count
    }

    /// Returns the address of return thunks, code to which some probed calls return. The thunks' records are
    /// [`THUNK_CODE`] bytes after it.
    pub fn thunk_code(&self) -> usize {
        self.thunk_code
    }

    pub fn unwind_info(&self) -> usize {
        self.unwind_info
    }

    pub fn write_unwind_info(&self) {
        let (at, code) = (self.unwind_info as u64, self.thunk_code as u64);
        let info = unwind_info::info(at, code, THUNK_CODE as u64, THUNK_CODE as i32);
        // SAFETY: this page is our own, and no thread reads it before the first thunk is made.
        unsafe { (self.unwind_info as *mut [u8; unwind_info::INFO]).write(info) };
    }

    /// Returns the address of `_Unwind_GetIP` or `_Unwind_GetCFA`.
    pub fn unwinder(&self, number: usize) -> Option<u64> {
        let word = self.unwinders.get(number)?.load(Ordering::Relaxed); // Relaxed: set before its interception
        (word != 0).then_some(word)
    }

    pub fn set_unwinder(&self, number: usize, address: u64) {
        if let Some(word) = self.unwinders.get(number) {
            word.store(address, Ordering::Relaxed);
        }
    }

    pub fn is_ours(&self, address: u64) -> bool {
        unsafe extern "C" {
            static __ehdr_start: u8;
            static etext: u8;
        }
        let agent = (&raw const __ehdr_start) as u64..(&raw const etext) as u64;
        agent.contains(&address) || self.thunks.at(address).is_some() || self.arenas.hold(address)
    }

    /// Returns each descriptor's index with the address of its thread's frames (records of calls), if any.
    pub fn regions(&self) -> impl Iterator<Item = (usize, u64)> {
        // Relaxed: as in `Region::give`.
        let bases = self.regions.iter().enumerate().take(self.claims.used());
        let bases = bases.map(|(index, word)| (index, word.load(Ordering::Relaxed)));
        bases.filter(|(_, base)| *base != 0)
    }

    pub fn region(&self, index: usize) -> Option<&'static AtomicU64> {
        self.regions.get(index)
    }

    /// Returns how many hits a thread may record before tiptoe grants more.
    pub fn credit(&self) -> u64 {
        self.credit.load(Ordering::Relaxed) // Relaxed: written before `data`
    }

    pub fn lasting_range(&self) -> (u64, u64) {
        (self.descriptors.as_ptr() as u64, LASTING as u64)
    }

    pub fn descriptor_index(&self, address: u64) -> Option<usize> {
        let base = self.descriptors.as_ptr() as u64;
        let index = address.checked_sub(base)? as usize / size_of::<Descriptor>();
        (index < self.descriptors.len()).then_some(index)
    }

    pub fn plan(&self) -> Option<Plan<'static>> {
        let at = self.plan.load(Ordering::Acquire); // pairs with `map_session`
        // SAFETY: the segment was mapped with this length and is sealed against shrinking. Only the thread that holds
        // `lock` reads or unmaps the segment.
        (at != 0)
            .then(|| Plan::new(unsafe { Words::from_raw(at as *const u8, Plan::BYTES as usize) }))
    }

    /// Returns the addresses of the code after the plan (tiptoe's requests). Called only by the agent's thread.
    pub fn code(&self) -> Range<usize> {
        // Relaxed: set before the agent's thread began.
        let plan = self.plan.load(Ordering::Relaxed);
        plan + Plan::BYTES as usize..plan + self.plan_len.load(Ordering::Relaxed)
    }

    pub fn data(&self) -> Option<Data<'static>> {
        let at = self.data.load(Ordering::Acquire); // pairs with `publish`
        let geometry = self.geometry();
        let len = geometry.data_bytes() as usize;
        // SAFETY: the segment was mapped with this length and is sealed against shrinking. Its addresses stay
        // mapped.
        (at != 0).then(|| Data::new(unsafe { Words::from_raw(at as *const u8, len) }, geometry))?
    }

    pub fn wake_agents_thread(&self) {
        if let Some(owner) = self.data().and_then(|data| data.owner()) {
            futex::wake(owner, u32::MAX);
        }
    }

    fn geometry(&self) -> Geometry {
        let shape = self.shape.load(Ordering::Relaxed); // written before `data`
        Geometry {
            slots: shape as u32,
            slabs: (shape >> 32) as u32 & !(RINGS | HITS),
            rings: (shape >> 32) as u32 & RINGS != 0,
            hits: (shape >> 32) as u32 & HITS != 0,
        }
    }

    /// Returns whether a dead thread's slab is never reused in this session.
    pub fn keeps_slabs(&self) -> bool {
        self.keep.load(Ordering::Relaxed) // written before `data`
    }

    /// Returns whether this process, and not its parent, began a session.
    pub fn is_here(&self) -> bool {
        self.here.load(Ordering::Relaxed) != 0 // a fork wipes the word
    }

    pub fn set_gate(&self, open: bool) {
        self.gate.store(open.into(), Ordering::Relaxed); // Relaxed: a hint; the session's number in `claims` decides
    }

    pub fn words_of_trampolines(&self) -> (u64, u64) {
        (core::ptr::from_ref(self.gate) as u64, self.thunk_table)
    }

    pub fn address_of_here(&self) -> u64 {
        core::ptr::from_ref(self.here) as u64
    }

    /// Returns whether the calling process itself has the session. Checks `here`, which a fork wipes, first, because a
    /// forked child's seccomp filter may kill it for getpid. The process id excludes a child that shares this memory.
    pub fn is_home(&self) -> bool {
        self.is_here() && self.pid.load(Ordering::Relaxed) == getpid() // constant within a session
    }

    /// Returns the first slot (word index) of a slab's scope records, if the session records scopes.
    pub fn scope_slot(&self) -> Option<u32> {
        let slot = self.scope_slot.load(Ordering::Relaxed); // written before `data`
        (slot != 0).then_some(slot)
    }

    /// As [`Shared::scope_slot`], for the records of contended locks.
    pub fn lock_slot(&self) -> Option<u32> {
        let slot = self.lock_slot.load(Ordering::Relaxed); // written before `data`
        (slot != 0).then_some(slot)
    }

    pub fn slab(&self, data: &Data, index: u32) -> u64 {
        self.data.load(Ordering::Relaxed) as u64 + data.geometry().slab(index) as u64 * 8
    }

    pub fn slab_at(&self, data: &Data, address: u64) -> Option<u32> {
        let offset = address.checked_sub(self.data.load(Ordering::Relaxed) as u64)?; // Relaxed: `data` was read from it
        data.geometry().slab_at(offset)
    }

    /// Maps both segments for a new session. Returns the data segment's address and the plan.
    pub fn map_session(&self, data_fd: i32, plan_fd: i32) -> Result<(usize, Plan<'static>), Errno> {
        let [all, least] =
            [Plan::CODE_BYTES, Plan::LEAST_CODE_BYTES].map(|code| (Plan::BYTES + code) as usize);
        let map = |len| memory::segment(plan_fd, len, false).map(|plan| (plan, len));
        let (plan, len) = map(all).or_else(|_| map(least))?;
        self.plan_len.store(len, Ordering::Relaxed); // published by `plan`
        self.plan.store(plan, Ordering::Release); // pairs with `plan`
        let header = self
            .plan()
            .and_then(|plan| Some((plan.geometry()?, plan.keeps_slabs(), plan)));
        let Some((geometry, keep, terms)) = header else {
            self.unmap_plan();
            return Err(Errno(22));
        };
        let len = geometry.data_bytes() as usize;
        let data = self.segments.map(data_fd, len);
        let data = data.inspect_err(|_| self.drop_session())?;
        let rings = if geometry.rings { RINGS } else { 0 };
        let hits = if geometry.hits { HITS } else { 0 };
        let shape = geometry.slots as u64 | u64::from(geometry.slabs | rings | hits) << 32;
        self.shape.store(shape, Ordering::Relaxed); // published by `data`, as all below
        self.keep.store(keep, Ordering::Relaxed);
        self.credit.store(terms.clock().credit, Ordering::Relaxed);
        self.lock_slot.store(terms.lock_slot(), Ordering::Relaxed);
        self.scope_slot.store(terms.scope_slot(), Ordering::Relaxed);
        Ok((data, terms))
    }

    pub fn publish(&self, data: usize) {
        self.here.store(1, Ordering::Relaxed); // published by `data`
        self.data.store(data, Ordering::Release); // pairs with `data`
    }

    /// Removes the session's segments, to which preempted threads may still write ([`Segments`]).
    pub fn close_session(&self) {
        let data = self.data.swap(0, Ordering::AcqRel);
        let len = self.geometry().data_bytes() as usize;
        if data != 0 {
            self.segments.close(data, len);
        }
        self.unmap_plan();
    }

    fn unmap_plan(&self) {
        let plan = self.plan.swap(0, Ordering::AcqRel);
        if plan != 0 {
            memory::unmap(plan, self.plan_len.load(Ordering::Relaxed)); // Relaxed: one thread ends a session
        }
    }

    /// Unmaps the segments of a session that has not begun.
    pub fn drop_session(&self) {
        let data = self.data.swap(0, Ordering::Relaxed); // Relaxed: one thread begins a session
        if data != 0 {
            self.segments
                .give_up(data, self.geometry().data_bytes() as usize);
        }
        self.unmap_plan();
    }

    pub fn forget_session(&self) {
        self.data.store(0, Ordering::Relaxed); // Relaxed: in a forked child no thread uses the parent's session
        self.plan.store(0, Ordering::Relaxed);
        self.segments.forget();
    }
}
