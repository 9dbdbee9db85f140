//! Breakpoint events on all CPUs: one for each CPU and served variable (with a debug register).

use tiptoe_sys::host::perf::{Breakpoint, CountedOn, PerfEvent};

use super::opener::{Opener, cannot_move, cannot_switch_on, open};
use super::slots::{Slots, Watch};
use crate::Error;
use crate::cpus::online_cpus;

#[derive(Debug)]
pub(super) struct CpuEvents(Vec<CpuEvent>);

#[derive(Debug)]
struct CpuEvent {
    event: PerfEvent,
    slot: usize,
    cpu: usize,
    rests: u64,
    /// Whether the event stopped in this period of the allowance.
    is_resting: bool,
}

impl CpuEvents {
    /// Opens events, disabled and without a program.
    pub(super) fn open(
        in_kernel: bool,
        slots: &Slots,
        served: &[(usize, Breakpoint)],
    ) -> Result<CpuEvents, Error> {
        let cpus = online_cpus()?;
        let mut events = Vec::new();
        for (slot, (index, at)) in served.iter().enumerate() {
            slots.reserve_wide(Watch::new(*index, at))?;
            for cpu in &cpus {
                events.push(CpuEvent {
                    event: open(at, CountedOn::Cpu(*cpu), in_kernel)?,
                    slot,
                    cpu: *cpu as usize,
                    rests: 0,
                    is_resting: false,
                });
            }
        }
        Ok(CpuEvents(events))
    }

    pub(super) fn run(&self, opener: Opener<'_>) -> Result<(), Error> {
        let mut events = self.0.iter();
        events.try_for_each(|armed| opener.run_at(&armed.event))
    }

    /// Enables all events. With a limit, an event stops once its program returns 1.
    pub(super) fn start(&self, is_limited: bool) -> Result<(), Error> {
        let start = |armed: &CpuEvent| match is_limited {
            true => armed.event.refresh(1),
            false => armed.event.enable(),
        };
        self.0.iter().try_for_each(start).map_err(cannot_switch_on)
    }

    pub(super) fn refresh(&mut self) -> Result<(), Error> {
        for armed in &mut self.0 {
            // An event that did not stop must not be refreshed, because that would raise its limit above other
            // events'.
            if std::mem::take(&mut armed.is_resting) {
                armed.event.refresh(1).map_err(cannot_switch_on)?;
            }
        }
        Ok(())
    }

    pub(super) fn note_rests(&mut self, noted: impl Fn(usize, usize) -> u64) {
        for armed in &mut self.0 {
            let rests = noted(armed.slot, armed.cpu);
            armed.is_resting |= rests != armed.rests;
            armed.rests = rests;
        }
    }

    pub(super) fn is_resting(&self, slot: usize) -> bool {
        self.of(slot).any(|armed| armed.is_resting)
    }

    /// Disables the events of a slot, so that none stops between a reading of `rests` and [`CpuEvents::serve`].
    pub(super) fn pause(&self, slot: usize) -> Result<(), Error> {
        let mut events = self.of(slot);
        let off = events.try_for_each(|armed| armed.event.disable());
        off.map_err(cannot_move)
    }

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

    pub(super) fn reach_cpus(&self) -> std::io::Result<()> {
        let mut events = self.0.iter();
        events.try_for_each(|armed| armed.event.read().map(drop))
    }

    fn of(&self, slot: usize) -> impl Iterator<Item = &CpuEvent> {
        self.0.iter().filter(move |armed| armed.slot == slot)
    }
}
