//! Accounts for the debug registers of threads that inherit breakpoints, as [`Births`] reports them. A new thread
//! already has its registers, so a reservation that the accounting refuses is only counted.

use std::collections::HashSet;

use tiptoe_breakpoint::Stats;

use super::births::{Births, ThreadChange};
use super::slots::{Slots, Watch};
use super::{Events, Watchpoints};
use crate::Error;

/// The threads that could not be accounted for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unreserved {
    /// Threads that inherited events.
    pub threads: u64,
    /// Their debug registers.
    pub registers: u64,
}

#[derive(Debug)]
pub(super) struct Heirs {
    births: Births,
    booked: HashSet<u32>,
    unreserved: Unreserved,
}

impl Heirs {
    /// The threads in `booked` already have reservations.
    pub(super) fn begin(
        mut births: Births,
        booked: HashSet<u32>,
        slots: &Slots,
        watches: &[Watch],
    ) -> Result<Heirs, Error> {
        let living = births.finish()?;
        let mut heirs = Heirs {
            births,
            booked,
            unreserved: Unreserved::default(),
        };
        for tid in &living {
            heirs.book(*tid, slots, watches);
        }
        heirs.keep(&living, slots, watches)?;
        Ok(heirs)
    }

    pub(super) fn booked(&self) -> impl Iterator<Item = u32> {
        self.booked.iter().copied()
    }

    fn follow(&mut self, slots: &Slots, watches: &[Watch]) -> Result<(), Error> {
        let (changes, lost) = self.births.changes()?;
        for change in changes {
            match change {
                ThreadChange::Born(tid) => self.book(tid, slots, watches),
                ThreadChange::Ended(tid) => self.release(tid, slots, watches)?,
            }
        }
        self.refuse(lost.births, watches);
        if lost.ends > 0 {
            let living = self.births.threads_with_events()?;
            self.keep(&living, slots, watches)?;
        }
        Ok(())
    }

    fn book(&mut self, tid: u32, slots: &Slots, watches: &[Watch]) {
        if self.booked.contains(&tid) {
            return;
        }
        match slots.reserve_for(tid, watches) {
            Ok(()) => {
                self.booked.insert(tid);
            }
            Err(_) => self.refuse(1, watches),
        }
    }

    fn release(&mut self, tid: u32, slots: &Slots, watches: &[Watch]) -> Result<(), Error> {
        match self.booked.remove(&tid) {
            true => slots.release_for(tid, watches),
            false => Ok(()),
        }
    }

    fn keep(
        &mut self,
        living: &HashSet<u32>,
        slots: &Slots,
        watches: &[Watch],
    ) -> Result<(), Error> {
        let ended: Vec<u32> = self.booked.difference(living).copied().collect();
        ended
            .into_iter()
            .try_for_each(|tid| self.release(tid, slots, watches))
    }

    fn refuse(&mut self, threads: u64, watches: &[Watch]) {
        self.unreserved.threads += threads;
        self.unreserved.registers += threads * watches.len() as u64;
    }
}

impl Watchpoints {
    /// Accounts for the registers of threads that were born or ended since the last call. Returns all failures so far.
    pub fn follow_births(&mut self) -> Result<Unreserved, Error> {
        let watches = Watch::all(&self.serving);
        let Events::Tasks(tasks, _) = &mut self.events else {
            return Ok(Unreserved::default());
        };
        tasks.heirs.follow(&self.slots, &watches)?;
        Ok(tasks.heirs.unreserved)
    }

    /// Returns tiptoe's reservations of debug registers, for threads and for CPUs.
    pub fn reservations(&self) -> Result<[Stats; 2], Error> {
        self.slots.stats()
    }
}
