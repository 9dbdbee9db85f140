//! Handles hits by other processes.

use tiptoe_event::Via;
use tiptoe_session::{Note, WatchNote};

use super::breakpoints::Breakpoints;
use crate::error::{Error, Reason};
use crate::request::Observer;

#[derive(Debug, Default)]
pub(super) struct ForeignHits {
    /// How many windows other processes' hits used up.
    windows: u64,
    /// Whether the watch moved to threads, or why it could not move.
    moved: Option<Result<(), Reason>>,
}

impl ForeignHits {
    /// Moves the watch to the process's threads, unless the user requested all CPUs.
    pub(super) fn handle_window(
        &mut self,
        via: Via,
        form: &mut dyn Breakpoints,
        observer: &mut dyn Observer,
    ) -> Result<(), Error> {
        self.windows += 1;
        if via != Via::Auto || self.moved.is_some() {
            return Ok(());
        }
        self.moved = Some(form.move_to_threads()?);
        self.note().iter().for_each(|note| observer.note(note));
        Ok(())
    }

    pub(super) fn note(&self) -> Option<Note> {
        let (windows, moved) = (self.windows, self.moved.clone().transpose());
        let note = match moved {
            Ok(Some(())) => WatchNote::MovedToThreads,
            Ok(None) => WatchNote::RestedForOthers { windows, why: None },
            Err(why) => WatchNote::RestedForOthers {
                windows,
                why: Some(why.to_string()),
            },
        };
        (windows > 0).then(|| note.into())
    }
}
