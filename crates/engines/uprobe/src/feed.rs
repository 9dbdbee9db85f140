//! What keeps an address space true: which of a program's calls change what of a file
//! can be run where, and what is read again where nobody saw the change.
//!
//! The coordination removed: the program's threads map and unmap side by side as the
//! kernel lets them, and none of them ever waits for whoever reads the whole list.
//!
//! The space holds what of files can be executed. It learns of a change in one of
//! four ways:
//!
//! | a change | the space |
//! |---|---|
//! | a call of the program's that is seen, and the lock is free | is edited under the lock, around the call |
//! | the same, and the lock is taken | is in *doubt* from before the call on |
//! | a call that brings what cannot be named yet: a file never seen, memory that is made executable | is *lacking* after it |
//! | a miss: somebody runs where nothing is | is lacking |
//!
//! What is in doubt may hold what is not there any more: no answer is given. What is
//! lacking holds nothing wrong, so that what is found is true. Either ends when the
//! agent's thread has read the whole list again ([`Feed::read_again`]); [`doubt`] has
//! the rules. A file is what the list calls it, device and inode, and gets a small
//! number when it is first read there. stat(2) shows another device on some file systems: then
//! the pair is not known, and the space is lacking until the list is read.
//!
//! A call that is about no file's code costs a look at its arguments, and a
//! look into the page table where it takes away: nothing that is shared is written.

use core::ops::Range;

use crate::lookup::{Lookup, Mapping, Place, Shape, Space, Writer};
use crate::primitive::AtomicU64;

pub mod call;
pub mod doubt;
mod files;
mod lines;
#[cfg(all(test, not(tiptoe_loom)))]
mod tests;

use call::{Call, Change};
use doubt::Doubt;
use files::Files;
pub use lines::{Line, Lines};

/// How often a program's thread looks for the lock: some ten microseconds.
const LOOKS: u32 = if cfg!(tiptoe_loom) { 1 } else { 1024 };

/// A file as /proc/self/maps names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileId {
    /// The device: major number above, minor number below.
    pub device: u64,
    /// The inode, which is not 0.
    pub inode: u64,
}

/// Whether a place is still where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is, and nothing was written to learn that.
    Speculative,
    /// It is, by the lock.
    Locked,
    /// It is not there, as far as is known, or nothing is certain now.
    Missed,
}

/// What came of reading the whole list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// How many mappings there are; those that continue each other are one.
    pub mappings: usize,
    /// How many bytes they have together.
    pub bytes: u64,
    /// How much was wrong though nothing seemed to be: changes that nobody saw.
    pub corrected: u64,
}

/// An address space, its files and what is in doubt.
#[derive(Debug)]
pub struct Feed<'a> {
    space: Space<'a>,
    files: Files<'a>,
    doubt: Doubt,
}

impl<'a> Feed<'a> {
    /// How many words its storage needs; [`Shape`] says of how many tables.
    pub const fn words(tables: usize, files: usize) -> usize {
        shape(tables).words() + files::words_for(files)
    }

    /// An empty one over zeroed storage, which is lacking everything; `None` where
    /// that is too short. `files` is a power of two.
    pub fn new(words: &'a [AtomicU64], tables: usize, files: usize) -> Option<Self> {
        let (slots, words) = words.split_at_checked(files::words_for(files))?;
        let feed = Feed {
            space: Space::new(words, shape(tables))?,
            files: Files::new(slots),
            doubt: Doubt::new(),
        };
        feed.doubt.lack();
        Some(feed)
    }

    /// Whether a call is to be [performed](Feed::perform) by whoever sees it coming. A
    /// program takes away only what it has mapped: that is in the space by now, or
    /// this is unsure of itself.
    #[inline]
    pub fn concerns(&self, call: &Call) -> bool {
        match call.change() {
            Change::Adds => true,
            Change::MayAdd(range) => !self.space.covers(range),
            Change::TakesAway(ranges) => ranges.iter().any(|range| self.may_hold(range)),
            Change::Nothing => false,
        }
    }

    fn may_hold(&self, range: &Range<u64>) -> bool {
        !range.is_empty() && (self.is_unsure() || self.space.may_meet(range))
    }

    /// Makes a call and notes what it did. `file` names the mapped one. No signal
    /// handler may run on this thread meanwhile that asks, or calls this.
    pub fn perform(
        &self,
        call: &Call,
        file: impl FnOnce() -> Option<FileId>,
        make: impl FnOnce() -> i64,
    ) -> i64 {
        if let Change::MayAdd(_) = call.change() {
            self.doubt.lack();
            let result = make();
            self.doubt.lack();
            return result;
        }
        let writer = self.space.write(LOOKS);
        let doubtful = writer.is_none() || call.takes_away();
        if doubtful {
            self.doubt.begin();
        }
        let result = make();
        let noted = writer
            .as_ref()
            .is_some_and(|writer| self.note(writer, call, result, file));
        match (doubtful, noted) {
            (true, true) => self.doubt.end_noted(),
            (true, false) => self.doubt.end(),
            (false, true) => {}
            (false, false) => self.doubt.lack(),
        }
        result
    }

