//! The data segment: the answers of the agent (tiptoe's library in the target), and threads' counters, a *slab* for
//! each thread. [`crate`] lists the edges.

use crate::MAGIC;
use crate::geometry::{CREDIT, Geometry, MAX_RECORDS};
use crate::hits::Hits;

use crate::primitive::Ordering::{Acquire, Release};
use crate::ring::{self, Record, Ring};
use crate::words::Words;

#[cfg(not(tiptoe_loom))]
mod changes;
mod hello;
pub(crate) mod space;

pub use hello::{AgentAddresses, Hello};

const SLAB_WORDS: usize = Geometry::FIRST_SLOT as usize;

const MAGIC_WORD: usize = 0;
const STATE: usize = 1;
const ACK: usize = 2;
const OUTCOME: usize = 3;
#[cfg(not(tiptoe_loom))]
const OWNER: usize = 4;
const PID: usize = 5;
const TLS: usize = 6;
const COLD_ENTRY: usize = 7;
const HOOK_ENTRY: usize = 8;
const REARMED: usize = 9;
const SLOW_ENTRY: usize = 10;
const THREAD: usize = 11;
const TIME_ENTRY: usize = 12;
const FUTEX_ENTRY: usize = 13;
const LAST_ENTERED: usize = 14;
const LEFT: usize = 15;
const GATE: usize = 38;
const THUNKS: usize = 39;

/// The agent's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum State {
    /// Not started.
    Absent = 0,
    /// Serves requests.
    Serving = 1,
    /// Has restored all code; nothing of the agent runs.
    Dormant = 2,
    /// Has removed all trap bytes, and waits for [`crate::Request::Settle`].
    Unhooked = 3,
}

/// Why an agent detached on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum LeaveReason {
    /// The program confined itself by seccomp, or was about to.
    Seccomp = 1,
    /// The program dropped rights without seccomp, or entered namespaces where the agent can start no thread.
    Confined = 2,
    /// The program was about to run a thread whose thread-local block, where patched code reads pointers, the C library
    /// did not set up.
    Storage = 3,
    /// The program was about to send all system calls, including the agent's, to a signal handler.
    Dispatch = 4,
}

/// A data segment. Unless stated, the agent calls the methods that store, and tiptoe the methods that load.
#[derive(Clone, Copy)]
pub struct Data<'a> {
    words: Words<'a>,
    geometry: Geometry,
}

impl<'a> Data<'a> {
    /// Byte offset of [`Data::owner`], for reads by an agent that cannot map the segment.
    #[cfg(not(tiptoe_loom))]
    pub const OWNER_OFFSET: u64 = OWNER as u64 * 8;
    /// Byte offset of [`Data::refusal`].
    pub const REFUSAL_OFFSET: u64 = STATE as u64 * 8;

    /// Returns what an agent must write if it cannot serve: state, sequence, errno.
    pub fn refusal(errno: u64) -> [u64; 3] {
        const _: () = assert!(ACK == STATE + 1 && OUTCOME == STATE + 2);
        [State::Dormant as u64, 0, errno]
    }

    /// Views words; `None` if there are too few.
    pub fn new(words: Words<'a>, geometry: Geometry) -> Option<Self> {
        (words.len() as u64 * 8 >= geometry.data_bytes()).then_some(Data { words, geometry })
    }

