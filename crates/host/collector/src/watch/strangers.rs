//! Other processes that hit the addresses of a watch of all CPUs so often that the watch rests.

use tiptoe_event::Via;

use super::set::Set;
use crate::request::Observer;

/// What was done about them.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    /// Windows in which the watch rested because of them.
    windows: u64,
    /// What the watch did, and why it did not do it.
    moved: Option<Result<(), String>>,
}

impl Strangers {
    /// They have used up what they may: the watch goes on at the threads of its process, where it was not asked for
    /// all CPUs.
    pub(super) fn meet(&mut self, via: Via, set: &mut Set, observer: &mut dyn Observer) {
        self.windows += 1;
        if via != Via::Auto || self.moved.is_some() {
            return;
        }
        let moved = set.move_to_threads().map_err(|error| error.to_string());
        self.moved = Some(moved);
        self.told().iter().for_each(|note| observer.note(note));
    }

    pub(super) fn told(&self) -> Option<String> {
        let what = "other processes hit the same addresses";
        match &self.moved {
            _ if self.windows == 0 => None,
            Some(Ok(())) => Some(format!(
                "{what}: the watch moved from all CPUs to the threads of its process; accesses meanwhile were missed"
            )),
            Some(Err(why)) => Some(format!(
                "{what} in {} windows: the watch rested then ({why})",
                self.windows
            )),
            None => Some(format!(
                "{what} in {} windows: the watch rested then (`--via kernel-task` leaves them out)",
                self.windows
            )),
        }
    }
}
