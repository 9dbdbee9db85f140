//! Reads counts from slabs; each slab has one thread's counters, indexed by *slot*. Slabs must be read
//! through the descriptor of their memfd, where a hole reads as zeroes; a read through the mapping would
//! allocate a page. The target can write to slabs, so no number read from a slab may be used as an index.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use tiptoe_attach::link::Link;
use tiptoe_wire::Geometry;

use crate::call_sums::{add, correct};
use crate::request::Split;
use crate::values::{TimedValues, Values};

#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// The sums over threads, by slot.
    pub totals: Vec<u64>,
    /// The counts of each thread or thread name, by slot.
    pub parts: BTreeMap<String, Vec<u64>>,
    /// The values of an argument, by the first of their slots.
    pub values: BTreeMap<u32, Values>,
    /// The timed calls for each value of an argument, by the first of their slots.
    pub timed_values: BTreeMap<u32, TimedValues>,
}

const ENTRY: usize = Geometry::ENTRY_BYTES;
/// The key of the overflow slab, which threads without a slab of their own share.
const OTHERS: &str = "(other threads)";

/// Slots whose words cannot simply be summed over threads.
#[derive(Default)]
pub struct SlotKinds {
    pub timed: Vec<u32>,
    /// The first slots of an argument's values.
    pub valued: Vec<u32>,
    /// The first slots of functions whose calls are timed by value. Their totals are the sums over all values.
    pub timed_values: Vec<u32>,
}

pub fn read(
    file: &File,
    geometry: Geometry,
    by: Option<Split>,
    kinds: &SlotKinds,
) -> std::io::Result<Counts> {
    let mut counts = Counts {
        totals: vec![0; geometry.slots as usize],
        ..Counts::default()
    };
    let mut words = SlabWords::new(file, geometry, 0..geometry.slots);
    for (slab, owner) in slabs(file, geometry)? {
        words.read(slab)?;
        words.add_timed(&mut counts.totals, &kinds.timed);
        for slot in &kinds.valued {
            let kept = counts.values.entry(*slot).or_default();
            kept.add(words.from(*slot));
        }
        for slot in &kinds.timed_values {
            let kept = counts.timed_values.entry(*slot).or_default();
            kept.add(words.from(*slot));
        }
        if let Some(by) = by.filter(|by| matches!(by, Split::Thread | Split::Comm))
            && !words.is_zero()
        {
            let key = owner.map_or_else(|| OTHERS.to_owned(), |owner| owner.key(by));
            let part = counts.parts.entry(key).or_default();
            part.resize(words.words.len(), 0);
            words.add_timed(part, &kinds.timed);
        }
    }
    for (slot, kept) in &counts.timed_values {
        let totals = counts.totals.iter_mut().skip(*slot as usize);
        for (total, all) in totals.zip(kept.all()) {
            *total = all;
        }
    }
    Ok(counts)
}

pub fn sums(file: &File, geometry: Geometry, slots: Range<u32>) -> std::io::Result<Vec<u64>> {
    let mut sums = vec![0_u64; slots.len()];
    let mut words = SlabWords::new(file, geometry, slots);
    for (slab, _) in slabs(file, geometry)? {
        words.read(slab)?;
        words.add_to(&mut sums);
    }
    Ok(sums)
}

/// Calls `visit` with the slots of each slab and the slab's thread; the overflow slab has no thread.
pub fn each_slab(
    file: &File,
    geometry: Geometry,
    slots: Range<u32>,
    mut visit: impl FnMut(Option<&SlabOwner>, &[u64]),
) -> std::io::Result<()> {
    let mut words = SlabWords::new(file, geometry, slots);
    for (slab, owner) in slabs(file, geometry)? {
        words.read(slab)?;
        visit(owner.as_ref(), &words.words);
    }
    Ok(())
}

/// Zero words are not written, because a write into a hole would allocate a page.
pub fn clear(link: &Link, slots: &[u32]) -> std::io::Result<()> {
    if slots.is_empty() {
        return Ok(());
    }
    let (file, geometry, data) = (link.data_file(), link.geometry(), link.data());
    let mut words = SlabWords::new(file, geometry, 0..geometry.slots);
    for (slab, _) in slabs(file, geometry)? {
        words.read(slab)?;
        for slot in slots {
            let is_zero = words.from(*slot).first().is_none_or(|word| *word == 0);
            if !is_zero && let Some(word) = data.slab_words(slab, *slot, 1) {
                word.store(0, 0);
            }
        }
    }
    Ok(())
}

/// Returns the overflow slab, and all slabs that a thread has used.
fn slabs(file: &File, geometry: Geometry) -> std::io::Result<Vec<(u32, Option<SlabOwner>)>> {
    let mut directory = vec![0; (geometry.slabs as usize) * ENTRY];
    file.read_exact_at(&mut directory, geometry.entry_offset(0))?;
    let owners = directory.chunks_exact(ENTRY).map(SlabOwner::read);
    Ok((0..)
        .zip(owners)
        .filter(|(slab, owner)| *slab == 0 || owner.is_some())
        .collect())
}

/// Decodes a name up to its first zero byte. The name must be escaped before it is displayed, because the target may
/// have chosen it.
pub fn plain(name: &[u8]) -> String {
    let name = name.split(|byte| *byte == 0).next().unwrap_or(&[]);
    String::from_utf8_lossy(name).into_owned()
}