    /// Returns the geometry.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the robust futex that tiptoe holds while it lives.
    #[cfg(not(tiptoe_loom))]
    pub fn owner(&self) -> Option<&'a core::sync::atomic::AtomicU32> {
        self.words.futex(OWNER)
    }

    /// Publishes the agent's identity, and [`State::Serving`].
    pub fn greet(&self, hello: &Hello) {
        self.words.store(PID, hello.pid as u64);
        self.words.store(TLS, hello.tls as u64);
        let at = &hello.addresses;
        self.words.store(COLD_ENTRY, at.cold_entry);
        self.words.store(HOOK_ENTRY, at.hook_entry);
        self.words.store(SLOW_ENTRY, at.slow_entry);
        self.words.store(TIME_ENTRY, at.time_entry);
        self.words.store(FUTEX_ENTRY, at.futex_entry);
        self.words.store(GATE, at.gate);
        self.words.store(THUNKS, at.thunks);
        self.words.store(MAGIC_WORD, MAGIC);
        self.set_state(State::Serving);
    }

    /// Returns the agent's greeting, hostile input. `None` before the greeting, or if `tls` is too far from %fs.
    pub fn hello(&self) -> Option<Hello> {
        // The state is loaded first, because its Acquire orders the other loads.
        let is_there = self.state() != State::Absent && self.words.load(MAGIC_WORD) == MAGIC;
        let tls = self.words.load(TLS) as i64;
        let is_near = i32::try_from(tls).is_ok();
        (is_there && is_near).then(|| Hello {
            pid: self.words.load(PID) as u32,
            tls,
            addresses: AgentAddresses {
                cold_entry: self.words.load(COLD_ENTRY),
                hook_entry: self.words.load(HOOK_ENTRY),
                slow_entry: self.words.load(SLOW_ENTRY),
                time_entry: self.words.load(TIME_ENTRY),
                futex_entry: self.words.load(FUTEX_ENTRY),
                gate: self.words.load(GATE),
                thunks: self.words.load(THUNKS),
            },
        })
    }

    /// Publishes the state.
    pub fn set_state(&self, state: State) {
        if let Some(word) = self.words.at(STATE) {
            // Release: pairs with `state`, and publishes the greeting.
            word.store(state as u64, Release);
        }
    }

    /// Returns the state.
    pub fn state(&self) -> State {
        // Acquire: pairs with `set_state`.
        match self.words.at(STATE).map_or(0, |word| word.load(Acquire)) {
            1 => State::Serving,
            2 => State::Dormant,
            3 => State::Unhooked,
            _ => State::Absent,
        }
    }

    /// Returns the agent's thread in the target's pid namespace, or 0.
    pub fn thread(&self) -> u32 {
        self.words.load(THREAD) as u32
    }

    /// Records the thread that serves.
    pub fn set_thread(&self, tid: u32) {
        self.words.store(THREAD, tid as u64);
    }

    /// Returns how often a place was patched again because another tracer overwrote the patch.
    pub fn rearmed(&self) -> u64 {
        self.words.load(REARMED)
    }

    /// Records why the agent detaches.
    pub fn set_left(&self, why: LeaveReason) {
        self.words.store(LEFT, why as u64);
    }

    /// Returns why the agent detached on its own; hostile input.
    pub fn left(&self) -> Option<LeaveReason> {
        [
            LeaveReason::Seccomp,
            LeaveReason::Confined,
            LeaveReason::Storage,
            LeaveReason::Dispatch,
        ]
        .into_iter()
        .find(|why| *why as u64 == self.words.load(LEFT))
    }

    /// Counts a place that was patched again. Called only by the agent's thread.
    pub fn set_rearmed(&self) {
        self.words.store(REARMED, self.rearmed().wrapping_add(1));
    }

    /// Stores the result of the request's record `index`, which the [`crate::Request`] defines.
    pub fn set_result(&self, index: usize, result: u64) {
        if index < MAX_RECORDS {
            self.words.store(Geometry::results() + index, result);
        }
    }

    /// Returns the result of record `index`, valid once the request is acknowledged.
    pub fn result(&self, index: usize) -> u64 {
        if index < MAX_RECORDS {
            self.words.load(Geometry::results() + index)
        } else {
            0
        }
    }

    /// Answers the request.
    pub fn answer(&self, sequence: u64, outcome: u64) {
        self.words.store(OUTCOME, outcome);
        if let Some(word) = self.words.at(ACK) {
            // Release: pairs with `acknowledged` (edge B).
            word.store(sequence, Release);
        }
    }

    /// Returns the last answered request's sequence number.
    pub fn acknowledged(&self) -> u64 {
        // Acquire: pairs with `answer` (edge B).
        self.words.at(ACK).map_or(0, |word| word.load(Acquire))
    }

    /// Returns the futex with [`Data::acknowledged`].
    #[cfg(not(tiptoe_loom))]
    pub fn answered(&self) -> Option<&'a core::sync::atomic::AtomicU64> {
        self.words.at(ACK)
    }

    /// Returns the last outcome: 0, or the request's errno.
    pub fn outcome(&self) -> u64 {
        self.words.load(OUTCOME)
    }

    /// Records slab `index`'s owner.
    pub fn enter(&self, index: u32, tid: u32, comm: [u64; 2]) {
        let entry = self.geometry.entry(index);
        self.words.store(entry + 1, comm[0]);
        self.words.store(entry + 2, comm[1]);
        if let Some(word) = self.words.at(entry) {
            // Release: pairs with `slab_owner` (edge C).
            word.store(tid as u64, Release);
        }
        raise(self.words, LAST_ENTERED, u64::from(index));
    }

    /// Returns the slabs that threads own.
    pub fn entered(&self) -> impl Iterator<Item = u32> + Clone + use<'a> {
        let last = self.words.load(LAST_ENTERED);
        let last = last.min(u64::from(self.geometry.slabs.saturating_sub(1))) as u32;
        let data = *self;
        (1..=last).filter(move |slab| data.slab_owner(*slab).is_some())
    }

    /// Returns slab `index`'s thread and name, if any.
    pub fn slab_owner(&self, index: u32) -> Option<(u32, [u8; 16])> {
        if index >= self.geometry.slabs {
            return None;
        }
        let entry = self.geometry.entry(index);
        // Acquire: pairs with `enter` (edge C).
        let tid = self.words.at(entry)?.load(Acquire) as u32;
        let comm = ring::name(self.words.load(entry + 1), self.words.load(entry + 2));
        (tid != 0).then_some((tid, comm))
    }

    fn word_of(&self, slab: u32, slot: u32) -> Option<usize> {
        let exists = slab < self.geometry.slabs && slot < self.geometry.slots;
        exists.then(|| self.geometry.slab(slab) + slot as usize)
    }

    fn set_counter(&self, slab: u32, slot: u32, value: u64) {
        if let Some(word) = self.word_of(slab, slot) {
            self.words.store(word, value);
        }
    }

    /// Returns a counter; 0 past the end.
    pub fn counter(&self, slab: u32, slot: u32) -> u64 {
        let word = self.word_of(slab, slot);
        word.map_or(0, |word| self.words.load(word))
    }

    /// Sets a slab's credit: the number of hits that its thread may follow or record. Called by tiptoe, and for new
    /// slabs by the agent. The thread's decrement is not atomic, and may overwrite this store.
    pub fn set_credit(&self, slab: u32, credit: u64) {
        self.set_counter(slab, CREDIT, credit);
    }

    /// Returns a slab's remaining credit.
    pub fn credit(&self, slab: u32) -> u64 {
        self.counter(slab, CREDIT)
    }

    /// Returns whether the thread is in a call of the function to which `--under` limits counting.
    pub fn is_inside(&self, slab: u32) -> bool {
        // Threads without a slab share slab 0, so their calls cannot be tracked.
        slab != 0 && self.counter(slab, Geometry::INSIDE) != 0
    }

    /// Records that the thread is outside all calls of `--under`'s function.
    pub fn set_outside(&self, slab: u32) {
        self.set_counter(slab, Geometry::INSIDE, 0);
    }

    /// Returns `len` words of a slab.
    pub fn slab_words(&self, slab: u32, slot: u32, len: u32) -> Option<Words<'a>> {
        let ends = slot.checked_add(len)?;
        if slab >= self.geometry.slabs || ends > self.geometry.slots {
            return None;
        }
        let first = self.geometry.slab(slab) + slot as usize;
        self.words.part(first, len as usize)
    }

    /// Returns the hits of breakpoints, if any.
    pub fn hits(&self) -> Option<Hits<'a>> {
        let (first, len) = self.geometry.hits()?;
        Hits::new(self.words.part(first, len)?)
    }

    /// Returns a slab's ring of records, if any.
    pub fn ring(&self, slab: u32) -> Option<Ring<'a>> {
        let (first, len) = self.geometry.ring(slab)?;
        let own = self.words.part(self.geometry.slab(slab), SLAB_WORDS)?;
        Ring::new(own, self.words.part(first, len)?)
    }

    /// Records a call, as the code at patched places does.
    pub fn record(&self, slab: u32, record: &Record) {
        let credit = self.credit(slab);
        let word = match self.ring(slab) {
            Some(ring) if credit as i64 > 0 => {
                self.set_credit(slab, credit - 1);
                match ring.push(record) {
                    true => ring::words::RECORDED,
                    false => ring::words::LOST,
                }
            }
            _ => ring::words::ONLY_COUNTED,
        };
        self.add(slab, record.slot + word);
    }

    /// Raises a word of a slab to at least `value`.
    pub fn raise(&self, slab: u32, slot: u32, value: u64) {
        if let Some(word) = self.word_of(slab, slot) {
            raise(self.words, word, value);
        }
    }

    /// Stores a value in a word that is 0. Returns whether the word then has the value.
    pub fn take(&self, slab: u32, slot: u32, value: u64) -> bool {
        use crate::primitive::Ordering::Relaxed;
        let word = self
            .word_of(slab, slot)
            .and_then(|word| self.words.at(word));
        // Relaxed: orders no data. Atomic, because a signal handler may store a value.
        let taken = word.map(|word| word.compare_exchange(0, value, Relaxed, Relaxed));
        taken.is_some_and(|taken| taken.is_ok() || taken == Err(value))
    }

    /// Adds one to a counter atomically.
    pub fn add(&self, slab: u32, slot: u32) {
        self.add_many(slab, slot, 1);
    }

    /// Adds to a counter.
    pub fn add_many(&self, slab: u32, slot: u32, count: u64) {
        if let Some(word) = self.word_of(slab, slot) {
            // Atomic, because signal handlers, and other threads in slab 0, may add.
            self.words.add(word, count);
        }
    }
}

