//! Finds the *site* (patched place) that a trapped thread is in, and where the thread continues.
//!
//! One thread writes; any thread and signal handler may read. Records of sites are appended and never changed, so an
//! index stays valid. Two *orders* hold indices sorted by address. The writer fills the unused order, then raises the
//! version, whose lowest bit selects the order in use.
//!
//! One array holds everything, so that a small table uses few pages for a fork to copy.
//!
//! | words of slot `n` | content |
//! |---|---|
//! | 0 to 11 | record `n` |
//! | 12, 13 | the `n`th index of each order |
//! | 14 | a word for the caller |
//!
//! | edge | Release | Acquire |
//! |---|---|---|
//! | D: an order is complete | `version` in [`Table::insert`], [`Table::recall`] | `version` in [`Table::last_up_to`] |
//!
//! If two changes overtake a reader, the second refills the order that the reader searches. So a reader must retry if
//! the version has changed after the search.

use core::ops::Range;

use crate::primitive::{AtomicU64, Ordering, fence};
use tiptoe_wire::{SITE_WORDS, SLOT_WORDS, Site};

/// A search fails only if the writer completes a change. Models make two changes.
const TRIES: usize = if cfg!(tiptoe_loom) { 3 } else { 1_000 };

const ORDERS: usize = SITE_WORDS;
const OWN: usize = ORDERS + 2;
const _: () = assert!(OWN < SLOT_WORDS);

/// The site of a trapped address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrapSite {
    /// The index in the table.
    pub index: usize,
    /// The site.
    pub site: Site,
    /// Where the thread continues.
    pub resume: u64,
    /// The offset of the *head* (instruction's first byte) that trapped.
    pub offset: u8,
}

/// Why records were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableError {
    /// No room.
    Full,
    /// Addresses are not ascending.
    Unordered,
}

/// The table, in the caller's storage.
pub struct Table<'a> {
    slots: &'a [[AtomicU64; SLOT_WORDS]],
    lengths: [AtomicU64; 2],
    version: AtomicU64,
    used: AtomicU64,
}

impl<'a> Table<'a> {
    /// Returns an empty table over zeroed storage.
    pub fn new(slots: &'a [[AtomicU64; SLOT_WORDS]]) -> Self {
        let zero = || AtomicU64::new(0);
        Table {
            slots,
            lengths: [zero(), zero()],
            version: zero(),
            used: zero(),
        }
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        // Relaxed: the writer's own count; only a bound for readers.
        self.used.load(Ordering::Relaxed) as usize
    }

    /// Returns whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a record.
    pub fn site(&self, index: usize) -> Option<Site> {
        let words = self.slots.get(index)?;
        // Relaxed: a record is complete before an order names it (edge D).
        Site::decode(core::array::from_fn(|word| {
            words
                .get(word)
                .map_or(0, |word| word.load(Ordering::Relaxed))
        }))
    }

