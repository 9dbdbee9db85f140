//! The addresses of sessions' data segments: two places that take turns and are never unmapped.
//!
//! A thread may be preempted between reading its slab's address and counting there, for any time, and nothing shows
//! when it has finished. So there must be memory at a segment's addresses for good. Private memory replaces the
//! segment when its session closes, and the session after the next reuses the place. A thread that sleeps through all
//! of that counts in another session's slab, but never faults.
//!
//! A place grows at its address. So after any number of sessions, even killed ones, the places are two ranges,
//! neither longer than the longest segment so far.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use tiptoe_sys::raw::Errno;

use crate::memory;

/// The two places. Only one thread begins and ends sessions, so nothing here can race.
pub struct Segments {
    places: [Place; 2],
    turn: AtomicUsize,
    /// Whether this session is the first in its place.
    fresh: AtomicBool,
}

struct Place {
    at: AtomicUsize,
    len: AtomicUsize,
}

impl Place {
    const fn new() -> Place {
        let (at, len) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Place { at, len }
    }

    fn set(&self, at: usize, len: usize) {
        self.at.store(at, Relaxed); // Relaxed: one thread, as all below
        self.len.store(len, Relaxed);
    }
}

impl Segments {
    /// Returns two empty places.
    pub const fn new() -> Segments {
        Segments {
            places: [Place::new(), Place::new()],
            turn: AtomicUsize::new(0),
            fresh: AtomicBool::new(false),
        }
    }

    fn place(&self) -> &Place {
        let [first, second] = &self.places;
        match self.turn.load(Relaxed) & 1 {
            0 => first,
            _ => second,
        }
    }

    /// Maps a session's segment, and returns its address.
    pub fn map(&self, fd: i32, len: usize) -> Result<usize, Errno> {
        let place = self.place();
        let room = place.len.load(Relaxed);
        self.fresh.store(room == 0, Relaxed);
        let segment = memory::segment(fd, len, true)?;
        if room == 0 {
            place.set(segment, len);
            return Ok(segment);
        }
        let taken = self.grown(place, len).and_then(|at| {
            memory::take_place(segment, at, len)?;
            Ok(at)
        });
        taken.inspect_err(|_| memory::unmap(segment, len))
    }

    /// Returns a place's address, once it has room for `len` bytes. If something else is mapped after it, it stays as
    /// it is, and a new place of at least twice its length replaces it.
    fn grown(&self, place: &Place, len: usize) -> Result<usize, Errno> {
        let (at, room) = (place.at.load(Relaxed), place.len.load(Relaxed));
        if room < len && memory::extend(at, room, len - room).is_ok() {
            place.set(at, len);
        } else if room < len {
            let longer = len.max(2 * room);
            place.set(memory::private(longer)?, longer);
        }
        Ok(place.at.load(Relaxed))
    }

    /// Removes the segment of an active session from the program.
    pub fn close(&self, at: usize, len: usize) {
        memory::retire_segment(at, len);
        self.turn.fetch_add(1, Relaxed);
    }

    /// Removes the segment of a session that has not begun. If no thread can know of the place, it is unmapped.
    pub fn give_up(&self, at: usize, len: usize) {
        if self.fresh.load(Relaxed) {
            memory::unmap(at, len);
            self.place().set(0, 0);
        } else {
            memory::retire_segment(at, len);
        }
    }

    /// Forgets places that a fork left in the parent.
    pub fn forget(&self) {
        self.places.iter().for_each(|place| place.set(0, 0));
    }
}
