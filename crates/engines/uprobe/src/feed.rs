//! Keeps a [`Space`], a copy of the address space, up to date. Hooks of system calls record calls that map or unmap
//! code. A thread of ours reads the kernel's list of mappings.
//!
//! The space holds files' executable parts. A change affects the space in one of five ways:
//!
//! | a change | the space |
//! |---|---|
//! | a hooked call, and the lock is free | is edited; the lock is held during the call |
//! | a hooked call, and the lock is taken | is in *doubt*, from before the call on |
//! | a call that maps a file without a number yet, or makes memory executable | is *lacking* after the call |
//! | the loader's own calls, which no hook sees | is in doubt, from [`Feed::begin_unseen`] on |
//! | a thread hits a probe that the space does not find | is lacking |
//!
//! A space in doubt may hold removed mappings, so lookups return [`Answer::Unsure`]. A lacking space may only miss
//! mappings. Reading the list ([`Feed::read_again`]) ends lacking, and ends doubt if no change is in progress.
//!
//! The list identifies a file by device and inode. A file gets a small number when it is first read in the list. Hooks
//! identify a file by fstat(2). On some file systems fstat(2) shows another device, so the hook finds no number.

use core::ops::Range;

use crate::lookup::{FileOffset, Lookup, Mapping, Shape, Space, Writer};
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

/// How often a hook tries the lock; all tries together take ten microseconds.
const LOOKS: u32 = if cfg!(tiptoe_loom) { 1 } else { 1024 };

/// A file, as /proc/self/maps identifies it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileId {
    /// The device's major number in the upper half, the minor number in the lower half.
    pub device: u64,
    /// The inode, never 0.
    pub inode: u64,
}

/// The answer to a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The probe, found without a shared write.
    Speculative(u32),
    /// The probe, found under the lock.
    Locked(u32),
    /// There is no probe.
    Missed,
    /// The space is in doubt, or its lock stays taken.
    Unsure,
}

/// The result of reading the whole list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The number of mappings, after merging those that continue each other.
    pub mappings: usize,
    /// The total size of the mappings in bytes.
    pub bytes: u64,
    /// The number of changes that no hook saw: differences between list and space while nothing was in doubt or
    /// lacking.
    pub corrected: u64,
}

/// An address space, its files and its doubt.
#[derive(Debug)]
pub struct Feed<'a> {
    space: Space<'a>,
    files: Files<'a>,
    doubt: Doubt,
}

impl<'a> Feed<'a> {
    /// Returns how many words the storage needs.
    pub const fn words(shape: Shape, files: usize) -> usize {
        shape.words() + files::words_for(files)
    }

    /// Returns an empty, lacking space over zeroed storage; `None` if `words` are too few. `files` must be a power of
    /// two.
    pub fn new(words: &'a [AtomicU64], shape: Shape, files: usize) -> Option<Self> {
        let (slots, words) = words.split_at_checked(files::words_for(files))?;
        let feed = Feed {
            space: Space::new(words, shape)?,
            files: Files::new(slots),
            doubt: Doubt::new(),
        };
        feed.doubt.lack();
        Some(feed)
    }

    /// Returns whether the hook must [perform](Feed::perform) this call. A removal concerns the space if it overlaps a
    /// known range. If the space is in doubt or lacking, every removal does.
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

    /// Makes a call, and records its effect. `file` names the mapped file. The caller must block signals, because
    /// handlers that map code or look up probes could not get the lock.
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

