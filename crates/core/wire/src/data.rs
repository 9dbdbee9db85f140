//! The data segment: what the agent answers, and what threads counted.

use crate::MAGIC;
use crate::geometry::{CREDIT, Geometry, MAX_RECORDS};
use crate::primitive::Ordering::{Acquire, Release};
use crate::ring::{self, Record, Ring};
use crate::words::Words;

#[cfg(not(tiptoe_loom))]
mod changes;
#[cfg(not(tiptoe_loom))]
pub(crate) mod space;

/// Words of a slab in front of its counters.
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

/// What the agent is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum State {
    /// Not there yet.
    Absent = 0,
    /// Its thread serves requests.
    Serving = 1,
    /// Everything was put back; nothing runs.
    Dormant = 2,
    /// No trap byte stands any more; waits for [`crate::Request::Settle`].
    Unhooked = 3,
}

/// Why an agent has left by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Left {
    /// The program was about to put itself under seccomp, or has.
    Seccomp = 1,
    /// It has taken other rights from itself, or namespaces in which no thread of the agent's can begin.
    Confined = 2,
    /// It was about to run a thread on a thread-local block that its C library has not laid out: trampolines would
    /// follow whatever is there.
    Storage = 3,
}

/// What the planner must know of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// The process, in its own pid namespace.
    pub pid: u32,
    /// Offset from %fs of the pointer to a thread's descriptor.
    pub tls: i64,
    /// Address that trampolines call for a thread without a slab.
    pub cold_entry: u64,
    /// Address that system call hooks call.
    pub hook_entry: u64,
    /// Address that trampolines call that follow calls, where they need help.
    pub slow_entry: u64,
    /// Address that trampolines call that time calls.
    pub time_entry: u64,
    /// Address that trampolines call in front of futex calls and behind them.
    pub futex_entry: u64,
}

/// A view of a data segment with a known shape.
#[derive(Clone, Copy)]
pub struct Data<'a> {
    words: Words<'a>,
    geometry: Geometry,
}

impl<'a> Data<'a> {
    /// Byte offset of the word that [`Data::owner`] gives, for an agent that cannot map the segment.
    #[cfg(not(tiptoe_loom))]
    pub const OWNER_OFFSET: u64 = OWNER as u64 * 8;
    /// Byte offset of the words that [`Data::refusal`] gives.
    pub const REFUSAL_OFFSET: u64 = STATE as u64 * 8;

    /// What an agent that cannot serve writes at [`Data::REFUSAL_OFFSET`], without a mapping: its
    /// state, and an errno as the outcome.
    pub fn refusal(errno: u64) -> [u64; 3] {
        const _: () = assert!(ACK == STATE + 1 && OUTCOME == STATE + 2);
        [State::Dormant as u64, 0, errno]
    }

    /// Sees words as a data segment; `None` where there are too few.
    pub fn new(words: Words<'a>, geometry: Geometry) -> Option<Self> {
        (words.len() as u64 * 8 >= geometry.data_bytes()).then_some(Data { words, geometry })
    }