fn raise(words: Words, index: usize, value: u64) {
    use crate::primitive::Ordering::Relaxed;
    let Some(word) = words.at(index) else { return };
    // Relaxed: orders no data.
    let mut now = word.load(Relaxed);
    while now < value
        && let Err(other) = word.compare_exchange(now, value, Relaxed, Relaxed)
    {
        now = other;
    }
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;
    extern crate std;
    use core::sync::atomic::AtomicU64;
    use std::vec::Vec;

    fn zeroed(geometry: Geometry) -> Vec<AtomicU64> {
        let count = geometry.data_bytes() / 8;
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn a_hostile_segment_yields_nothing_out_of_bounds() {
        let geometry = Geometry {
            slots: 4,
            slabs: 2,
            rings: false,
            hits: false,
        };
        let words: Vec<AtomicU64> = (0..geometry.data_bytes() / 8)
            .map(|_| AtomicU64::new(u64::MAX))
            .collect();
        let data = Data::new(Words::new(&words), geometry).unwrap();
        assert_eq!(data.counter(2, 0), 0);
        assert_eq!(data.counter(0, 4), 0);
        assert_eq!(data.slab_owner(2), None);
        assert_eq!(data.entered().collect::<Vec<_>>(), [1]);
        assert_eq!(data.result(usize::MAX), 0);
        assert_eq!(data.hello(), None);
        assert!(Data::new(Words::new(&words[1..]), geometry).is_none());
    }

    #[test]
    fn a_slab_after_one_without_an_owner_is_found() {
        let geometry = Geometry {
            slots: 4,
            slabs: 8,
            rings: false,
            hits: false,
        };
        let words = zeroed(geometry);
        let data = Data::new(Words::new(&words), geometry).unwrap();
        let entered = || data.entered().collect::<Vec<_>>();
        assert_eq!(entered(), []);
        for (slab, all) in [(5, &[5][..]), (2, &[2, 5]), (7, &[2, 5, 7])] {
            data.enter(slab, 40 + slab, [0; 2]);
            assert_eq!(entered(), all);
        }
    }

    #[test]
    fn a_greeting_with_an_unreachable_offset_is_refused() {
        let geometry = Geometry {
            slots: 4,
            slabs: 1,
            rings: false,
            hits: false,
        };
        let words = zeroed(geometry);
        let data = Data::new(Words::new(&words), geometry).unwrap();
        for (tls, is_read) in [(-64, true), (i64::MAX, false), (i64::MIN, false)] {
            data.greet(&Hello {
                tls,
                ..Hello::default()
            });
            assert_eq!(data.hello().is_some(), is_read, "{tls}");
        }
    }

    #[test]
    fn counters_and_owners_are_read_back() {
        let geometry = Geometry {
            slots: 600,
            slabs: 3,
            rings: false,
            hits: false,
        };
        let words = zeroed(geometry);
        let data = Data::new(Words::new(&words), geometry).unwrap();
        data.add(1, 599);
        data.add(1, 599);
        data.add(1, 600);
        data.enter(1, 42, [u64::from_le_bytes(*b"redis-se"), 0]);
        assert_eq!(data.counter(1, 599), 2);
        assert_eq!(data.counter(2, 0), 0);
        let (tid, comm) = data.slab_owner(1).unwrap();
        assert_eq!((tid, &comm[..8]), (42, &b"redis-se"[..]));
    }
}