pub struct SlabOwner {
    pub tid: u32,
    pub comm: String,
}

impl SlabOwner {
    fn read(entry: &[u8]) -> Option<SlabOwner> {
        let tid = u32::from_le_bytes(entry[..4].try_into().expect("four bytes"));
        let comm = plain(&entry[8..24]);
        (tid != 0).then_some(SlabOwner { tid, comm })
    }

    pub fn key(&self, by: Split) -> String {
        match by {
            Split::Thread => format!("{} {}", self.tid, self.comm),
            _ => self.comm.clone(),
        }
    }
}

/// The words of one slab. Most of a large slab is a hole, which is neither read nor summed.
struct SlabWords<'a> {
    file: &'a File,
    geometry: Geometry,
    slots: Range<u32>,
    /// Zero in the slab's holes, which are outside `stretches`.
    words: Vec<u64>,
    stretches: Vec<Range<usize>>,
    bytes: Vec<u8>,
}

impl<'a> SlabWords<'a> {
    fn new(file: &'a File, geometry: Geometry, slots: Range<u32>) -> SlabWords<'a> {
        SlabWords {
            file,
            geometry,
            words: vec![0; slots.len()],
            slots,
            stretches: Vec::new(),
            bytes: Vec::new(),
        }
    }

    fn read(&mut self, slab: u32) -> std::io::Result<()> {
        for stretch in self.stretches.drain(..) {
            self.words[stretch].fill(0);
        }
        let start = self.geometry.slab_offset(slab) + u64::from(self.slots.start) * 8;
        let end = start + self.words.len() as u64 * 8;
        let mut at = start;
        while let Some((from, to)) = next_data(self.file, at, end)? {
            self.bytes.resize((to - from) as usize, 0);
            self.file.read_exact_at(&mut self.bytes, from)?;
            let stretch = ((from - start) / 8) as usize..((to - start) / 8) as usize;
            let read = self.bytes.chunks_exact(8);
            for (word, bytes) in self.words[stretch.clone()].iter_mut().zip(read) {
                *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            }
            self.stretches.push(stretch);
            at = to;
        }
        Ok(())
    }

    fn from(&self, slot: u32) -> &[u64] {
        let at = slot.checked_sub(self.slots.start);
        at.and_then(|at| self.words.get(at as usize..))
            .unwrap_or_default()
    }

    fn is_zero(&self) -> bool {
        let mut stretches = self.stretches.iter();
        stretches.all(|stretch| self.words[stretch.clone()].iter().all(|word| *word == 0))
    }

    fn add_to(&self, sums: &mut [u64]) {
        for stretch in &self.stretches {
            add(&mut sums[stretch.clone()], &self.words[stretch.clone()]);
        }
    }

    fn add_timed(&self, sums: &mut [u64], timed: &[u32]) {
        self.add_to(sums);
        for slot in timed {
            if let Some(sums) = sums.get_mut(*slot as usize..) {
                correct(sums, self.from(*slot));
            }
        }
    }
}

fn next_data(file: &File, from: u64, end: u64) -> std::io::Result<Option<(u64, u64)>> {
    let seek = |at: u64, whence| {
        // SAFETY: the call touches no memory. It moves the descriptor's offset, which no read here uses.
        let found = unsafe { libc::lseek(file.as_raw_fd(), at as libc::off_t, whence) };
        u64::try_from(found).map_err(|_| std::io::Error::last_os_error())
    };
    if from >= end {
        return Ok(None);
    }
    match seek(from, libc::SEEK_DATA) {
        Ok(data) if data >= end => Ok(None),
        Ok(data) => Ok(Some((data, seek(data, libc::SEEK_HOLE)?.min(end)))),
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiptoe_wire::calls::words;

    fn of_one_thread(file: &File, words: Vec<u64>) -> SlabWords<'_> {
        let geometry = Geometry::for_slots(words.len() as u32, false);
        let mut slab = SlabWords::new(file, geometry, 0..words.len() as u32);
        slab.stretches.push(0..words.len());
        slab.words = words;
        slab
    }

    #[test]
    fn a_call_that_is_pending_counts_and_the_longest_is_no_sum() {
        let file = File::open("/dev/null").expect("it opens");
        let slot = 16;
        let at = |word: u32| (slot + word) as usize;
        let mut thread = vec![0; at(words::ALL)];
        thread[at(words::LONGEST)] = 9;
        thread[at(words::DURATIONS)] = 1; // the pending call counts here until the next call ends
        thread[at(words::DURATIONS + 5)] = 2;
        thread[at(words::PENDING)] = 30;
        let mut odd = thread.clone();
        odd[at(words::LONGEST)] = 7;
        odd[at(words::PENDING)] = u64::MAX;
        let mut sums = vec![0; thread.len()];
        for words in [thread, odd, vec![0; at(words::ALL)]] {
            of_one_thread(&file, words).add_timed(&mut sums, &[slot]);
        }
        assert_eq!(sums[at(words::LONGEST)], 9);
        // The second thread's pending index is invalid, so its call stays in the first count.
        assert_eq!(sums[at(words::DURATIONS)], 1);
        assert_eq!(sums[at(words::DURATIONS + 5)], 4);
        assert_eq!(sums[at(words::DURATIONS + 30)], 1);
    }
}
