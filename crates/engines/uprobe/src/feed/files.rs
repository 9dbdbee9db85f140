//! Gives each file, identified by device and inode, a small number for ever.

use super::FileId;
use crate::lookup::FileOffset;
use crate::primitive::{AtomicU64, Ordering::Relaxed};

/// The number of slots that a search reads, from the hash's slot on.
const REACH: usize = 32;

/// The files as (device, inode); a slot with inode 0 is free.
#[derive(Debug)]
pub(super) struct Files<'a>(&'a [[AtomicU64; 2]]);

pub(super) const fn words_for(slots: usize) -> usize {
    2 * slots
}

// Relaxed throughout: the table is used only under the lock of [`super::Feed`]'s space.
impl<'a> Files<'a> {
    pub(super) fn new(words: &'a [AtomicU64]) -> Self {
        Files(words.as_chunks().0)
    }

    pub(super) fn number(&self, file: FileId) -> Option<u32> {
        let (slot, known) = self.search(file)?;
        known.then_some(slot)
    }

    pub(super) fn enter(&self, file: FileId) -> Option<u32> {
        let (number, known) = self.search(file)?;
        if !known {
            let [device, inode] = self.0.get(number as usize - 1)?;
            device.store(file.device, Relaxed);
            inode.store(file.inode, Relaxed);
        }
        Some(number)
    }

    /// Returns a file's number, and whether the file is in the table. A new file's number is its future slot's.
    fn search(&self, file: FileId) -> Option<(u32, bool)> {
        let home = hash(file) as usize;
        for step in 0..REACH {
            let slot = (home + step) & self.0.len().checked_sub(1)?;
            let [device, inode] = self.0.get(slot)?;
            let found = FileId {
                device: device.load(Relaxed),
                inode: inode.load(Relaxed),
            };
            if found == file || found.inode == 0 {
                let number = u32::try_from(slot + 1).ok()?;
                let fits = file.inode != 0 && number <= FileOffset::MAX_FILE;
                return fits.then_some((number, found == file));
            }
        }
        None
    }
}

fn hash(file: FileId) -> u64 {
    let mixed = file.inode ^ file.device.rotate_left(40);
    mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}
