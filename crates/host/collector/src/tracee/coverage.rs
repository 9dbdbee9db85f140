//! What is not counted of a process and why, and notes for the user.

use tiptoe_attach::Attached;
use tiptoe_session::{KernelNote, Note, ProcessNote};
use tiptoe_sys::host::attach_progress;

use super::Plan;
use crate::error::{Error, Reason};
use crate::words::session_target;

#[derive(Default)]
pub struct Coverage {
    pub refused: Vec<(String, Reason)>,
    pub notes: Vec<Note>,
    /// Why the agent (tiptoe's library) did not enter, although the request allows it.
    pub left_out: Option<Reason>,
    /// Functions that are missing because the user interrupted the attach.
    pub unattached: usize,
}

impl Coverage {
    pub fn note(&mut self, note: impl Into<Note>) {
        self.notes.push(note.into());
    }

    pub fn refuse(&mut self, refused: impl IntoIterator<Item = (String, Reason)>) {
        self.refused.extend(refused);
    }

    /// Records why the agent did not enter. Adds a note unless locks are watched.
    pub fn leave_out(&mut self, plan: &Plan, pid: Option<u32>, why: Reason) {
        let note = KernelNote::Traces {
            pid,
            why: why.to_string(),
        };
        self.left_out = Some(why);
        self.notes.extend((!plan.locks()).then_some(note.into()));
    }

    pub fn or_agent(&self, error: Error) -> Error {
        match self.left_out.clone() {
            Some(why) => Error::WithoutAgent {
                why,
                error: Box::new(error),
            },
            None => error,
        }
    }

    pub fn is_partial(&self) -> bool {
        self.unattached > 0
    }

    pub fn note_missing(&mut self, target: &Attached, counted: usize) {
        if self.is_partial() {
            self.note(ProcessNote::FunctionsMissing {
                process: session_target(target),
                missing: self.unattached as u64,
                functions: (self.unattached + counted) as u64,
            });
        }
    }
}

pub fn check_broken_off() -> Result<(), Error> {
    match attach_progress::is_broken_off() {
        true => Err(Error::BrokenOff),
        false => Ok(()),
    }
}
