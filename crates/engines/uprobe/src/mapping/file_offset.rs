use core::ops::Range;

use super::{END, PAGE};

const OFFSET_BITS: u32 = 44;

/// The *place* of a byte in a file: the upper bits are the file's number, the lower bits the offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileOffset(pub(crate) u64);

impl FileOffset {
    /// The largest file number.
    pub const MAX_FILE: u32 = (1 << (u64::BITS - OFFSET_BITS)) - 1;
    /// The largest offset: 16 TiB.
    pub const MAX_OFFSET: u64 = (1 << OFFSET_BITS) - 1;

    /// Returns a place; `None` if a number is too large.
    pub const fn new(file: u32, offset: u64) -> Option<FileOffset> {
        if file > FileOffset::MAX_FILE || offset > FileOffset::MAX_OFFSET {
            return None;
        }
        Some(FileOffset((file as u64) << OFFSET_BITS | offset))
    }

    /// Returns the file's number.
    pub const fn file(self) -> u32 {
        (self.0 >> OFFSET_BITS) as u32
    }

    /// Returns the offset in the file.
    pub const fn offset(self) -> u64 {
        self.0 & FileOffset::MAX_OFFSET
    }

    /// Returns the place `bytes` later. An offset above [`FileOffset::MAX_OFFSET`] overflows into the file's number.
    #[inline]
    pub(crate) fn plus(self, bytes: u64) -> FileOffset {
        FileOffset(self.0.wrapping_add(bytes))
    }
}

/// A part of a file in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first address.
    pub start: u64,
    /// The address after the mapping.
    pub end: u64,
    /// The place at `start`.
    pub file_offset: FileOffset,
}

impl Mapping {
    /// Returns the place at an address.
    #[inline]
    pub fn file_offset_of(&self, address: u64) -> FileOffset {
        self.file_offset.plus(address.wrapping_sub(self.start))
    }

    /// Returns the addresses in this mapping whose bytes `other` maps, too; `None` if there are none.
    pub(crate) fn shared_with(&self, other: &Mapping) -> Option<Range<u64>> {
        let offsets = |mapping: &Mapping| {
            let first = mapping.file_offset.offset();
            first..first + (mapping.end - mapping.start)
        };
        let (own, others) = (offsets(self), offsets(other));
        let shared = own.start.max(others.start)..own.end.min(others.end);
        let is_shared = self.file_offset.file() == other.file_offset.file() && !shared.is_empty();
        let address = |offset: u64| self.start + (offset - own.start);
        is_shared.then(|| address(shared.start)..address(shared.end))
    }

    pub(crate) fn can_be_held(&self) -> bool {
        let numbers = self.start | self.end | self.file_offset.offset();
        numbers.is_multiple_of(PAGE) && self.end <= END && self.is_in_one_file()
    }

    pub(super) fn is_in_one_file(&self) -> bool {
        let len = self.end.wrapping_sub(self.start);
        len <= FileOffset::MAX_OFFSET - self.file_offset.offset()
    }

    pub(super) fn continues_in(&self, next: &Mapping) -> bool {
        (self.end, self.file_offset_of(self.end)) == (next.start, next.file_offset)
    }
}
