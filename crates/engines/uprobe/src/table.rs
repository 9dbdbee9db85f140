//! Which site a trapped thread is in, and where it continues.
//!
//! One writer (the agent's thread), and readers in signal handlers on any thread. Records are appended and never
//! changed, so an index stays readable. There are two buffers of indices sorted by address. The writer fills the
//! unused one and then raises the version, whose lowest bit selects the buffer in use.
//!
//! All is in one array of slots, so that a small table takes few neighbouring pages: a fork copies each page, and
//! allocates a page table for each 2 MiB that has pages (2 us).
//!
//! | words of slot `n` | content |
//! |---|---|
//! | 0 to 11 | the record with index `n` |
//! | 12, 13 | place `n` of each buffer |
//! | 14 | a word of the caller's for the record |
//!
//! | edge | Release | Acquire |
//! |---|---|---|
//! | D: an order is complete | `version` in [`Table::insert`] and [`Table::recall`] | `version` in [`Table::find`] |
//!
//! A reader overtaken by two insertions may read a buffer that is being refilled. So it must re-read the version
//! after the search, and retry if it changed.

use core::ops::Range;

use crate::primitive::{AtomicU64, Ordering, fence};
use tiptoe_wire::{SITE_WORDS, SLOT_WORDS, Site};

/// How often a reader retries, each time because an insertion finished. Models insert twice.
const TRIES: usize = if cfg!(tiptoe_loom) { 3 } else { 1_000 };

/// The first word of a slot after its record.
const ORDERS: usize = SITE_WORDS;
/// The caller's word of a slot.
const OWN: usize = ORDERS + 2;
const _: () = assert!(OWN < SLOT_WORDS);

/// The site of a trapped address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrapSite {
    /// The site's index in the table.
    pub index: usize,
    /// The site.
    pub site: Site,
    /// Where the thread continues.
    pub resume: u64,
    /// The head that it trapped at; 0 is the first byte.
    pub offset: u8,
}

/// Why records were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableError {
    /// No room for more records.
    Full,
    /// The records are not in ascending order of address.
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

    /// Returns how many records were ever appended.
    pub fn len(&self) -> usize {
        // Relaxed: the writer reads its own count; for a reader it is only a bound.
        self.used.load(Ordering::Relaxed) as usize
    }

    /// Returns whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the record at `index`.
    pub fn site(&self, index: usize) -> Option<Site> {
        let words = self.slots.get(index)?;
        // Relaxed: a record is complete before an order names it (edge D).
        Site::decode(core::array::from_fn(|word| {
            words
                .get(word)
                .map_or(0, |word| word.load(Ordering::Relaxed))
        }))
    }

    /// Returns the caller's word of the record at `index`, 0 at first.
    pub fn word(&self, index: usize) -> Option<&'a AtomicU64> {
        self.slots.get(index)?.get(OWN)
    }

    /// Appends records in ascending order of address, and makes them findable, in place of earlier
    /// ones for their addresses. Returns the first's index. Only the writer may call this.
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
        // Release: pairs with the Acquire in `find` (edge D).
        self.version.store(version + 1, Ordering::Release);
        Ok(first)
    }

    /// Makes the `wanted` records findable again, in place of later ones. Only the writer may call
    /// this.
    pub fn recall(&self, wanted: impl Fn(&Site) -> bool) {
        let version = self.version.load(Ordering::Relaxed); // Relaxed: our own write
        let (old, new) = self.buffers(version);
        let len = self.lengths[(version & 1) as usize].load(Ordering::Relaxed);
        fence(Ordering::Release); // pairs with the fence in `find`, as in `merge`
        for slot in self.slots.iter().take(len as usize) {
            if let (Some(to), Some(from)) = (slot.get(new), slot.get(old)) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed); // published by edge D
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
                place.store(index as u64, Ordering::Relaxed); // published by edge D
            }
        }
        self.lengths[1 - (version & 1) as usize].store(len, Ordering::Relaxed); // edge D
        // Release: pairs with the Acquire in `find` (edge D).
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
                word.store(value, Ordering::Relaxed); // Relaxed: published by edge D
            }
        }
        Ok(())
    }

    /// Merges the current order with the new records into the other buffer.
    fn merge(&self, version: u64, first: usize, count: usize) -> Result<(), TableError> {
        let (old, new) = self.buffers(version);
        let old_len = self.lengths[(version & 1) as usize].load(Ordering::Relaxed) as usize;
        // Otherwise a reader of this buffer could take new entries for old ones. Pairs with the
        // fence in `find`.
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
                .store(index, Ordering::Relaxed); // published by edge D
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

    /// Returns the site that has a head at `address`; `None` also if insertions kept overtaking.
    /// Safe in a signal handler.
    pub fn find(&self, address: u64) -> Option<TrapSite> {
        self.trap_site(self.last_up_to(address)?, address)
    }

    /// Returns the site with an index, if it has a head at `address`. Safe in a signal handler, for
    /// any index.
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

    /// Returns whether a site patches the byte at `address`. Safe in a signal handler.
    pub fn covers(&self, address: u64) -> bool {
        let site = self.last_up_to(address).and_then(|index| self.site(index));
        site.is_some_and(|site| address - site.address < site.len.into())
    }

    /// Returns whether a site patches bytes in a range of addresses. Safe in a signal handler.
    pub fn meets(&self, code: &Range<u64>) -> bool {
        let last = code
            .end
            .checked_sub(1)
            .and_then(|last| self.last_up_to(last));
        let site = last.and_then(|index| self.site(index));
        site.is_some_and(|site| site.address + u64::from(site.len) > code.start)
    }

    /// Returns all records, those that others replaced, too. Safe in a signal handler.
    pub fn all(&self) -> impl Iterator<Item = Site> {
        // Acquire: pairs with the Release in `insert`, which the records and their number precede (edge D).
        self.version.load(Ordering::Acquire);
        (0..self.len()).filter_map(|index| self.site(index))
    }

    /// Returns the last site that begins at or before `address`.
    fn last_up_to(&self, address: u64) -> Option<usize> {
        for _ in 0..TRIES {
            // Acquire: pairs with the Release in `insert` and `recall` (edge D).
            let version = self.version.load(Ordering::Acquire);
            let index = self.search(version, address);
            // Orders the search before the second load of the version. Pairs with the fence in
            // `merge`.
            fence(Ordering::Acquire);
            if self.version.load(Ordering::Relaxed) == version {
                return index;
            }
        }
        None
    }

    /// Returns the findable records' indices in a range of addresses. Only the writer may call
    /// this.
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

    /// Returns an order's last record at or below `address`. Speculative until the version is seen
    /// unchanged.
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

    /// Windows before and after a call: the second begins within the eight bytes that the first
    /// site's record has.
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
    /// A session that needs an earlier record gets it, and the table does not grow.
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
