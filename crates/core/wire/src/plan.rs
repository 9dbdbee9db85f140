//! The plan segment: tiptoe's requests to the agent, its library in the target, one at a time. [`crate`] lists the
//! edges.

use crate::MAGIC;
use crate::arena;
use crate::geometry::{Geometry, MAX_RECORDS, PAGE_WORDS};
use crate::primitive::Ordering::{Acquire, Release};
use crate::record::{SITE_WORDS, Site};
use crate::words::Words;

const MAGIC_WORD: usize = 0;
const SEQUENCE: usize = 1;
const KIND: usize = 2;
const COUNT: usize = 3;
const SLOTS: usize = 4;
const SLABS: usize = 5;
const KEEP: usize = 6;
const CREDIT: usize = 7;
const NS_PER_TICK: usize = 8;
const SLOWER: usize = 9;
const RINGS: usize = 10;
const LOCKS: usize = 11;
const SCOPES: usize = 12;
const STILL: usize = 13;
const TRAP_BYTES: usize = 14;
const LOOKS: usize = 15;
const SILENT: usize = 16;
const HITS: usize = 17;
const LOCKED_LOOKUPS: usize = 18;
const RECORDS: usize = PAGE_WORDS;
const END: usize = RECORDS + MAX_RECORDS * SITE_WORDS;

/// A request. Each variant's comment names the records after the colon. The numbers are on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Request {
    /// Map memory for trampolines (code to which patches jump): [`Map`]s. Results: 0 or an errno.
    Map = 1,
    /// Patch [`Site`]s, places in the code.
    Arm = 3,
    /// Restore sites: addresses.
    Disarm = 4,
    /// Call indirect function resolvers: addresses. Results: addresses.
    Resolve = 5,
    /// Take over SIGTRAP and SIGILL before any site is patched. Results: the generation in the high half of
    /// [`crate::tls::BELIEVED`]; the initial values of the first word in [`crate::tls`] and of [`crate::tls::FRAMES`].
    Prepare = 6,
    /// Restore everything, and end the agent's thread.
    Detach = 7,
    /// Let a program that tiptoe started run its constructors.
    Go = 8,
    /// Patch an earlier session's sites: addresses.
    ArmAgain = 9,
    /// Make lookups find the earlier of two sites at one address: the earlier sites' trampolines, ascending.
    Recall = 21,
    /// Restore and patch sites [`Plan::times`] times, for tests: addresses.
    Toggle = 10,
    /// Finish [`Request::Detach`], after [`crate::State::Unhooked`]. tiptoe has then blocked, in each thread, the
    /// signals that [`crate::tls::BELIEVED`] names.
    Settle = 12,
    /// Prepare to *follow* calls (observe them until they return): the number of return thunks, to which these calls
    /// return. Results for 0: how many thunks are in use, how many exist.
    Thunks = 13,
    /// Learn the unwinders' functions that return a frame's address: addresses.
    Unwinders = 14,
    /// Replace the list of code to which followed calls may return: starts and ends, ascending, at most
    /// [`crate::calls::MAX_EXTENTS`] pairs.
    Described = 22,
    /// Give ranges of code separate mappings: starts and ends.
    SplitMaps = 25,
    /// Count ended threads' open calls in [`crate::calls::words::LEFT`].
    Bury = 15,
    /// Read the list of mappings now. Publishes [`crate::Readings`].
    ReadMaps = 24,
    /// Watch the loader's list of libraries: its address.
    Watch = 16,
    /// Learn of libraries that have sites: [`Library`]s.
    Libraries = 17,
    /// Open breakpoints for all threads: the number of CPUs, [`WatchTarget`]s. Results: how many threads have events,
    /// how many were created meanwhile, and on failure the thread without events.
    Observe = 18,
    /// Move a breakpoint: the breakpoint's number, a [`WatchTarget`].
    Turn = 19,
    /// Open ports, by which libraries call the agent (`tiptoe-port`): addresses. Results: 0, or EINVAL for no port.
    Ports = 20,
}

