//! Counts waits that never returned, because the thread was cancelled or a signal handler jumped out. No hook runs
//! after such a wait, so its end is unknown.

use tiptoe_wire::futex::entry;

use crate::activities::{Activities, Activity};
use crate::calls::Thread;

impl Thread<'_> {
    /// Counts the waits in progress as left. The thread must have ended.
    #[cold]
    pub fn leaves_all(&self) {
        for wait in Activities::new(self.own()).iter() {
            self.counts_left(&wait);
        }
    }

    pub(crate) fn counts_left(&self, wait: &Activity) {
        self.count(wait, entry::LEFT);
    }
}
