//! The table of threads whose debug registers are accounted for.
//!
//! At its creation or first hit, a thread adds itself and tries to reserve registers, without waiting. The thread of
//! the agent (tiptoe's library) later makes the reservations that failed.
//!
//! | word | means |
//! |---|---|
//! | 0 | free |
//! | `tid` and `BUSY` | registers are being reserved; only the adding thread may change the entry, until it ends |
//! | `tid` and registers | the reserved registers; only the agent's thread may change the entry |

use super::{Hits, PLACES, THREADS, THREADS_AT, head};
use crate::primitive::{AtomicU64, Ordering::Relaxed};

/// Position of a thread's registers, a bit each.
const REGISTERS: u32 = 32;
const BUSY: u64 = 1 << 63;
/// The thread is counted as refused.
const REFUSED: u64 = 1 << 62;

/// The result of adding a thread.
pub enum Meeting<T> {
    /// The table had the thread.
    Known,
    /// The thread was added.
    New(T),
    /// The table is full.
    Full,
}

impl<T> Meeting<T> {
    /// Applies a function to a new thread.
    pub fn map<U>(self, act: impl FnOnce(T) -> U) -> Meeting<U> {
        match self {
            Meeting::Known => Meeting::Known,
            Meeting::New(thread) => Meeting::New(act(thread)),
            Meeting::Full => Meeting::Full,
        }
    }
}

/// A thread just added.
pub struct NewThread<'a> {
    word: &'a AtomicU64,
    tid: u32,
}

impl NewThread<'_> {
    /// Records the reserved registers, one bit each.
    pub fn set_reserved(self, registers: u8) {
        // Relaxed, here and below: an entry publishes no other data.
        self.word.store(entry(self.tid, registers), Relaxed);
    }
}

impl<'a> Hits<'a> {
    /// Adds a thread, unless it is there.
    pub fn meet(&self, tid: u32) -> Meeting<NewThread<'a>> {
        let is_its = |word: u64| word as u32 == tid;
        let places = self.places(tid);
        if places.clone().any(|word| is_its(word.load(Relaxed))) {
            return Meeting::Known;
        }
        for word in places {
            match word.compare_exchange(0, u64::from(tid) | BUSY, Relaxed, Relaxed) {
                Ok(_) => return Meeting::New(NewThread { word, tid }),
                Err(other) if is_its(other) => return Meeting::Known,
                Err(_) => {}
            }
        }
        Meeting::Full
    }

    /// Removes the threads for which `is_gone(thread, registers)` is true. Counts the registers of `all` that a
    /// removed thread did not reserve. Called only by the agent's thread.
    pub fn part(&self, all: u8, mut is_gone: impl FnMut(u32, u8) -> bool) {
        for word in self.entries() {
            let entry = word.load(Relaxed);
            if entry != 0 && is_gone(entry as u32, registers(entry)) {
                word.store(0, Relaxed);
                self.0.add(head::UNRESERVED, missing(entry, all));
            }
        }
    }

    /// Returns how many registers of `all` are not reserved, summed over all threads, even removed ones.
    pub fn unreserved(&self, all: u8) -> u64 {
        let entries = self.entries().map(|word| word.load(Relaxed));
        let living = entries.filter(|entry| *entry != 0);
        let living: u64 = living.map(|entry| missing(entry, all)).sum();
        self.0.load(head::UNRESERVED).wrapping_add(living)
    }

    /// Makes missing reservations. `reserve` gets a thread and its registers, and returns the thread's new registers.
    /// Counts, once, each thread that still lacks a register of `all`. Called only by the agent's thread.
    pub fn make_up(&self, all: u8, mut reserve: impl FnMut(u32, u8) -> u8) {
        for word in self.entries() {
            let old = word.load(Relaxed);
            if old == 0 || old & BUSY != 0 || registers(old) & all == all {
                continue;
            }
            let tid = old as u32;
            let reserved = reserve(tid, registers(old));
            let mut new = entry(tid, reserved) | old & REFUSED;
            if reserved & all != all && old & REFUSED == 0 {
                new |= REFUSED;
                self.refuse();
            }
            word.store(new, Relaxed);
        }
    }

    /// Counts a thread that is not accounted for.
    pub fn refuse(&self) {
        self.0.add(head::REFUSED, 1);
    }

    /// Returns the number of threads that are not accounted for.
    pub fn refused(&self) -> u64 {
        self.0.load(head::REFUSED)
    }

    fn entries(&self) -> impl Iterator<Item = &'a AtomicU64> {
        let words = self.0;
        (0..THREADS).filter_map(move |place| words.at(THREADS_AT + place))
    }

    fn places(&self, tid: u32) -> impl Iterator<Item = &'a AtomicU64> + Clone {
        let first = tid.wrapping_mul(0x9e37_79b9) as usize >> 8;
        let words = self.0;
        (0..PLACES).filter_map(move |place| words.at(THREADS_AT + (first + place) % THREADS))
    }
}