    /// Edits the space as the kernel did; false where that cannot be told, or not done.
    fn note(
        &self,
        writer: &Writer,
        call: &Call,
        result: i64,
        file: impl FnOnce() -> Option<FileId>,
    ) -> bool {
        let Ok(at) = u64::try_from(result) else {
            return !call.takes_away(); // what failed may have been done in part
        };
        let done = match *call {
            Call::Map { len, offset, .. } => {
                let range = at..at.saturating_add(len);
                match call.is_code().then(file).flatten() {
                    Some(id) => return self.note_file(writer, range, id, offset),
                    None => self.note_nameless(writer, call, range),
                }
            }
            Call::Unmap(ref range) | Call::Protect { ref range, .. } => {
                writer.remove(range.clone())
            }
            Call::Move {
                ref from,
                len,
                stays,
                ..
            } => {
                let to = at..at.saturating_add(len);
                let from = if stays {
                    from.start..from.start
                } else {
                    from.clone()
                };
                writer.remap(from, to)
            }
        };
        done.is_ok()
    }

    fn note_file(&self, writer: &Writer, range: Range<u64>, id: FileId, offset: u64) -> bool {
        let place = self
            .files
            .number(id)
            .and_then(|number| Place::new(number, offset));
        let done = match place {
            Some(place) => writer.insert(Mapping {
                start: range.start,
                end: range.end,
                place,
            }),
            None => {
                self.doubt.lack();
                writer.remove(range)
            }
        };
        done.is_ok()
    }

    fn note_nameless(
        &self,
        writer: &Writer,
        call: &Call,
        range: Range<u64>,
    ) -> Result<(), crate::lookup::Error> {
        if call.is_code() {
            self.doubt.lack();
        }
        writer.remove(range)
    }

    /// The program's loader begins to map and unmap, which nobody sees, or somebody else does.
    pub fn begin_unseen(&self) {
        self.doubt.begin();
    }

    /// It is done with that.
    pub fn end_unseen(&self) {
        self.doubt.end();
    }

    /// Whether the list should be read again.
    pub fn is_unsure(&self) -> bool {
        !self.doubt.is_none() || self.doubt.is_lacking()
    }

    /// What of which file is at an address, for whoever patches there.
    pub fn place_of(&self, address: u64) -> Option<Place> {
        self.space.resolve(address).found()
    }

    /// Whether the file at an address is the one that has `place` at `site`. In a signal
    /// handler, too.
    pub fn is_at(&self, address: u64, site: u64, place: Place) -> Answer {
        let expected = place.plus(address.wrapping_sub(site));
        if !self.doubt.is_none() {
            return Answer::Missed;
        }
        match self.space.resolve(address) {
            Lookup::Speculative(found) if found == expected => Answer::Speculative,
            Lookup::Locked(Some(found)) if found == expected => Answer::Locked,
            _ => {
                self.doubt.lack();
                Answer::Missed
            }
        }
    }

    /// Reads the whole list: `read` gives its next bytes, 0 at its end, and `None` where it
    /// cannot be read. `None` where that is so, or somebody stays in through `looks` looks.
    pub fn read_again(
        &self,
        looks: u32,
        read: impl FnMut(&mut [u8]) -> Option<usize>,
    ) -> Option<Reading> {
        let writer = self.space.write(looks)?;
        let began = self.doubt.begin_reading();
        let before = writer.version();
        let mut lines = Lines::new(read);
        let (mut mappings, mut bytes) = (0, 0);
        let replaced = writer.replace(lines.by_ref().filter_map(|line| self.mapping(&line)));
        if lines.has_failed() || replaced.is_err() {
            self.doubt.begin();
            self.doubt.end();
            return None;
        }
        for mapping in writer.mappings() {
            (mappings, bytes) = (mappings + 1, bytes + (mapping.end - mapping.start));
        }
        let believed = self.doubt.end_reading(&began);
        let corrected = (writer.version() - before) / 2;
        Some(Reading {
            mappings,
            bytes,
            corrected: if believed { corrected } else { 0 },
        })
    }

    /// What a line says of a file's code; what does not fit is not there.
    fn mapping(&self, line: &Line) -> Option<Mapping> {
        let code = line.executable && line.file.inode != 0;
        let number = code.then(|| self.files.enter(line.file))??;
        let mapping = Mapping {
            start: line.start,
            end: line.end,
            place: Place::new(number, line.offset)?,
        };
        mapping.can_be_held().then_some(mapping)
    }
}

const fn shape(tables: usize) -> Shape {
    Shape { tables, probes: 0 }
}