impl Request {
    fn from_word(word: u64) -> Option<Request> {
        use Request::*;
        [
            Map, Arm, Disarm, Resolve, Prepare, Detach, Go, ArmAgain, Toggle, Settle, Thunks,
            Unwinders, Bury, Watch, Libraries, ReadMaps, Observe, Turn, Ports, Recall, Described,
            SplitMaps,
        ]
        .into_iter()
        .find(|request| *request as u64 == word)
    }
}

/// Memory to map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Map {
    /// The address of the first arena ([`crate::arena`]).
    pub base: u64,
    /// Length in bytes, whole arenas.
    pub len: u64,
    /// The content.
    pub content: MapContent,
}

/// A [`Map`]'s content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapContent {
    /// Arenas: executable, read-only, shared, so that a fork copies nothing.
    Code {
        /// Offset in the segment's code, whole arenas.
        offset: u64,
    },
    /// Words of trampolines that follow calls: zeroed, writable, private.
    Words,
}

impl Map {
    fn words(&self) -> [u64; 2] {
        let offset = match self.content {
            MapContent::Code { offset } => 1 + offset / arena::LEN,
            MapContent::Words => 0,
        };
        [self.base, (self.len / arena::LEN) | (offset << 32)]
    }

    fn of([base, packed]: [u64; 2]) -> Map {
        let content = match packed >> 32 {
            0 => MapContent::Words,
            number => MapContent::Code {
                offset: (number - 1) * arena::LEN,
            },
        };
        Map {
            base,
            len: u64::from(packed as u32) * arena::LEN,
            content,
        }
    }
}

/// A variable to watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchTarget {
    /// The watched address.
    pub address: u64,
    /// The number of watched bytes.
    pub len: u8,
    /// The kernel's bits for read, write and execute.
    pub access: u8,
}

impl WatchTarget {
    /// Words of a target in a request.
    pub const WORDS: usize = 2;

    /// Encodes a target.
    pub fn words(&self) -> [u64; Self::WORDS] {
        [
            self.address,
            u64::from(self.len) | u64::from(self.access) << 8,
        ]
    }

    /// Decodes a target.
    pub fn of([address, shape]: [u64; Self::WORDS]) -> WatchTarget {
        let [len, access, ..] = shape.to_le_bytes();
        WatchTarget {
            address,
            len,
            access,
        }
    }
}

/// How followed and recorded calls are limited and timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// How many hits a thread may follow or record until tiptoe allows more.
    pub credit: u64,
    /// Nanoseconds per tick of the time stamp counter, times 2^32.
    pub ns_per_tick: u64,
    /// Calls shorter than this are not timed.
    pub slower_ns: u64,
}

/// A library loaded during the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Library {
    /// What the loader adds to the library's addresses.
    pub base: u64,
    /// The code's start; 0 once unloaded.
    pub start: u64,
    /// The code's end; 0 once unloaded.
    pub end: u64,
}

/// A plan segment. tiptoe calls the methods that store, the agent all other methods.
#[derive(Clone, Copy)]
pub struct Plan<'a>(Words<'a>);

impl<'a> Plan<'a> {
    /// Length of the plan in its sparse file.
    pub const BYTES: u64 = (END * 8) as u64;
    /// Length of the code after the plan.
    pub const CODE_BYTES: u64 = 8 << 30;
    /// The least code to map if the program's address space is limited.
    pub const LEAST_CODE_BYTES: u64 = 8 << 20;
    /// Offset of the return thunks in the code, before the arenas.
    pub const THUNKS: u64 = 0;
    /// Length of the file.
    pub const FILE_BYTES: u64 = Self::BYTES + Self::CODE_BYTES;
    /// The most records of a request.
    pub const MAX_RECORDS: usize = MAX_RECORDS;

    /// Views words as a plan.
    pub fn new(words: Words<'a>) -> Self {
        Plan(words)
    }

    /// Writes a new plan's header. With `keep_slabs`, dead threads' slabs (counters) are never reused, so that each
    /// thread has its own counts.
    pub fn format(&self, geometry: Geometry, keep_slabs: bool) {
        self.0.store(KEEP, keep_slabs as u64);
        self.0.store(SLOTS, geometry.slots as u64);
        self.0.store(SLABS, geometry.slabs as u64);
        self.0.store(RINGS, geometry.rings as u64);
        self.0.store(HITS, geometry.hits as u64);
        self.0.store(MAGIC_WORD, MAGIC);
    }