    /// Edits the space as the kernel did. Returns `false` if the call's effect is unknown or does not fit.
    fn note(
        &self,
        writer: &Writer,
        call: &Call,
        result: i64,
        file: impl FnOnce() -> Option<FileId>,
    ) -> bool {
        let Ok(at) = u64::try_from(result) else {
            return !call.takes_away(); // a failed call may have removed some mappings
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
                stays_mapped: stays,
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
        let file_offset = self
            .files
            .number(id)
            .and_then(|number| FileOffset::new(number, offset));
        let done = match file_offset {
            Some(file_offset) => writer.insert(Mapping {
                start: range.start,
                end: range.end,
                file_offset,
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
    ) -> Result<(), crate::lookup::SpaceError> {
        if call.is_code() {
            self.doubt.lack();
        }
        writer.remove(range)
    }

    /// Records that the loader begins to map and unmap unseen.
    pub fn begin_unseen(&self) {
        self.doubt.begin();
    }

    /// Records that the loader has finished.
    pub fn end_unseen(&self) {
        self.doubt.end();
    }

    /// Returns whether the list should be read again: the space is in doubt or lacking.
    pub fn is_unsure(&self) -> bool {
        !self.doubt.is_none() || self.doubt.is_lacking()
    }

    /// Returns an address's place in a file.
    pub fn file_offset_of(&self, address: u64) -> Option<FileOffset> {
        self.space.resolve(address).value()
    }

    /// Calls `each` with each range (only those in `range`, if given) that maps patched code a second time, without
    /// patches. The caller must block signals, as for [`Feed::perform`]. Does nothing if the lock is taken.
    pub fn each_unpatched_copy(
        &self,
        range: Option<&Range<u64>>,
        is_patched: impl Fn(&Range<u64>) -> bool,
        mut each: impl FnMut(Range<u64>),
    ) {
        let Some(writer) = self.space.write(LOOKS) else {
            return;
        };
        let is_wanted = |copy: &Range<u64>| {
            range.is_none_or(|range| range.start < copy.end && copy.start < range.end)
        };
        // `is_patched` is called last, because it searches all patches with the lock held.
        for second in writer.mappings() {
            if !is_wanted(&(second.start..second.end)) {
                continue;
            }
            for first in writer.mappings().filter(|other| *other != second) {
                if let Some(code) = first.shared_with(&second)
                    && let Some(copy) = second.shared_with(&first)
                    && is_wanted(&copy)
                    && is_patched(&code)
                    && !is_patched(&copy)
                {
                    each(code);
                }
            }
        }
    }

    /// Adds a probe for each address in a file, at its place there. Removes the place's probes for which `replaces`
    /// returns `true`. Returns `false` if the lock is still taken after `looks` checks.
    pub fn add_probes(
        &self,
        looks: u32,
        probes: impl Iterator<Item = (u64, u32)>,
        replaces: impl Fn(u32, u64) -> bool,
    ) -> bool {
        let Some(writer) = self.space.write(looks) else {
            return false;
        };
        for (address, probe) in probes {
            if let Some(file_offset) = writer.file_offset_of(address) {
                // If there is no room, lookups miss the probe.
                let _ = writer.add_probe(file_offset, probe, |other| replaces(other, address));
            }
        }
        true
    }

    /// Returns whether the space has a probe.
    pub fn has_probe(&self, probe: u32) -> bool {
        self.space.has_probe(probe)
    }

    /// Looks up a probe; see [`Space::find`]. Safe in a signal handler.
    pub fn find(&self, address: u64, reach: u64, accept: impl Fn(u32) -> bool) -> Answer {
        self.answer(|space| space.find(address, reach, accept))
    }

    /// Looks up a probe; see [`Space::find_locked`].
    pub fn find_locked(&self, address: u64, reach: u64, accept: impl Fn(u32) -> bool) -> Answer {
        self.answer(|space| space.find_locked(address, reach, accept))
    }

    #[inline]
    fn answer(&self, look: impl FnOnce(&Space<'a>) -> Lookup<u32>) -> Answer {
        if !self.doubt.is_none() {
            return Answer::Unsure;
        }
        match look(&self.space) {
            Lookup::Speculative(probe) => Answer::Speculative(probe),
            Lookup::Locked(Some(probe)) => Answer::Locked(probe),
            Lookup::Locked(None) => Answer::Missed,
            Lookup::Unsure => Answer::Unsure,
        }
    }

    /// Records that a lookup did not find an existing probe. Safe in a signal handler.
    pub fn note_miss(&self) {
        self.doubt.lack();
    }

    /// Reads the whole list. `read` fills a buffer and returns the number of bytes, 0 at the end, `None` on failure.
    /// Returns `None` if the lock is still taken after `looks` checks, if reading failed, or if the list does not fit.
    /// The last two leave the space in doubt.
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

    /// Returns `None` if the line is no file's code, or does not fit the tables.
    fn mapping(&self, line: &Line) -> Option<Mapping> {
        let code = line.is_executable && line.file.inode != 0;
        let number = code.then(|| self.files.enter(line.file))??;
        let mapping = Mapping {
            start: line.start,
            end: line.end,
            file_offset: FileOffset::new(number, line.offset)?,
        };
        mapping.can_be_held().then_some(mapping)
    }
}
