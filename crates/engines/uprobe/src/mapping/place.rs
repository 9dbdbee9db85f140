//! Bytes of files, and where they are in memory.

use super::{END, PAGE};

/// How many bits of a [`Place`] are the offset.
const OFFSET_BITS: u32 = 44;

/// A byte of a file, as one number: the file above, the offset below. A file is
/// whatever small number the caller gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place(pub(crate) u64);

impl Place {
    /// The largest number of a file.
    pub const MAX_FILE: u32 = (1 << (u64::BITS - OFFSET_BITS)) - 1;
    /// The largest offset: files of up to 16 TiB.
    pub const MAX_OFFSET: u64 = (1 << OFFSET_BITS) - 1;

    /// The byte at an offset of a file, unless one of the numbers is too large.
    pub const fn new(file: u32, offset: u64) -> Option<Place> {
        if file > Place::MAX_FILE || offset > Place::MAX_OFFSET {
            return None;
        }
        Some(Place((file as u64) << OFFSET_BITS | offset))
    }

    /// As one word, which is not 0 where the file is not.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// From such a word; `None` for 0.
    pub const fn from_word(word: u64) -> Option<Place> {
        match word {
            0 => None,
            word => Some(Place(word)),
        }
    }

    /// Which file.
    pub const fn file(self) -> u32 {
        (self.0 >> OFFSET_BITS) as u32
    }

    /// Where in the file.
    pub const fn offset(self) -> u64 {
        self.0 & Place::MAX_OFFSET
    }

    /// So many bytes on, in the same file for as long as that lasts.
    #[inline]
    pub(crate) fn plus(self, bytes: u64) -> Place {
        Place(self.0.wrapping_add(bytes))
    }
}

/// A part of a file in memory. Two are neighbours where one ends and the other
/// starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first address.
    pub start: u64,
    /// The first address behind it.
    pub end: u64,
    /// What is at `start`.
    pub place: Place,
}

impl Mapping {
    /// What is at an address.
    #[inline]
    pub fn place_of(&self, address: u64) -> Place {
        self.place.plus(address.wrapping_sub(self.start))
    }

    /// Is it whole pages, at addresses and offsets that there are?
    pub(crate) fn can_be_held(&self) -> bool {
        let numbers = self.start | self.end | self.place.offset();
        numbers.is_multiple_of(PAGE) && self.end <= END && self.is_in_one_file()
    }

    /// Is all of it in one file?
    pub(super) fn is_in_one_file(&self) -> bool {
        let len = self.end.wrapping_sub(self.start);
        len <= Place::MAX_OFFSET - self.place.offset()
    }

    /// Does the other one start where this one ends, here and in the file?
    pub(super) fn continues_in(&self, next: &Mapping) -> bool {
        (self.end, self.place_of(self.end)) == (next.start, next.place)
    }
}
