//! A *thunk* is code for one probe and one return address. It calls the probed function, counts the return, and
//! continues at that address. So no return needs a lookup.
//!
//! Trampolines (the code that counts) look thunks up in an open-addressed table of entries `key, address`, and call
//! this module on a miss. Thunks are never freed, because a call may return into one at any time.
//!
//! # Unwind information
//! An unwinder computes the address of a thunk's record from the thunk's address on the stack. The record's first word
//! is the return address; the stack pointer does not change. After a tail call only the innermost thunk's address is on
//! the stack, and the record's first word is the next thunk's address.
//!
//! libgcc finds the frame that handles an exception by its canonical frame address (CFA), and takes the first frame
//! with this CFA. So a thunk must not have the CFA of a program's frame to which it returns ([`CFA_GAP`]).
//!
//! | edge | Release | Acquire |
//! |---|---|---|
//! | F: an entry and its record are complete | `key` in [`Thunks::publish`] | [`Thunks::look_up`]; trampolines (x86 loads in order) |

use crate::primitive::{AtomicU32, AtomicU64, Ordering};

/// Words of a thunk's record.
pub const RECORD_WORDS: usize = 4;
/// Bytes of a thunk's code.
pub const STRIDE: u64 = tiptoe_wire::calls::THUNK_BYTES as u64;
/// The number of entries after the highest hash's, so that no search wraps around.
pub const SPILL: usize = if cfg!(tiptoe_loom) { 2 } else { 64 };
const SLOT: u64 = GATE - 1;
/// In the record's last word: the thunk belongs to a gate, the function of `--under`.
const GATE: u64 = 1 << 31;
/// In the record's last word: the thunk's canonical frame address is 8 below its caller's stack pointer.
const CFA_GAP: u64 = 8 << 32;
const ADDRESS: u64 = (1 << 47) - 1;

/// A thunk's record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thunk {
    /// The final return address.
    pub to: u64,
    /// The copy of the overwritten instructions, which continues in the function.
    pub calls: u64,
    /// The trampoline's exit, which runs after the call.
    pub exit: u64,
    /// The index of the probe's first word among a thread's counters.
    pub slot: u64,
    /// Whether the probe is a gate, whose frames hold the counters that record the call.
    pub is_gate: bool,
}

/// A process's thunks.
pub struct Thunks<'a> {
    entries: &'a [AtomicU64],
    records: &'a [AtomicU64],
    used: AtomicU32,
    made: AtomicU32,
    code: AtomicU64,
    bits: u8,
    hash: u64,
}

impl<'a> Thunks<'a> {
    /// Returns a table over zeroed storage. `hash` and `bits` must be the trampolines'.
    pub fn new(entries: &'a [AtomicU64], records: &'a [AtomicU64], bits: u8, hash: u64) -> Self {
        Thunks {
            entries,
            records,
            used: AtomicU32::new(0),
            made: AtomicU32::new(0),
            code: AtomicU64::new(0),
            bits,
            hash,
        }
    }

    /// Returns the number of entries, each of two words.
    pub const fn entries(bits: u8) -> usize {
        (1 << bits) + SPILL
    }

    /// Records where the code of `count` thunks is.
    pub fn make(&self, code: u64, count: u32) {
        self.code.store(code, Ordering::Relaxed); // published by `made`
        self.made.store(count, Ordering::Release); // pairs with the load in `made`
    }