    /// Sets the clock.
    pub fn set_clock(&self, clock: &Clock) {
        self.0.store(CREDIT, clock.credit);
        self.0.store(NS_PER_TICK, clock.ns_per_tick);
        self.0.store(SLOWER, clock.slower_ns);
    }

    /// Sets the slot (number of the first counter) of lock data, or 0.
    pub fn set_lock_slot(&self, slot: u32) {
        self.0.store(LOCKS, slot.into());
    }

    /// Returns the slot of lock data.
    pub fn lock_slot(&self) -> u32 {
        self.0.load(LOCKS) as u32
    }

    /// Sets the slot of scope data, or 0.
    pub fn set_scope_slot(&self, slot: u32) {
        self.0.store(SCOPES, slot.into());
    }

    /// Returns the slot of scope data.
    pub fn scope_slot(&self) -> u32 {
        self.0.load(SCOPES) as u32
    }

    /// Returns the clock.
    pub fn clock(&self) -> Clock {
        Clock {
            credit: self.0.load(CREDIT),
            ns_per_tick: self.0.load(NS_PER_TICK),
            slower_ns: self.0.load(SLOWER),
        }
    }

    /// Returns the data segment's geometry, if the version is ours.
    pub fn geometry(&self) -> Option<Geometry> {
        let (slots, slabs) = (self.0.load(SLOTS) as u32, self.0.load(SLABS) as u32);
        let sound = self.0.load(MAGIC_WORD) == MAGIC && slots > 0 && slabs > 0;
        let [rings, hits] = [RINGS, HITS].map(|word| self.0.load(word) != 0);
        sound.then_some(Geometry {
            slots,
            slabs,
            rings,
            hits,
        })
    }

    /// Returns whether dead threads' slabs must be kept.
    pub fn keeps_slabs(&self) -> bool {
        self.0.load(KEEP) != 0
    }

    /// Records whether all threads stay stopped until the next answer.
    pub fn set_still(&self, still: bool) {
        self.0.store(STILL, still.into());
    }

    /// Sets whether trap bytes may be written. Must be false if a thread can block the traps' signals unnoticed by the
    /// agent.
    pub fn set_trap_bytes(&self, allowed: bool) {
        self.0.store(TRAP_BYTES, allowed.into());
    }

    /// Returns whether trap bytes may be written. False by default, because tiptoe may be killed before it decides.
    pub fn allows_trap_bytes(&self) -> bool {
        self.0.load(TRAP_BYTES) != 0
    }

    /// Counts one of tiptoe's checks whether the program gave up rights.
    pub fn note_look(&self) {
        self.0.store(LOOKS, self.looks().wrapping_add(1));
    }

    /// Returns how often [`Plan::note_look`] was called.
    pub fn looks(&self) -> u64 {
        self.0.load(LOOKS)
    }

    /// Sets whether traps' probes are looked up only under a lock, for benches.
    pub fn set_locked_lookups(&self, locked: bool) {
        self.0.store(LOCKED_LOOKUPS, locked.into());
    }

    /// Returns what [`Plan::set_locked_lookups`] set.
    pub fn has_locked_lookups(&self) -> bool {
        self.0.load(LOCKED_LOOKUPS) != 0
    }

    /// Makes the agent's thread sleep for ever at its next look for requests. The thread restores nothing, because a
    /// seccomp filter may kill the program at any other system call.
    pub fn silence(&self) {
        self.0.store(SILENT, 1);
    }

    /// Returns whether [`Plan::silence`] was called.
    pub fn is_silent(&self) -> bool {
        self.0.load(SILENT) != 0
    }

    /// Returns whether all threads are stopped.
    pub fn is_still(&self) -> bool {
        self.0.load(STILL) != 0
    }

    /// Publishes a request with stored records; returns the request's sequence number.
    pub fn publish(&self, request: Request, count: usize) -> u64 {
        self.0.store(KIND, request as u64);
        self.0.store(COUNT, count as u64);
        let next = self.0.load(SEQUENCE) + 1;
        if let Some(word) = self.0.at(SEQUENCE) {
            // Release: pairs with `sequence` (edge A).
            word.store(next, Release);
        }
        next
    }

