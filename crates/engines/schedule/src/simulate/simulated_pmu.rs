use alloc::vec::Vec;

use crate::{Event, NoUsableSlot, Pmu};

#[derive(Clone, Debug)]
pub(crate) struct SimulatedPmu {
    slots: u32,
    operation_ns: u64,
    work: u64,
    pub(crate) added: u64,
    pub(crate) deleted: u64,
    before: u64,
    events: Vec<EventCount>,
}

#[derive(Clone, Copy, Debug, Default)]
struct EventCount {
    count: u64,
    /// The PMU's `work` when the event was added.
    base: u64,
    is_on: bool,
    /// The number of the operation that deleted the event.
    out_at: u64,
    blind_ns: u64,
}

impl SimulatedPmu {
    pub(crate) fn new(slots: u32, operation_ns: u64) -> SimulatedPmu {
        SimulatedPmu {
            slots,
            operation_ns,
            work: 0,
            added: 0,
            deleted: 0,
            before: 0,
            events: Vec::new(),
        }
    }

    /// Resets the counts of operations, because the events' first additions belong to no switch.
    pub(crate) fn begin(&mut self) {
        (self.added, self.deleted, self.before) = (0, 0, 0);
    }

    pub(crate) fn switch(&mut self) {
        self.before = self.added + self.deleted;
    }

    pub(crate) fn work(&mut self, work: u64) {
        self.work += work;
    }

    pub(crate) fn count(&self, event: Event) -> u64 {
        let seen = self.seen(event);
        let since = if seen.is_on { self.work - seen.base } else { 0 };
        seen.count + since
    }

    pub(crate) fn blind_ns(&self, event: Event) -> u64 {
        self.seen(event).blind_ns
    }

    fn seen(&self, event: Event) -> EventCount {
        let seen = self.events.get(event.0 as usize);
        seen.copied().unwrap_or_default()
    }

    fn seen_mut(&mut self, event: Event) -> &mut EventCount {
        let at = event.0 as usize;
        if self.events.len() <= at {
            self.events.resize(at + 1, EventCount::default());
        }
        &mut self.events[at]
    }
}

impl Pmu for SimulatedPmu {
    fn slots(&self) -> u32 {
        self.slots
    }

    fn add(&mut self, event: Event) -> Result<(), NoUsableSlot> {
        self.added += 1;
        let (work, before, operation_ns) = (self.work, self.before, self.operation_ns);
        let now = self.added + self.deleted;
        let seen = self.seen_mut(event);
        // If an earlier switch deleted the event, its group's times already show the wait.
        if seen.out_at > before {
            seen.blind_ns += (now - seen.out_at) * operation_ns;
        }
        (seen.is_on, seen.base) = (true, work);
        Ok(())
    }

    fn delete(&mut self, event: Event) {
        self.deleted += 1;
        let (work, now) = (self.work, self.added + self.deleted);
        let seen = self.seen_mut(event);
        seen.count += work - seen.base;
        (seen.is_on, seen.out_at) = (false, now);
    }
}
