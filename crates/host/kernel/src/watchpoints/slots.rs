//! Accounts for the debug registers of tiptoe's watches. Registers are reserved before events are opened, so that a
//! refusal names the watches in the way and leaves nothing open.

use std::fmt;
use std::sync::atomic::AtomicU64;

use tiptoe_breakpoint::{
    Accounting, Error as AccountingError, Geometry, Holder, Kind, Registers, Replacement, Request,
    Side, Stats, Target,
};
use tiptoe_sys::host::perf::{Access, Breakpoint};

use super::bookings::{self, Booking};
use super::futex::{Futex, REGISTERS};
use crate::Error;

/// The holder of the register left to debuggers.
pub(super) const DEBUGGERS: u64 = u64::MAX;
const MORE: u32 = 1 << 14;

#[derive(Debug)]
pub(super) struct Slots {
    geometry: Geometry,
    words: Vec<AtomicU64>,
    names: Vec<String>,
    pinned: Vec<bool>,
    takes_all: bool,
    booking: Option<Booking>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    pub(super) index: usize,
    pub(super) kind: Kind,
}

impl Watch {
    pub(super) fn new(index: usize, at: &Breakpoint) -> Watch {
        let kind = match at.access {
            Access::Execute => Kind::Instruction,
            Access::Write | Access::ReadWrite => Kind::Data,
        };
        Watch { index, kind }
    }

    pub(super) fn all(serving: &[(usize, Breakpoint)]) -> Vec<Watch> {
        let watch = |(index, at): &(usize, Breakpoint)| Watch::new(*index, at);
        serving.iter().map(watch).collect()
    }

    fn holder(self) -> u64 {
        self.index as u64
    }

    fn of_thread(self, tid: u32) -> Request {
        let target = Target::Task {
            task: u64::from(tid),
            cpu: None,
        };
        Request::new(target, self.kind, self.holder())
    }
}

impl Slots {
    /// `threads` is 0 for events of CPUs. One register is left to debuggers, unless `takes_all`.
    pub(super) fn new(
        cpus: u32,
        threads: u32,
        watches: impl Iterator<Item = (String, bool)>,
        takes_all: bool,
    ) -> Result<Slots, Error> {
        let (names, pinned) = watches.unzip();
        let reservations = match threads {
            0 => 1,
            threads => threads.saturating_mul(2 * REGISTERS).saturating_add(MORE),
        };
        let geometry = Geometry::new(cpus, Registers::Mixed(REGISTERS), reservations);
        let geometry = geometry.ok_or(Error::NoRoom)?;
        let slots = Slots {
            geometry,
            words: std::iter::repeat_with(AtomicU64::default)
                .take(geometry.words())
                .collect(),
            names,
            pinned,
            takes_all,
            booking: None,
        };
        if !takes_all {
            slots.account(|all| all.reserve_wide(Kind::Data, 1, DEBUGGERS))?;
        }
        Ok(slots)
    }

    pub(super) fn book(&mut self, of_process: Option<u32>, serving: &[usize]) -> Result<(), Error> {
        let takes_turns = serving.len() < self.names.len();
        let name = |index: &usize| match (&self.names[*index], self.pinned[*index]) {
            (name, false) if takes_turns => format!("{name} and others by turns"),
            (name, _) => name.clone(),
        };
        self.booking = bookings::book(of_process, serving.iter().map(name).collect())?;
        Ok(())
    }

    pub(super) fn into_booking(self) -> Option<Booking> {
        self.booking
    }

    pub(super) fn empty_for(&self, threads: u32) -> Result<Slots, Error> {
        let names = self.names.iter().cloned();
        let watches = names.zip(self.pinned.iter().copied());
        Slots::new(self.geometry.cpus(), threads, watches, self.takes_all)
    }