    /// Returns the newest request's sequence number, or 0.
    pub fn sequence(&self) -> u64 {
        // Acquire: pairs with `publish` (edge A).
        self.0.at(SEQUENCE).map_or(0, |word| word.load(Acquire))
    }

    /// Returns the newest request and how many records it has.
    pub fn request(&self) -> Option<(Request, usize)> {
        let count = (self.0.load(COUNT) as usize).min(MAX_RECORDS);
        Some((Request::from_word(self.0.load(KIND))?, count))
    }

    /// Stores record `index`.
    pub fn put_site(&self, index: usize, site: &Site) {
        for (offset, word) in site.encode().into_iter().enumerate() {
            self.0.store(RECORDS + index * SITE_WORDS + offset, word);
        }
    }

    /// Returns record `index`.
    pub fn site(&self, index: usize) -> Option<Site> {
        Site::decode(core::array::from_fn(|offset| {
            self.0.load(RECORDS + index * SITE_WORDS + offset)
        }))
    }

    fn put_pair(&self, index: usize, first: u64, second: u64) {
        self.0.store(RECORDS + index * 2, first);
        self.0.store(RECORDS + index * 2 + 1, second);
    }

    /// Stores record `index`.
    pub fn put_map(&self, index: usize, map: Map) {
        let [first, second] = map.words();
        self.put_pair(index, first, second);
    }

    /// Returns record `index`.
    pub fn map(&self, index: usize) -> Map {
        let at = RECORDS + index * 2;
        Map::of([self.0.load(at), self.0.load(at + 1)])
    }

    /// Stores record `index`.
    pub fn put_library(&self, index: usize, library: &Library) {
        self.put_pair(2 * index, library.base, 0);
        self.put_pair(2 * index + 1, library.start, library.end);
    }

    /// Returns record `index`.
    pub fn library(&self, index: usize) -> Library {
        let at = RECORDS + index * 4;
        Library {
            base: self.0.load(at),
            start: self.0.load(at + 2),
            end: self.0.load(at + 3),
        }
    }

    /// Stores record `index`.
    pub fn put_address(&self, index: usize, address: u64) {
        self.put_pair(index, address, 0);
    }

    /// Sets the count of [`Request::Toggle`].
    pub fn put_times(&self, times: u64) {
        self.0.store(RECORDS + 1, times);
    }

    /// Returns the count of [`Request::Toggle`].
    pub fn times(&self) -> u64 {
        self.0.load(RECORDS + 1)
    }

    /// Returns record `index`.
    pub fn address(&self, index: usize) -> u64 {
        self.0.load(RECORDS + index * 2)
    }
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;
    extern crate std;
    use core::sync::atomic::AtomicU64;
    use std::vec::Vec;

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let words: Vec<AtomicU64> = (0..RECORDS + 64).map(|_| AtomicU64::new(0)).collect();
        let plan = Plan::new(Words::new(&words));
        assert_eq!(plan.geometry(), None);
        assert!(!plan.allows_trap_bytes(), "not allowed by default");
        plan.format(
            Geometry {
                slots: 3,
                slabs: 64,
                rings: true,
                hits: true,
            },
            true,
        );
        assert!(plan.keeps_slabs());
        let code = Map {
            base: 5 << 16,
            len: 2 << 30,
            content: MapContent::Code {
                offset: 70_000 << 16,
            },
        };
        let words = Map {
            content: MapContent::Words,
            ..code
        };
        [code, words]
            .into_iter()
            .enumerate()
            .for_each(|(index, map)| plan.put_map(index, map));
        assert_eq!(plan.publish(Request::Map, 2), 1);
        assert_eq!(
            plan.geometry(),
            Some(Geometry {
                slots: 3,
                slabs: 64,
                rings: true,
                hits: true,
            })
        );
        assert_eq!(
            (plan.sequence(), plan.request()),
            (1, Some((Request::Map, 2)))
        );
        assert_eq!([plan.map(0), plan.map(1)], [code, words]);
    }
}
