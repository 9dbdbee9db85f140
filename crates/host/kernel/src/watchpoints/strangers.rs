//! Other processes also hit a watch on all CPUs. A hit costs them as much as the watched process, so they have an
//! allowance (a limit on hits) of the same size. When it is used up, the watch can be moved to its process's threads.

use super::tasks::Tasks;
use super::watch_program::opener;
use super::wide::CpuEvents;
use super::{Events, ThrottleState, Watchpoints, old_values};
use crate::Error;

impl Watchpoints {
    /// Watches the process's threads instead of all CPUs; stores in between are missed. If the watch stays on all CPUs,
    /// returns the reason. On failure nothing is watched.
    pub fn move_to_threads(&mut self) -> Result<Option<Error>, Error> {
        let served = self.serving.clone();
        old_values::begin_gap(&mut self.bpf, &served)?;
        // Frees the registers for the threads' events.
        self.events = Events::None;
        let moved = self.at_threads();
        let (events, failure) = match moved {
            Ok(tasks) => (Events::Tasks(tasks, ThrottleState::default()), None),
            Err(error) => (Events::Cpus(self.at_cpus()?), Some(error)),
        };
        self.events = events;
        self.end_gap(&served)?;
        Ok(failure)
    }

    fn at_threads(&mut self) -> Result<Tasks, Error> {
        let threads = self.process.threads()?.len() as u32;
        self.slots = self.slots.empty_for(threads)?;
        self.slots.book(Some(self.process.pid()), &self.indices())?;
        let opener = opener(&self.bpf, self.sees_kernel)?;
        Tasks::attach(self.process, opener, &self.slots, &self.serving)
    }

    fn at_cpus(&mut self) -> Result<CpuEvents, Error> {
        self.slots = self.slots.empty_for(0)?;
        // If another tiptoe booked registers meanwhile, the kernel decides which gets the registers.
        let _ = self.slots.book(None, &self.indices());
        let wide = CpuEvents::open(self.sees_kernel, &self.slots, &self.serving)?;
        wide.run(opener(&self.bpf, self.sees_kernel)?)?;
        wide.start(self.allowance.is_some())?;
        Ok(wide)
    }

    fn indices(&self) -> Vec<usize> {
        self.serving.iter().map(|(index, _)| *index).collect()
    }
}