fn entry(tid: u32, registers: u8) -> u64 {
    u64::from(tid) | u64::from(registers) << REGISTERS
}

fn registers(entry: u64) -> u8 {
    (entry >> REGISTERS) as u8
}

fn missing(entry: u64, all: u8) -> u64 {
    (all & !registers(entry)).count_ones().into()
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;
    use crate::hits::WORDS;
    use crate::words::Words;
    extern crate std;
    use std::vec::Vec;

    fn words() -> Vec<AtomicU64> {
        (0..WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    fn add(hits: &Hits, tid: u32, registers: u8) -> bool {
        match hits.meet(tid) {
            Meeting::New(thread) => {
                thread.set_reserved(registers);
                true
            }
            Meeting::Known | Meeting::Full => false,
        }
    }

    #[test]
    fn threads_are_met_once_until_they_end() {
        let words = words();
        let hits = Hits::new(Words::new(&words)).unwrap();
        for tid in 1..=THREADS as u32 / 32 {
            assert!(add(&hits, tid, 1) && !add(&hits, tid, 1), "{tid}");
        }
        hits.part(1, |tid, registers| tid == 5 && registers == 1);
        assert!(add(&hits, 5, 1) && !add(&hits, 6, 1));
    }

    #[test]
    fn each_register_is_reserved_or_counted_as_unreserved() {
        let words = words();
        let hits = Hits::new(Words::new(&words)).unwrap();
        assert!(add(&hits, 5, 0b01) && add(&hits, 6, 0) && add(&hits, 7, 0b11));
        assert_eq!(hits.unreserved(0b11), 3);
        hits.part(0b11, |tid, _| tid != 7);
        assert_eq!(hits.unreserved(0b11), 3, "those of ended threads are kept");
        assert!(add(&hits, 5, 0) && add(&hits, 8, 0));
        hits.make_up(
            0b11,
            |tid, registers| {
                if tid == 5 { 0b11 } else { registers }
            },
        );
        assert_eq!(hits.unreserved(0b11), 5, "thread 8 lacks two");
    }

    #[test]
    fn a_refused_reservation_is_made_up_for_and_counted_once() {
        let words = words();
        let hits = Hits::new(Words::new(&words)).unwrap();
        assert!(add(&hits, 5, 0b11) && add(&hits, 6, 0b01) && add(&hits, 7, 0));
        let Meeting::New(busy) = hits.meet(8) else {
            panic!("there is room");
        };
        let mut seen = Vec::new();
        let mut make_up = |given: u8| {
            seen.clear();
            hits.make_up(0b11, |tid, registers| {
                seen.push((tid, registers));
                if tid == 6 { 0b11 } else { registers | given }
            });
            seen.sort_unstable();
            seen.clone()
        };
        assert_eq!(make_up(0b10), [(6, 0b01), (7, 0)]);
        assert_eq!(hits.refused(), 1);
        busy.set_reserved(0b11);
        assert_eq!(make_up(0), [(7, 0b10)]);
        assert_eq!(hits.refused(), 1, "a thread is counted once");
        assert_eq!(make_up(0b01), [(7, 0b10)]);
        assert_eq!(make_up(0), []);
    }

    #[test]
    fn a_full_table_is_no_known_thread() {
        let words = words();
        let hits = Hits::new(Words::new(&words)).unwrap();
        let free = hits.entries().filter(|word| word.load(Relaxed) == 0);
        free.for_each(|word| word.store(u64::from(u32::MAX), Relaxed));
        assert!(matches!(hits.meet(7), Meeting::Full));
        assert!(matches!(hits.meet(u32::MAX), Meeting::Known));
    }
}
