//! A thread's sums of its waits, by address and call site.
//!
//! A thread takes an entry by storing the key's address, then stores the rest. A signal handler that runs in between
//! takes another entry for the same key, so tiptoe must add up such entries. Each addition is one instruction, because
//! a handler's addition between a load and a store would be lost.

use tiptoe_event::bucket_of;
use tiptoe_wire::Words;
use tiptoe_wire::futex::{ENTRIES, ENTRY_WORDS, entry};

use crate::HASH;

const LOOKS: u32 = 16;

/// An entry's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The lock's address.
    pub address: u64,
    /// The user's call site.
    pub site: u64,
    /// The return address in libc, with the futex operation in the bits above.
    pub via: u64,
    /// The thread's scope, a node of [`tiptoe_wire::scopes`].
    pub scope: u64,
}

/// A thread's entries.
#[derive(Clone, Copy)]
pub struct Entries<'a>(Words<'a>);

/// One entry.
#[derive(Clone, Copy)]
pub struct Entry<'a>(Words<'a>);

impl<'a> Entries<'a> {
    /// Returns the entries in a thread's slab (its own counters).
    pub fn new(words: Words<'a>) -> Self {
        Entries(words)
    }

    /// Returns a key's entry, which may be new; `None` if none is free.
    #[inline(always)]
    pub fn of(&self, key: &Key) -> Option<Entry<'a>> {
        let mixed = key.address ^ key.site.rotate_left(20) ^ key.via.rotate_left(40);
        let mixed = mixed ^ key.scope.rotate_left(10);
        // Maps to 0..ENTRIES without a division.
        let part = mixed.wrapping_mul(HASH) >> 32;
        let place = ((part * u64::from(ENTRIES)) >> 32) as u32;
        let first = self.at(place)?;
        match first.is(key) {
            true => Some(first),
            false => self.of_slow(place, key),
        }
    }

    #[inline(never)]
    fn of_slow(&self, place: u32, key: &Key) -> Option<Entry<'a>> {
        let places = (place..place + LOOKS).map(|place| place % ENTRIES);
        let mut entries = places.filter_map(|place| self.at(place));
        entries.find(|entry| entry.is(key) || entry.take(key))
    }

    fn at(&self, place: u32) -> Option<Entry<'a>> {
        let first = (place + 1) * ENTRY_WORDS;
        let words = self.0.part(first as usize, ENTRY_WORDS as usize);
        words.map(Entry)
    }
}

impl Entry<'_> {
    pub(crate) fn get(&self, word: u32) -> u64 {
        self.0.load(word as usize)
    }

    fn is(&self, key: &Key) -> bool {
        self.get(entry::ADDRESS) == key.address
            && self.get(entry::SITE) == key.site
            && self.get(entry::VIA) == key.via
            && self.get(entry::SCOPE) == key.scope
    }

    fn take(&self, key: &Key) -> bool {
        let taken =
            self.get(entry::ADDRESS) == 0 && self.0.take_own(entry::ADDRESS as usize, key.address);
        if taken {
            self.0.store(entry::SCOPE as usize, key.scope);
            self.0.store(entry::VIA as usize, key.via);
            self.0.store(entry::SITE as usize, key.site);
        }
        taken
    }

    pub(crate) fn put(&self, word: u32, value: u64) {
        self.0.store(word as usize, value);
    }

    /// Adds to a word of the entry.
    pub fn add(&self, word: u32, count: u64) {
        self.0.add_own(word as usize, count);
    }

    /// Adds how many readers held the rwlock.
    #[cold]
    pub fn found_readers(&self, readers: u64) {
        self.add(entry::READERS, readers);
        self.at_least(entry::MOST_READERS, readers);
    }

    fn at_least(&self, word: u32, value: u64) {
        if self.get(word) < value {
            self.0.store(word as usize, value);
        }
    }

    /// Records a wait's duration, `weight` times.
    pub fn slept(&self, ns: u64, weight: u64) {
        self.add(entry::SLEPT_NS, ns.wrapping_mul(weight));
        self.at_least(entry::LONGEST, ns);
        let duration = match ns {
            0 => 0,
            _ => 1 + bucket_of(ns) as u32,
        };
        self.add(entry::DURATIONS + duration, weight);
    }

    /// Adds a wait to the sums of its waker's call site.
    pub fn woken_from(&self, site: u64, ns: u64, weight: u64) {
        let slots = (0..entry::WAKER_COUNT).map(|i| entry::WAKERS + i * entry::WAKER_WORDS);
        if !self.shared(slots, site, ns, weight) {
            self.add(entry::OTHER_WAKERS, weight);
        }
    }

    /// Adds part of a wait to the sums of a [`tiptoe_wire::futex::holder`]; drops it if no slot is free.
    pub fn held_by(&self, holder: u64, ns: u64, weight: u64) {
        let slots = (0..entry::HOLDER_COUNT).map(|i| entry::HOLDERS + i * entry::HOLDER_WORDS);
        self.shared(slots, holder, ns, weight);
    }

    fn shared(&self, slots: impl Iterator<Item = u32>, key: u64, ns: u64, weight: u64) -> bool {
        let mine = |slot: &u32| match self.get(*slot) {
            0 => self.0.take_own(*slot as usize, key),
            held => held == key,
        };
        let slot = { slots }.find(mine);
        if let Some(slot) = slot {
            self.add(slot + 1, weight);
            self.add(slot + 2, ns.wrapping_mul(weight));
        }
        slot.is_some()
    }
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;
    extern crate std;
    use core::sync::atomic::AtomicU64;
    use std::vec::Vec;
    use tiptoe_wire::futex::WIDTH;

    fn key(address: u64) -> Key {
        Key {
            address,
            site: 7,
            via: 0,
            scope: 0,
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: a whole slab, word by word")]
    fn each_key_has_its_entry_while_there_is_room() {
        let room: Vec<_> = (0..WIDTH).map(|_| AtomicU64::new(0)).collect();
        let entries = Entries::new(Words::new(&room));
        let mut kept = 0;
        for address in (0x1000..).step_by(64).take(400) {
            let Some(entry) = entries.of(&key(address)) else {
                continue;
            };
            entry.add(entry::CALLS, 1);
            let again = entries.of(&key(address)).expect("it is there");
            assert_eq!(
                (again.get(entry::ADDRESS), again.get(entry::CALLS)),
                (address, 1)
            );
            kept += 1;
        }
        assert!((200..=ENTRIES).contains(&kept), "{kept}");
        assert!(
            room[..ENTRY_WORDS as usize]
                .iter()
                .all(|w| w.load(core::sync::atomic::Ordering::Relaxed) == 0)
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: a whole slab, word by word")]
    fn waits_are_summed_by_waker() {
        let room: Vec<_> = (0..WIDTH).map(|_| AtomicU64::new(0)).collect();
        let entry = Entries::new(Words::new(&room)).of(&key(1)).expect("room");
        for (ns, weight) in [(0, 1), (30, 1), (20, 3)] {
            entry.slept(ns, weight);
        }
        assert_eq!(
            (entry.get(entry::SLEPT_NS), entry.get(entry::LONGEST)),
            (90, 30)
        );
        assert_eq!(entry.get(entry::DURATIONS), 1);
        for site in (1..).take(entry::WAKER_COUNT as usize + 2).chain([1]) {
            entry.woken_from(site, 10, 1);
        }
        let waker = |word| entry.get(entry::WAKERS + word);
        assert_eq!([waker(0), waker(1), waker(2)], [1, 2, 20]);
        assert_eq!(entry.get(entry::OTHER_WAKERS), 2);
    }
}
