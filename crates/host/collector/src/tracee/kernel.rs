//! The probes of a process that the kernel counts instead of the agent (tiptoe's library).

use std::collections::HashSet;
use std::time::Instant;

use tiptoe_attach::Attached;
use tiptoe_event::Reading;
use tiptoe_kernel::Step;
use tiptoe_session::{KernelNote, Note};

use super::Counter;
use crate::error::Error;
use crate::module::FileKey;
use crate::words::session_target;
use throttle::{Throttle, Uprobes};

mod opening;
mod throttle;

pub use opening::KernelOpening;

pub struct KernelCounter {
    pub counter: Counter,
    index: usize,
    pub step: Step,
}

#[derive(Default)]
pub struct KernelProbes {
    uprobes: Option<Uprobes>,
    pub counters: Vec<KernelCounter>,
    /// Places in files whose uprobes count in all mappings of the file.
    pub places: HashSet<(FileKey, u64)>,
}

impl KernelProbes {
    pub fn read(&self) -> Result<Vec<Reading>, Error> {
        let read = match &self.uprobes {
            Some(uprobes) => uprobes.set.read()?,
            None => Vec::new(),
        };
        let reading = |one: &KernelCounter| read.get(one.index).copied().unwrap_or_default();
        Ok(self.counters.iter().map(reading).collect())
    }

    pub fn is_throttled(&self) -> bool {
        self.uprobes.as_ref().is_some_and(|all| all.is_throttled)
    }

    /// Returns whether the probes have a budget.
    pub fn halve_budget(&mut self) -> bool {
        let throttle = self.uprobes.as_mut().and_then(|all| all.throttle.as_mut());
        throttle.map(Throttle::halve_budget).is_some()
    }

    /// Closes probes that exceed the budget. Returns a note when this happens for the first time.
    pub fn throttle(&mut self, target: &Attached, now: Instant) -> Option<KernelNote> {
        let place = self.uprobes.as_mut()?.keep_budget(target, now)?;
        let closed = self.counters.iter().find(|one| one.index == place)?;
        let event = closed.counter.event.clone();
        Some(KernelNote::InWindows { event })
    }

    pub fn next_throttle(&self) -> Option<Instant> {
        let throttle = self.uprobes.as_ref()?.throttle.as_ref()?;
        Some(throttle.next)
    }

    /// The counts stay readable.
    pub fn close(&mut self) {
        if let Some(uprobes) = &mut self.uprobes {
            uprobes.set.close_all();
            uprobes.throttle = None;
        }
    }

    /// Returns a note if the process called exec. Without an agent, the trace does not end at the exec, so the new
    /// program was counted, too.
    pub fn went_on(&self, target: &Attached) -> Option<Note> {
        let uprobes = self.uprobes.as_ref()?;
        let process = || session_target(target);
        (uprobes.set.has_execed()).then(|| KernelNote::CountedOn { process: process() }.into())
    }
}