    /// Returns how many thunks are in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed) as usize // only grows
    }

    /// Returns the code's address and the number of thunks with code. The address is valid unless the number is 0.
    pub fn made(&self) -> (u64, u32) {
        let made = self.made.load(Ordering::Acquire); // pairs with `make`
        (self.code.load(Ordering::Relaxed), made)
    }

    /// Returns the thunk with this code address.
    pub fn at(&self, address: u64) -> Option<Thunk> {
        let (code, made) = self.made();
        let index = address.checked_sub(code)? / STRIDE;
        (index < made.into()).then(|| self.record(index as usize))
    }

    fn record(&self, index: usize) -> Thunk {
        // Relaxed: a thread that knows the address has read it through edge F, or wrote the record itself.
        let word = |at: usize| {
            let word = self.records.get(index * RECORD_WORDS + at);
            word.map_or(0, |word| word.load(Ordering::Relaxed))
        };
        Thunk {
            to: word(0),
            calls: word(1),
            exit: word(2),
            slot: word(3) & SLOT,
            is_gate: word(3) & GATE != 0,
        }
    }

    /// Returns the thunk for `probe` and `thunk.to`, perhaps a new one; `None` if there is no room, or if `thunk.to` is
    /// no user address. `is_ours` is whether `thunk.to` is in another thunk.
    pub fn get(&self, probe: u32, thunk: &Thunk, is_ours: bool) -> Option<u64> {
        let key = u64::from(probe) << 47 | thunk.to;
        if thunk.to == 0 || thunk.to > ADDRESS {
            return None;
        }
        self.look_up(key).or_else(|| self.add(key, thunk, is_ours))
    }

    fn first(&self, key: u64) -> usize {
        (key.wrapping_mul(self.hash) >> (64 - self.bits)) as usize
    }

    fn entry(&self, at: usize) -> Option<[&'a AtomicU64; 2]> {
        Some([self.entries.get(at * 2)?, self.entries.get(at * 2 + 1)?])
    }

    fn look_up(&self, key: u64) -> Option<u64> {
        for at in self.first(key).. {
            let [found, address] = self.entry(at)?;
            // Acquire: pairs with the Release in `publish` (edge F).
            match found.load(Ordering::Acquire) {
                0 => return None,
                same if same == key => return Some(address.load(Ordering::Relaxed)), // edge F
                _ => {}
            }
        }
        None
    }

    fn add(&self, key: u64, thunk: &Thunk, is_ours: bool) -> Option<u64> {
        let (code, made) = self.made();
        // Relaxed: uniqueness needs only atomicity.
        let index = self.used.fetch_add(1, Ordering::Relaxed);
        if index >= made {
            self.used.store(made, Ordering::Relaxed); // otherwise the count would overflow after 2^32 calls
            return None;
        }
        let gate = if thunk.is_gate { GATE } else { 0 };
        let cfa_gap = if is_ours { 0 } else { CFA_GAP };
        let words = [
            thunk.to,
            thunk.calls,
            thunk.exit,
            thunk.slot | gate | cfa_gap,
        ];
        for (at, value) in words.into_iter().enumerate() {
            let word = self.records.get(index as usize * RECORD_WORDS + at)?;
            word.store(value, Ordering::Relaxed); // edge F
        }
        let address = code + u64::from(index) * STRIDE;
        self.publish(key, address);
        Some(address)
    }

    /// If two threads publish one key, both thunks are valid, and trampolines find the first.
    fn publish(&self, key: u64, address: u64) {
        for at in self.first(key).. {
            let Some([found, held]) = self.entry(at) else {
                return;
            };
            // Relaxed: only the exchange decides; readers load the address after the key.
            let free = held.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed);
            if free.is_ok() {
                // Release: pairs with the Acquire in `look_up` (edge F).
                found.store(key, Ordering::Release);
                return;
            }
        }
    }
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    const BITS: u8 = 4;
    const HASH: u64 = 0x9e37_79b9_7f4a_7c15;

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    fn thunk(to: u64) -> Thunk {
        Thunk {
            to,
            calls: to ^ 1,
            exit: to ^ 2,
            slot: 3,
            is_gate: to.is_multiple_of(2),
        }
    }

    #[test]
    fn each_pair_has_a_thunk_of_its_own() {
        let entries = words(2 * Thunks::entries(BITS));
        let records = words(40 * RECORD_WORDS);
        let thunks = Thunks::new(&entries, &records, BITS, HASH);
        assert_eq!(thunks.get(1, &thunk(0x1000), false), None, "no code yet");
        thunks.make(0x10_0000, 40);
        let mut seen = Vec::new();
        for to in (0x1000..).step_by(5).take(20) {
            for probe in [1, 2] {
                let address = thunks.get(probe, &thunk(to), false).expect("room");
                assert_eq!(thunks.at(address + 10), Some(thunk(to)));
                assert_eq!(thunks.get(probe, &thunk(to), false), Some(address));
                assert!(!seen.contains(&address));
                seen.push(address);
            }
        }
        assert_eq!(thunks.get(3, &thunk(0x1000), false), None, "all are used");
        assert_eq!(
            thunks.get(1, &thunk(0x1000), false),
            Some(seen[0]),
            "known thunks are still found"
        );
    }

    #[test]
    fn unwinders_distinguish_the_program_from_a_chained_thunk() {
        let entries = words(2 * Thunks::entries(BITS));
        let records = words(2 * RECORD_WORDS);
        let thunks = Thunks::new(&entries, &records, BITS, HASH);
        thunks.make(0x10_0000, 2);
        let outer = thunks.get(1, &thunk(0x1000), false).expect("room");
        thunks.get(2, &thunk(outer + 14), true).expect("room");
        let last = |index: usize| records[index * RECORD_WORDS + 3].load(Ordering::Relaxed);
        assert_eq!((last(0), last(1)), (CFA_GAP | GATE | 3, GATE | 3));
        assert_eq!(thunks.at(outer).map(|thunk| thunk.slot), Some(3));
    }

    #[test]
    fn addresses_that_no_program_has_get_no_thunk() {
        let entries = words(2 * Thunks::entries(BITS));
        let records = words(RECORD_WORDS);
        let thunks = Thunks::new(&entries, &records, BITS, HASH);
        thunks.make(0x10_0000, 1);
        for to in [0, 1 << 47, u64::MAX] {
            assert_eq!(thunks.get(0, &thunk(to), false), None);
        }
        assert_eq!(thunks.at(0x10_0000 + STRIDE), None);
        assert_eq!(thunks.at(0xf_ffff), None);
    }
}