    /// Returns a record's word that the caller may use.
    pub fn word(&self, index: usize) -> Option<&'a AtomicU64> {
        self.slots.get(index)?.get(OWN)
    }

    /// Appends records in ascending order of address. Each replaces an earlier record at its address. Returns the first
    /// record's index. Writer only.
    pub fn insert(
        &self,
        count: usize,
        record: impl Fn(usize) -> Option<Site>,
    ) -> Result<usize, TableError> {
        let first = self.len();
        self.append(first, count, record)?;
        let version = self.version.load(Ordering::Relaxed); // Relaxed: our own write
        self.merge(version, first, count)?;
        self.used.store((first + count) as u64, Ordering::Relaxed); // Relaxed: see `len`
        // Release: pairs with the Acquire in `last_up_to` (edge D).
        self.version.store(version + 1, Ordering::Release);
        Ok(first)
    }

    /// Makes searches find each `wanted` record instead of later records at the same address. Writer only.
    pub fn recall(&self, wanted: impl Fn(&Site) -> bool) {
        let version = self.version.load(Ordering::Relaxed); // Relaxed: our own write
        let (old, new) = self.buffers(version);
        let len = self.lengths[(version & 1) as usize].load(Ordering::Relaxed);
        fence(Ordering::Release); // pairs with the fence in `last_up_to`, as in `merge`
        for slot in self.slots.iter().take(len as usize) {
            if let (Some(to), Some(from)) = (slot.get(new), slot.get(old)) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed); // edge D
            }
        }
        for index in 0..self.len() {
            let Some(site) = self.site(index).filter(&wanted) else {
                continue;
            };
            let place = self.order_word(new, self.below(new, len as usize, site.address));
            if let Some(place) = place
                && self.address_of(place.load(Ordering::Relaxed) as usize) == site.address
            {
                place.store(index as u64, Ordering::Relaxed); // edge D
            }
        }
        self.lengths[1 - (version & 1) as usize].store(len, Ordering::Relaxed); // edge D
        // Release: pairs with the Acquire in `last_up_to` (edge D).
        self.version.store(version + 1, Ordering::Release);
    }

    fn append(
        &self,
        first: usize,
        count: usize,
        record: impl Fn(usize) -> Option<Site>,
    ) -> Result<(), TableError> {
        let mut last = 0;
        for index in 0..count {
            let site = record(index).ok_or(TableError::Unordered)?;
            if site.address <= last {
                return Err(TableError::Unordered);
            }
            last = site.address;
            let words = self.slots.get(first + index).ok_or(TableError::Full)?;
            for (word, value) in words.iter().zip(site.encode()) {
                word.store(value, Ordering::Relaxed); // edge D
            }
        }
        Ok(())
    }

    fn merge(&self, version: u64, first: usize, count: usize) -> Result<(), TableError> {
        let (old, new) = self.buffers(version);
        let old_len = self.lengths[(version & 1) as usize].load(Ordering::Relaxed) as usize;
        // Release: pairs with the fence in `last_up_to`. Otherwise a reader of this order could take new entries for
        // old ones.
        fence(Ordering::Release);
        let (mut from_old, mut from_new, mut out) = (0, 0, 0);
        while from_old < old_len || from_new < count {
            let a = (from_old < old_len).then(|| self.address_at(old, from_old));
            let b = (from_new < count).then(|| self.address_of(first + from_new));
            let take_new = match (a, b) {
                (Some(a), Some(b)) => b <= a,
                (a, _) => a.is_none(),
            };
            let index = match take_new {
                true => (first + from_new) as u64,
                false => self
                    .order_word(old, from_old)
                    .map_or(0, |word| word.load(Ordering::Relaxed)),
            };
            from_old += usize::from(!take_new || a == b);
            from_new += usize::from(take_new);
            self.order_word(new, out)
                .ok_or(TableError::Full)?
                .store(index, Ordering::Relaxed); // edge D
            out += 1;
        }
        self.lengths[1 - (version & 1) as usize].store(out as u64, Ordering::Relaxed); // edge D
        Ok(())
    }

    fn buffers(&self, version: u64) -> (usize, usize) {
        match version & 1 {
            0 => (ORDERS, ORDERS + 1),
            _ => (ORDERS + 1, ORDERS),
        }
    }

    fn order_word(&self, order: usize, position: usize) -> Option<&'a AtomicU64> {
        self.slots.get(position)?.get(order)
    }

    fn address_of(&self, index: usize) -> u64 {
        let words = self.slots.get(index).and_then(|slot| slot.first());
        words.map_or(0, |word| word.load(Ordering::Relaxed)) // edge D
    }

    fn address_at(&self, order: usize, position: usize) -> u64 {
        let index = self
            .order_word(order, position)
            .map_or(0, |word| word.load(Ordering::Relaxed)); // edge D
        self.address_of(index as usize)
    }

    /// Returns the site with a head at `address`; `None` also if insertions kept overtaking the search.
    pub fn find(&self, address: u64) -> Option<TrapSite> {
        self.trap_site(self.last_up_to(address)?, address)
    }

    /// Returns the site at `index`, which may be any number, if the site has a head at `address`.
    pub fn trap_site(&self, index: usize, address: u64) -> Option<TrapSite> {
        let site = self.site(index)?;
        let offset = u8::try_from(address.checked_sub(site.address)?).ok()?;
        let head = site.heads().iter().find(|head| head.offset == offset)?;
        Some(TrapSite {
            index,
            site,
            resume: site.trampoline.wrapping_add(head.resume as u64),
            offset,
        })
    }

    /// Returns whether a site patches this byte.
    pub fn covers(&self, address: u64) -> bool {
        let site = self.last_up_to(address).and_then(|index| self.site(index));
        site.is_some_and(|site| address - site.address < site.len.into())
    }

    /// Returns whether a site patches bytes in a range of addresses.
    pub fn meets(&self, code: &Range<u64>) -> bool {
        let last = code
            .end
            .checked_sub(1)
            .and_then(|last| self.last_up_to(last));
        let site = last.and_then(|index| self.site(index));
        site.is_some_and(|site| site.address + u64::from(site.len) > code.start)
    }

    /// Returns all records with their indices, including replaced records.
    pub fn all(&self) -> impl Iterator<Item = (usize, Site)> {
        // Acquire: pairs with the Release in `insert`, before which the records and their number are stored (edge D).
        self.version.load(Ordering::Acquire);
        (0..self.len()).filter_map(|index| Some((index, self.site(index)?)))
    }

    fn last_up_to(&self, address: u64) -> Option<usize> {
        for _ in 0..TRIES {
            // Acquire: pairs with the Release in `insert` and `recall` (edge D).
            let version = self.version.load(Ordering::Acquire);
            let index = self.search(version, address);
            // Acquire: orders the search before the second load of the version. Pairs with the fence in `merge`.
            fence(Ordering::Acquire);
            if self.version.load(Ordering::Relaxed) == version {
                return index;
            }
        }
        None
    }

    /// Returns the indices of the records in a range of addresses, without replaced records. Writer only.
    pub fn between(&self, from: u64, to: u64) -> impl Iterator<Item = usize> {
        let version = self.version.load(Ordering::Relaxed); // Relaxed: our own write
        let (order, _) = self.buffers(version);
        let len = self.lengths[(version & 1) as usize].load(Ordering::Relaxed) as usize;
        let start = self.below(order, len.min(self.slots.len()), from);
        (start..len)
            .map(move |at| self.order_word(order, at))
            .map(|place| place.map_or(0, |word| word.load(Ordering::Relaxed)) as usize)
            .take_while(move |index| self.address_of(*index) < to)
    }

    fn below(&self, order: usize, len: usize, address: u64) -> usize {
        let (mut low, mut high) = (0, len);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.address_at(order, middle) < address {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// Returns the last record up to `address`, speculatively: the caller must check the version.
    fn search(&self, version: u64, address: u64) -> Option<usize> {
        let (order, _) = self.buffers(version);
        let len = self.lengths[(version & 1) as usize].load(Ordering::Relaxed) as usize;
        let len = len.min(self.slots.len());
        let above = |next| self.below(order, len, next);
        let count = address.checked_add(1).map_or(len, above);
        let index = self.order_word(order, count.checked_sub(1)?)?;
        Some(index.load(Ordering::Relaxed) as usize) // edge D
    }
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    fn slots(count: usize) -> Vec<[AtomicU64; SLOT_WORDS]> {
        (0..count)
            .map(|_| core::array::from_fn(|_| AtomicU64::new(0)))
            .collect()
    }

    /// The second window begins in the eight bytes that the first record holds.
    #[test]
    fn the_windows_of_neighbours_are_distinguished() {
        let slots = slots(2);
        let table = Table::new(&slots);
        let sites = [(100, 1), (105, 5)].map(|(address, len)| Site {
            address,
            len,
            head_count: 1,
            ..Site::default()
        });
        table.insert(2, |at| sites.get(at).copied()).expect("room");
        let ranges = [0..100, 0..101, 101..105, 109..110, 110..200, 0..0];
        let met = ranges.map(|code| table.meets(&code));
        assert_eq!(met, [false, true, false, true, false, false]);
        assert_eq!(table.all().count(), 2);
        let covered = (98..112).filter(|at| table.covers(*at));
        assert_eq!(covered.collect::<Vec<_>>(), [100, 105, 106, 107, 108, 109]);
    }
    #[test]
    fn an_earlier_record_is_found_again() {
        let slots = slots(4);
        let table = Table::new(&slots);
        let site = |(address, trampoline)| Site {
            address,
            trampoline,
            len: 5,
            head_count: 1,
            ..Site::default()
        };
        let sites = [(100, 1000), (200, 2000), (100, 3000), (200, 4000)].map(site);
        table.insert(2, |at| sites.get(at).copied()).expect("room");
        table
            .insert(2, |at| sites.get(2 + at).copied())
            .expect("room");
        let found = || [100, 200].map(|at| table.find(at).expect("a site").site.trampoline);
        assert_eq!(found(), [3000, 4000]);
        table.recall(|site| site.trampoline == 2000);
        assert_eq!(found(), [3000, 2000]);
        table.recall(|site| [1000, 4000].contains(&site.trampoline));
        assert_eq!((found(), table.len()), ([1000, 4000], 4));
        assert_eq!(table.between(0, 300).count(), 2);
    }
}
