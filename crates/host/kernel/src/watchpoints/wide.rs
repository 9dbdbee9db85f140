//! The events of all CPUs: one for each variable that is served, on each.

use tiptoe_sys::host::perf::{Breakpoint, On, PerfEvent};

use super::opener::{Opener, cannot_move, cannot_switch_on, open};
use super::slots::{Slots, Watch};
use crate::Error;
use crate::cpus::online_cpus;

/// Events of all CPUs.
#[derive(Debug)]
pub(super) struct Wide(Vec<Armed>);

/// The event of a slot on a CPU.
#[derive(Debug)]
struct Armed {
    event: PerfEvent,
    slot: usize,
    cpu: usize,
    /// How often it came to rest, as far as that is known.
    rests: u64,
    /// It did in this window.
    is_resting: bool,
}

impl Wide {
    /// Opens events that are off, and tell nobody yet, a slot for each of these.
    pub(super) fn open(
        in_kernel: bool,
        slots: &Slots,
        served: &[(Watch, Breakpoint)],
    ) -> Result<Wide, Error> {
        let cpus = online_cpus()?;
        let mut events = Vec::new();
        for (slot, (watch, at)) in served.iter().enumerate() {
            slots.reserve_wide(*watch)?;
            for cpu in &cpus {
                events.push(Armed {
                    event: open(at, On::Cpu(*cpu), in_kernel)?,
                    slot,
                    cpu: *cpu as usize,
                    rests: 0,
                    is_resting: false,
                });
            }
        }
        Ok(Wide(events))
    }

    /// Has a program run at all of them.
    pub(super) fn run(&self, opener: Opener<'_>) -> Result<(), Error> {
        let mut events = self.0.iter();
        events.try_for_each(|armed| opener.run_at(&armed.event))
    }

    /// Switches them on: with a limit each for one hit that its program lets pass.
    pub(super) fn start(&self, is_limited: bool) -> Result<(), Error> {
        let start = |armed: &Armed| match is_limited {
            true => armed.event.refresh(1),
            false => armed.event.enable(),
        };
        self.0.iter().try_for_each(start).map_err(cannot_switch_on)
    }

    /// Wakes those that came to rest.
    pub(super) fn refresh(&mut self) -> Result<(), Error> {
        for armed in &mut self.0 {
            // One that did not rest must not be let pass more than the others.
            if std::mem::take(&mut armed.is_resting) {
                armed.event.refresh(1).map_err(cannot_switch_on)?;
            }
        }
        Ok(())
    }

    /// Notes which came to rest since it was last asked, where the program has noted that for each slot and CPU.
    pub(super) fn note_rests(&mut self, noted: impl Fn(usize, usize) -> u64) {
        for armed in &mut self.0 {
            let rests = noted(armed.slot, armed.cpu);
            armed.is_resting |= rests != armed.rests;
            armed.rests = rests;
        }
    }

    /// Whether an event of a slot rests.
    pub(super) fn is_resting(&self, slot: usize) -> bool {
        self.of(slot).any(|armed| armed.is_resting)
    }

    /// Switches those of a slot off: none comes to rest meanwhile.
    pub(super) fn pause(&self, slot: usize) -> Result<(), Error> {
        let mut events = self.of(slot);
        let off = events.try_for_each(|armed| armed.event.disable());
        off.map_err(cannot_move)
    }

    /// Has a slot that is off serve something else, until it rests again.
    pub(super) fn serve(
        &mut self,
        slot: usize,
        at: &Breakpoint,
        in_kernel: bool,
    ) -> Result<(), Error> {
        for armed in self.0.iter_mut().filter(|armed| armed.slot == slot) {
            let moved = armed.event.move_breakpoint(at, in_kernel, false);
            moved.map_err(cannot_move)?;
            let on = match std::mem::take(&mut armed.is_resting) {
                true => armed.event.refresh(1),
                false => armed.event.enable(),
            };
            on.map_err(cannot_switch_on)?;
        }
        Ok(())
    }

    /// Reads every event on its CPU.
    pub(super) fn reach_cpus(&self) -> std::io::Result<()> {
        let mut events = self.0.iter();
        events.try_for_each(|armed| armed.event.read().map(drop))
    }

    fn of(&self, slot: usize) -> impl Iterator<Item = &Armed> {
        self.0.iter().filter(move |armed| armed.slot == slot)
    }
}
