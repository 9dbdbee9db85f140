//! An accounting of debug registers, in memory shared with a process whose threads reserve their own registers.

use std::sync::atomic::AtomicU64;

use tiptoe_breakpoint::{Accounting, Geometry, Kind, Side, Stats};

use super::Watchpoint;
pub use super::bookings::Booking;
use super::futex::{Futex, REGISTERS};
use super::slots::{DEBUGGERS, Slots, Watch};
use crate::Error;
use crate::cpus::online_cpus;

/// An accounting in shared memory.
#[derive(Clone, Copy, Debug)]
pub struct SharedSlots<'a> {
    words: &'a [AtomicU64],
    geometry: Geometry,
}

impl<'a> SharedSlots<'a> {
    /// Returns the accounting in these words.
    pub fn new(words: &'a [AtomicU64], cpus: u32) -> Result<Self, Error> {
        let geometry = Geometry::of_process(cpus).ok_or(Error::NoRoom)?;
        Ok(SharedSlots { words, geometry })
    }

    /// Returns the number of CPUs.
    pub fn cpus() -> Result<u32, Error> {
        Ok(online_cpus()?.into_iter().max().unwrap_or(0) + 1)
    }

    /// Books the `points` with the indexes `serving`. Other tiptoes see these watches until the result is dropped.
    /// Fails if a thread of the process cannot have registers for all; the error names the holders. Leaves one
    /// register to debuggers, unless `takes_all`.
    pub fn begin(
        &self,
        pid: u32,
        takes_all: bool,
        points: &[Watchpoint],
        serving: &[usize],
    ) -> Result<Option<Booking>, Error> {
        let names = points
            .iter()
            .map(|point| (point.name.clone(), point.is_pinned));
        let mut slots = Slots::new(1, 1, names, takes_all)?;
        let served: Vec<Watch> = serving
            .iter()
            .map(|index| Watch::new(*index, &points[*index].at))
            .collect();
        slots.reserve_for(0, &served)?;
        slots.book(Some(pid), serving)?;
        if !takes_all && let Some(accounting) = self.accounting() {
            let left = accounting.reserve_wide(Kind::Data, 1, DEBUGGERS);
            left.map_err(|error| Error::Slots(error.to_string()))?;
        }
        Ok(slots.into_booking())
    }

    fn accounting(&self) -> Option<Accounting<'a, Futex>> {
        Accounting::new(self.geometry, self.words, &Futex)
    }

    /// Returns the statistics of requests for single threads, then of all other requests.
    pub fn stats(&self) -> Result<[Stats; 2], Error> {
        let accounting = self.accounting().ok_or(Error::NoRoom)?;
        Ok([Side::Reader, Side::Writer].map(|side| accounting.stats(side)))
    }
}

const _: () = assert!(REGISTERS == 4);
