//! Counts waits that their thread left by cancellation or a signal handler's jump. No hook runs then, so nobody knows
//! when they ended.

use tiptoe_wire::futex::entry;

use crate::activities::{Activities, Activity};
use crate::calls::Thread;

impl Thread<'_> {
    /// Counts all waits as left. Must be called only if the thread has ended.
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
