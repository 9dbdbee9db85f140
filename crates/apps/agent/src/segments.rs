//! Where the data segments of sessions are: two places that take turns, and stay.
//!
//! A thread may be stopped between reading its slab's address and counting there for as
//! long as the machine likes, and nothing tells when it is past that. So the addresses of
//! a segment are memory for good: private memory takes the segment's place when its
//! session closes, and the session after the next takes the place again. A thread that
//! sleeps through all of that counts in a slab of a session not its own; it never faults.
//!
//! A place grows where it is. So after any number of sessions, killed ones among them, the places are two
//! ranges, neither longer than the longest segment that there ever was.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use tiptoe_sys::raw::Errno;

use crate::memory;

/// The two places. One thread begins and ends sessions, so nothing here is raced for.
pub struct Segments {
    places: [Place; 2],
    turn: AtomicUsize,
    /// No session before this one had the place.
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
        self.at.store(at, Relaxed); // one thread, as all below
        self.len.store(len, Relaxed);
    }
}

impl Segments {
    /// None yet.
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

    /// Maps a session's segment, and gives its address.
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

    /// A place's address, once it has room for `len` bytes. Where something else is after it, it stays as it is,
    /// and another of at least twice its length follows it.
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

    /// Takes the segment of a session that was on out of the program.
    pub fn close(&self, at: usize, len: usize) {
        memory::retire_segment(at, len);
        self.turn.fetch_add(1, Relaxed);
    }

    /// The same for a session that has not begun: where no thread can know of the place,
    /// nothing of it stays.
    pub fn give_up(&self, at: usize, len: usize) {
        if self.fresh.load(Relaxed) {
            memory::unmap(at, len);
            self.place().set(0, 0);
        } else {
            memory::retire_segment(at, len);
        }
    }

    /// Forgets places that a fork left behind in the parent.
    pub fn forget(&self) {
        self.places.iter().for_each(|place| place.set(0, 0));
    }
}
