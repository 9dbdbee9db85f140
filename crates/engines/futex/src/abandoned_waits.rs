//! Counts waits that their thread left, by cancellation or a signal handler's jump. No hook runs then, so the end's
//! time is unknown.

use tiptoe_wire::futex::entry;

use crate::activities::{Activities, Activity};
use crate::calls::{FIRST, Thread};

impl Thread<'_> {
    /// Counts all waits as left. Must be called only if the thread has ended.
    #[cold]
    pub fn leaves_all(&self) {
        for wait in Activities::new(self.own()).iter() {
            self.counts_left(&wait);
        }
    }

    pub(crate) fn counts_left(&self, wait: &Activity) {
        let Some(entry) = self.entry_of(wait) else {
            return;
        };
        entry.add(entry::CALLS, 1);
        entry.add(entry::LEFT, 1);
        if wait.operation & FIRST != 0 {
            entry.add(entry::EPISODES, 1);
        }
    }
}
