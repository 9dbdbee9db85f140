//! Keeps the addresses of sessions' data segments (shared memory): two ranges, used in turn. Once a thread has seen a
//! range, the range is never unmapped.
//!
//! A thread may be preempted for any time between reading the address of its slab (block of counters) and counting
//! there. So a segment's addresses stay mapped for ever. When a session closes, private memory replaces its segment,
//! and the session after the next reuses the range. A thread preempted for that long counts in another session's slab,
//! but never faults.
//!
//! A range grows at its address. If something else is mapped right after the range, a new one, at least twice as long,
//! replaces it, and the old range stays mapped.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use tiptoe_sys::raw::Errno;

use crate::memory;

/// Only the thread that begins or ends a session uses these fields.
pub struct Segments {
    ranges: [SegmentRange; 2],
    turn: AtomicUsize,
    /// Whether the current session is the first in its range, so that no thread has an address there.
    is_fresh: AtomicBool,
}

/// The addresses for one segment. Both words are 0 before the first use.
struct SegmentRange {
    at: AtomicUsize,
    len: AtomicUsize,
}

impl SegmentRange {
    const fn new() -> SegmentRange {
        let (at, len) = (AtomicUsize::new(0), AtomicUsize::new(0));
        SegmentRange { at, len }
    }

    fn set(&self, at: usize, len: usize) {
        self.at.store(at, Relaxed); // Relaxed, here and below: one thread uses the ranges
        self.len.store(len, Relaxed);
    }
}

impl Segments {
    pub const fn new() -> Segments {
        Segments {
            ranges: [SegmentRange::new(), SegmentRange::new()],
            turn: AtomicUsize::new(0),
            is_fresh: AtomicBool::new(false),
        }
    }

    fn range(&self) -> &SegmentRange {
        let [first, second] = &self.ranges;
        match self.turn.load(Relaxed) & 1 {
            0 => first,
            _ => second,
        }
    }

    pub fn map(&self, fd: i32, len: usize) -> Result<usize, Errno> {
        let range = self.range();
        let room = range.len.load(Relaxed);
        self.is_fresh.store(room == 0, Relaxed);
        let segment = memory::segment(fd, len, true)?;
        if room == 0 {
            range.set(segment, len);
            return Ok(segment);
        }
        let taken = self.grown(range, len).and_then(|at| {
            memory::take_place(segment, at, len)?;
            Ok(at)
        });
        taken.inspect_err(|_| memory::unmap(segment, len))
    }

    /// Returns a range's address, once it has room for `len` bytes.
    fn grown(&self, range: &SegmentRange, len: usize) -> Result<usize, Errno> {
        let (at, room) = (range.at.load(Relaxed), range.len.load(Relaxed));
        if room < len && memory::extend(at, room, len - room).is_ok() {
            range.set(at, len);
        } else if room < len {
            let longer = len.max(2 * room);
            range.set(memory::private(longer)?, longer);
        }
        Ok(range.at.load(Relaxed))
    }

    pub fn close(&self, at: usize, len: usize) {
        memory::retire_segment(at, len);
        self.turn.fetch_add(1, Relaxed);
    }

    /// Removes the segment of a session that has not begun. Unmaps a range that no thread has seen.
    pub fn give_up(&self, at: usize, len: usize) {
        if self.is_fresh.load(Relaxed) {
            memory::unmap(at, len);
            self.range().set(0, 0);
        } else {
            memory::retire_segment(at, len);
        }
    }

    pub fn forget(&self) {
        self.ranges.iter().for_each(|range| range.set(0, 0));
    }
}
