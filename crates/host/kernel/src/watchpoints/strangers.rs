//! Other processes that hit the addresses of a watch on all CPUs. A hit costs them as much as the watched process, so
//! they have an allowance of the same size. When it is used up, the watch can continue on its process's threads only.

use tiptoe_sys::host::perf::Breakpoint;

use super::slots::Watch;
use super::tasks::Tasks;
use super::watch_program::opener;
use super::wide::CpuEvents;
use super::{Events, ThrottleState, Watchpoints, old_values};
use crate::Error;

impl Watchpoints {
    /// Watches the process's threads instead of all CPUs; stores in between are missed. Returns why the watch stays on
    /// all CPUs, if it does. On failure nothing is watched.
    pub fn move_to_threads(&mut self) -> Result<Option<Error>, Error> {
        let served = self.served();
        let variables: Vec<u32> = served.iter().map(|(index, _)| *index).collect();
        old_values::begin_gap(&mut self.bpf, &variables)?;
        // Frees the registers for the threads' events.
        self.events = Events::None;
        let moved = self.at_threads();
        let (events, failure) = match moved {
            Ok(tasks) => (Events::Tasks(tasks, ThrottleState::default()), None),
            Err(error) => (Events::Cpus(self.at_cpus()?), Some(error)),
        };
        self.events = events;
        old_values::end_gap(&mut self.bpf, &self.memory, &served, || {
            self.events.reach_cpus()
        })?;
        Ok(failure)
    }

    fn at_threads(&mut self) -> Result<Tasks, Error> {
        let threads = self.process.threads()?.len() as u32;
        self.slots = self.slots.empty_for(threads)?;
        self.slots.book(Some(self.process.pid()), &self.indices())?;
        let opener = opener(&self.bpf, self.sees_kernel)?;
        Tasks::attach(self.process, opener, &self.slots, self.watches())
    }

    fn at_cpus(&mut self) -> Result<CpuEvents, Error> {
        self.slots = self.slots.empty_for(0)?;
        // If another tiptoe booked in between, the kernel decides.
        let _ = self.slots.book(None, &self.indices());
        let wide = CpuEvents::open(self.sees_kernel, &self.slots, &self.watches())?;
        wide.run(opener(&self.bpf, self.sees_kernel)?)?;
        wide.start(self.allowance.is_some())?;
        Ok(wide)
    }

    pub(super) fn served(&self) -> Vec<(u32, Breakpoint)> {
        let served = self.serving.iter();
        served.map(|(index, at)| (*index as u32, *at)).collect()
    }

    fn indices(&self) -> Vec<usize> {
        self.serving.iter().map(|(index, _)| *index).collect()
    }

    pub(super) fn watches(&self) -> Vec<(Watch, Breakpoint)> {
        let serving = self.serving.iter();
        serving
            .map(|(index, at)| (Watch::of(*index, self.kinds[*index]), *at))
            .collect()
    }
}