    fn accounting(&self) -> Result<Accounting<'_, Futex>, Error> {
        Accounting::new(self.geometry, &self.words, &Futex).ok_or(Error::NoRoom)
    }

    fn account(
        &self,
        change: impl FnOnce(&Accounting<'_, Futex>) -> Result<(), AccountingError>,
    ) -> Result<(), Error> {
        change(&self.accounting()?).map_err(|error| self.explain(&error))
    }

    /// Reserves a register on all CPUs, or on none.
    pub(super) fn reserve_wide(&self, watch: Watch) -> Result<(), Error> {
        self.account(|all| all.reserve_wide(watch.kind, 1, watch.holder()))
    }

    /// Gives one watch's register to another, on all CPUs or on none.
    pub(super) fn move_wide(&self, from: Watch, to: Watch) -> Result<(), Error> {
        let request =
            |watch: Watch, cpu| Request::new(Target::Cpu(cpu), watch.kind, watch.holder());
        let cpus = 0..self.geometry.cpus();
        let replacements: Vec<Replacement> = cpus
            .map(|cpu| Replacement {
                old: request(from, cpu),
                new: request(to, cpu),
            })
            .collect();
        self.account(|all| all.modify_all(&replacements))
    }

    /// Reserves a register of a thread for each watch, or none.
    pub(super) fn reserve_for(&self, tid: u32, watches: &[Watch]) -> Result<(), Error> {
        let accounting = self.accounting()?;
        for (count, watch) in watches.iter().enumerate() {
            if let Err(error) = accounting.reserve(&watch.of_thread(tid)) {
                self.release_for(tid, &watches[..count])?;
                return Err(self.explain(&error));
            }
        }
        Ok(())
    }

    pub(super) fn release_for(&self, tid: u32, watches: &[Watch]) -> Result<(), Error> {
        let mut requests = watches.iter().map(|watch| watch.of_thread(tid));
        self.account(|all| requests.try_for_each(|request| all.release(&request)))
    }

    pub(super) fn move_for(&self, tid: u32, from: Watch, to: Watch) -> Result<(), Error> {
        self.account(|all| all.modify(&from.of_thread(tid), &to.of_thread(tid)))
    }

    pub(super) fn stats(&self) -> Result<[Stats; 2], Error> {
        let accounting = self.accounting()?;
        Ok([Side::Reader, Side::Writer].map(|side| accounting.stats(side)))
    }

    fn explain(&self, error: &AccountingError) -> Error {
        Error::Slots(match error {
            AccountingError::NoSlot(conflict) => conflict
                .describe(|holder, f| self.name(holder, f))
                .to_string(),
            other => other.to_string(),
        })
    }

    fn name(&self, holder: &Holder, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(name) = self.names.get(holder.id as usize) else {
            return f.write_str("debuggers (one is left to them)");
        };
        match holder.is_wide {
            true => write!(f, "cpu-wide '{name}'")?,
            false => write!(f, "watch '{name}'")?,
        }
        match self.pinned[holder.id as usize] {
            true => f.write_str(" (pinned)"),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(takes_all: bool) -> Slots {
        let names = ["a", "b", "c", "d", "e"];
        let watches = names.map(|name| (name.to_owned(), name < "c"));
        Slots::new(2, 10, watches.into_iter(), takes_all).expect("sane numbers")
    }

    fn watch(index: usize) -> Watch {
        let kind = Kind::Data;
        Watch { index, kind }
    }

    #[test]
    fn the_holder_in_the_way_is_named() {
        let all = slots(true);
        for index in 0..4 {
            all.reserve_wide(watch(index)).expect("there is room");
        }
        assert_eq!(
            all.reserve_for(7, &[watch(4)]).unwrap_err().to_string(),
            "no debug register left on cpu 0 for thread 7: held by cpu-wide 'a' (pinned), cpu-wide 'b' (pinned), \
             cpu-wide 'c', cpu-wide 'd'"
        );
        let three = slots(false);
        let watches = [0, 1, 2].map(watch);
        three.reserve_for(7, &watches).expect("there is room");
        let refused = three.reserve_for(7, &[watch(3)]).unwrap_err().to_string();
        assert!(
            refused.contains("'a' (pinned)") && refused.contains("debuggers (one is left to them)"),
            "{refused}"
        );
        three.release_for(7, &watches).expect("it was held");
        three.reserve_for(7, &[watch(3)]).expect("there is room");
    }

    #[test]
    fn a_register_goes_from_one_watch_to_another() {
        let slots = slots(true);
        slots.reserve_wide(watch(0)).expect("there is room");
        slots.move_wide(watch(0), watch(1)).expect("it was held");
        assert!(slots.move_wide(watch(0), watch(2)).is_err());
        slots.reserve_for(7, &[watch(2)]).expect("there is room");
        slots.move_for(7, watch(2), watch(3)).expect("it was held");
        let [threads, cpus] = slots.stats().expect("sane numbers");
        assert_eq!((threads.reservations, cpus.reservations), (1, 2));
    }
}