    /// The shape that it was seen with.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The word that tiptoe holds as a robust futex while it lives.
    #[cfg(not(tiptoe_loom))]
    pub fn owner(&self) -> Option<&'a core::sync::atomic::AtomicU32> {
        self.words.futex(OWNER)
    }

    /// Says who the agent is and that it serves. (agent)
    pub fn greet(&self, hello: &Hello) {
        self.words.store(PID, hello.pid as u64);
        self.words.store(TLS, hello.tls as u64);
        self.words.store(COLD_ENTRY, hello.cold_entry);
        self.words.store(HOOK_ENTRY, hello.hook_entry);
        self.words.store(SLOW_ENTRY, hello.slow_entry);
        self.words.store(TIME_ENTRY, hello.time_entry);
        self.words.store(FUTEX_ENTRY, hello.futex_entry);
        self.words.store(MAGIC_WORD, MAGIC);
        self.set_state(State::Serving);
    }

    /// What the agent said of itself; `None` before it did, or if its thread-local words are farther from the thread
    /// pointer than instructions reach. Every field is a claim of the target's. (tiptoe)
    pub fn hello(&self) -> Option<Hello> {
        // The state is read first: its Acquire orders the words that follow.
        let is_there = self.state() != State::Absent && self.words.load(MAGIC_WORD) == MAGIC;
        let tls = self.words.load(TLS) as i64;
        let is_near = i32::try_from(tls).is_ok();
        (is_there && is_near).then(|| Hello {
            pid: self.words.load(PID) as u32,
            tls,
            cold_entry: self.words.load(COLD_ENTRY),
            hook_entry: self.words.load(HOOK_ENTRY),
            slow_entry: self.words.load(SLOW_ENTRY),
            time_entry: self.words.load(TIME_ENTRY),
            futex_entry: self.words.load(FUTEX_ENTRY),
        })
    }

    /// Tells what the agent does. (agent)
    pub fn set_state(&self, state: State) {
        if let Some(word) = self.words.at(STATE) {
            // Release: pairs with the Acquire in `state`; the greeting precedes it.
            word.store(state as u64, Release);
        }
    }

    /// What the agent does. (tiptoe)
    pub fn state(&self) -> State {
        // Acquire: pairs with the Release in `set_state`.
        match self.words.at(STATE).map_or(0, |word| word.load(Acquire)) {
            1 => State::Serving,
            2 => State::Dormant,
            3 => State::Unhooked,
            _ => State::Absent,
        }
    }

    /// The agent's thread, in the target's pid namespace; 0 while there is none.
    pub fn thread(&self) -> u32 {
        self.words.load(THREAD) as u32
    }

    /// Tells which thread serves. (agent)
    pub fn set_thread(&self, tid: u32) {
        self.words.store(THREAD, tid as u64);
    }

    /// How often a site was found dead and armed again: a probe of somebody else's had
    /// gone from it. (tiptoe)
    pub fn rearmed(&self) -> u64 {
        self.words.load(REARMED)
    }

    /// Says why the agent leaves by itself, before it does. (agent)
    pub fn set_left(&self, why: Left) {
        self.words.store(LEFT, why as u64);
    }

    /// Why the agent has left by itself, as it says. (tiptoe)
    pub fn left(&self) -> Option<Left> {
        [Left::Seccomp, Left::Confined, Left::Storage]
            .into_iter()
            .find(|why| *why as u64 == self.words.load(LEFT))
    }

    /// Tells that a site was armed again. (agent's thread)
    pub fn set_rearmed(&self) {
        self.words.store(REARMED, self.rearmed().wrapping_add(1));
    }

    /// Stores the result of record `index`; 0 is success, else an errno or a
    /// [`crate::Request`]'s own code, or an address. (agent)
    pub fn set_result(&self, index: usize, result: u64) {
        if index < MAX_RECORDS {
            self.words.store(Geometry::results() + index, result);
        }
    }

    /// The result of record `index`, valid once acknowledged. (tiptoe)
    pub fn result(&self, index: usize) -> u64 {
        if index < MAX_RECORDS {
            self.words.load(Geometry::results() + index)
        } else {
            0
        }
    }

    /// Answers the request with this sequence. (agent)
    pub fn answer(&self, sequence: u64, outcome: u64) {
        self.words.store(OUTCOME, outcome);
        if let Some(word) = self.words.at(ACK) {
            // Release: pairs with the Acquire in `acknowledged` (edge B).
            word.store(sequence, Release);
        }
    }

    /// The last answered sequence. (tiptoe)
    pub fn acknowledged(&self) -> u64 {
        // Acquire: pairs with the Release in `answer` (edge B).
        self.words.at(ACK).map_or(0, |word| word.load(Acquire))
    }

    /// The last answered sequence as a futex, which the agent wakes.
    #[cfg(not(tiptoe_loom))]
    pub fn answered(&self) -> Option<&'a core::sync::atomic::AtomicU64> {
        self.words.at(ACK)
    }

    /// The last answer's outcome: 0, or an errno for the request as a whole. (tiptoe)
    pub fn outcome(&self) -> u64 {
        self.words.load(OUTCOME)
    }

    /// Enters a thread as the owner of slab `index`. (agent, cold path)
    pub fn enter(&self, index: u32, tid: u32, comm: [u64; 2]) {
        let entry = self.geometry.entry(index);
        self.words.store(entry + 1, comm[0]);
        self.words.store(entry + 2, comm[1]);
        if let Some(word) = self.words.at(entry) {
            // Release: pairs with the Acquire in `slab_owner` (edge C).
            word.store(tid as u64, Release);
        }
        raise(self.words, LAST_ENTERED, u64::from(index));
    }

    /// The slabs that threads entered, but the overflow slab. Those in front of one may be nobody's: their
    /// threads did nothing in this session. (tiptoe)
    pub fn entered(&self) -> impl Iterator<Item = u32> + Clone + use<'a> {
        let last = self.words.load(LAST_ENTERED);
        let last = last.min(u64::from(self.geometry.slabs.saturating_sub(1))) as u32;
        let data = *self;
        (1..=last).filter(move |slab| data.slab_owner(*slab).is_some())
    }

    /// The thread that owns slab `index` and the name it had; `None` for a slab
    /// that nobody entered. (tiptoe)
    pub fn slab_owner(&self, index: u32) -> Option<(u32, [u8; 16])> {
        if index >= self.geometry.slabs {
            return None;
        }
        let entry = self.geometry.entry(index);
        // Acquire: pairs with the Release in `enter` (edge C).
        let tid = self.words.at(entry)?.load(Acquire) as u32;
        let mut comm = [0; 16];
        comm[..8].copy_from_slice(&self.words.load(entry + 1).to_le_bytes());
        comm[8..].copy_from_slice(&self.words.load(entry + 2).to_le_bytes());
        (tid != 0).then_some((tid, comm))
    }

    /// A counter of a slab; 0 where either does not exist. (tiptoe)
    pub fn counter(&self, slab: u32, slot: u32) -> u64 {
        if slab >= self.geometry.slabs || slot >= self.geometry.slots {
            return 0;
        }
        self.words.load(self.geometry.slab(slab) + slot as usize)
    }

    /// Gives the thread of a slab its credit: how many hits that are dearer than a
    /// count it may take. It counts them down without atomics, so that a new credit
    /// may be lost to a hit; the next one is not. (tiptoe; agent, for a new slab)
    pub fn set_credit(&self, slab: u32, credit: u64) {
        if slab < self.geometry.slabs {
            self.words.store(self.geometry.slab(slab) + CREDIT, credit);
        }
    }

    /// The credit that a slab's thread has left. (tiptoe)
    pub fn credit(&self, slab: u32) -> u64 {
        if slab >= self.geometry.slabs {
            return 0;
        }
        self.words.load(self.geometry.slab(slab) + CREDIT)
    }

    /// Whether a slab's thread is in a call of `--under`'s function. (agent, cold path)
    pub fn is_inside(&self, slab: u32) -> bool {
        // Not in the overflow slab: who is in there together is not followed.
        slab != 0 && self.counter(slab, Geometry::INSIDE) != 0
    }

    /// Notes that a slab's thread is in no such call. (agent, cold path)
    pub fn set_outside(&self, slab: u32) {
        if slab < self.geometry.slabs {
            let word = self.geometry.slab(slab) + Geometry::INSIDE as usize;
            self.words.store(word, 0);
        }
    }

    /// Some words of a slab, from a slot on.
    pub fn slab_words(&self, slab: u32, slot: u32, len: u32) -> Option<Words<'a>> {
        let ends = slot.checked_add(len)?;
        if slab >= self.geometry.slabs || ends > self.geometry.slots {
            return None;
        }
        let first = self.geometry.slab(slab) + slot as usize;
        self.words.part(first, len as usize)
    }

    /// The ring of a slab's thread; `None` where there are none.
    pub fn ring(&self, slab: u32) -> Option<Ring<'a>> {
        let (first, len) = self.geometry.ring(slab)?;
        let own = self.words.part(self.geometry.slab(slab), SLAB_WORDS)?;
        Ring::new(own, self.words.part(first, len)?)
    }

    /// Records a call for the thread of a slab, as trampolines do. (agent, cold path)
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

    /// Raises a word of a slab to at least `value`. (agent, cold path)
    pub fn raise(&self, slab: u32, slot: u32, value: u64) {
        if slab < self.geometry.slabs && slot < self.geometry.slots {
            raise(self.words, self.geometry.slab(slab) + slot as usize, value);
        }
    }

    /// Puts a value into a word of a slab that is 0; whether it holds that value then.
    /// (agent, cold path)
    pub fn take(&self, slab: u32, slot: u32, value: u64) -> bool {
        use crate::primitive::Ordering::Relaxed;
        if slab >= self.geometry.slabs || slot >= self.geometry.slots {
            return false;
        }
        let word = self.words.at(self.geometry.slab(slab) + slot as usize);
        // Relaxed: the word orders nothing; atomic because a signal may interrupt it.
        let taken = word.map(|word| word.compare_exchange(0, value, Relaxed, Relaxed));
        taken.is_some_and(|taken| taken.is_ok() || taken == Err(value))
    }

    /// Adds one to a counter from outside a trampoline, atomically. (agent, cold path)
    pub fn add(&self, slab: u32, slot: u32) {
        self.add_many(slab, slot, 1);
    }

    /// Adds to a counter from outside a trampoline, atomically. (agent, cold path)
    pub fn add_many(&self, slab: u32, slot: u32, count: u64) {
        use crate::primitive::Ordering::Relaxed;
        if slab < self.geometry.slabs
            && slot < self.geometry.slots
            && let Some(word) = self.words.at(self.geometry.slab(slab) + slot as usize)
        {
            // Relaxed: a counter orders nothing; atomic because the overflow
            // slab has many writers, and a signal may interrupt any other.
            word.fetch_add(count, Relaxed);
        }
    }
}

/// Raises a word to at least `value`.
fn raise(words: Words, index: usize, value: u64) {
    use crate::primitive::Ordering::Relaxed;
    let Some(word) = words.at(index) else { return };
    // Relaxed: who reads it late does so again.
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

    /// Threads keep their slabs from session to session, and enter them when they do something.
    #[test]
    fn a_slab_behind_one_that_is_nobodys_is_found() {
        let geometry = Geometry {
            slots: 4,
            slabs: 8,
            rings: false,
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

    /// Whoever added to it overflowed.
    #[test]
    fn a_greeting_from_farther_than_instructions_reach_is_none() {
        let geometry = Geometry {
            slots: 4,
            slabs: 1,
            rings: false,
        };
        let words = zeroed(geometry);
        let data = Data::new(Words::new(&words), geometry).unwrap();
        for (tls, is_told) in [(-64, true), (i64::MAX, false), (i64::MIN, false)] {
            data.greet(&Hello {
                tls,
                ..Hello::default()
            });
            assert_eq!(data.hello().is_some(), is_told, "{tls}");
        }
    }

    #[test]
    fn counters_and_owners_are_read_back() {
        let geometry = Geometry {
            slots: 600,
            slabs: 3,
            rings: false,
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
