//! An attach that the user breaks off: what is attached by then counts, and is reported.

use tiptoe_attach::phase::Phase;
use tiptoe_session::ProcessNote;
use tiptoe_sys::host::attach_progress;

use super::Tracee;
use crate::error::Error;
use crate::words::session_target;

/// Fails if the user has broken the attach off.
pub(super) fn check() -> Result<(), Error> {
    match attach_progress::is_broken_off() {
        true => Err(Error::BrokenOff),
        false => Ok(()),
    }
}

impl Tracee {
    /// Returns whether functions are missing because the user broke the attach off.
    pub fn is_partial(&self) -> bool {
        self.coverage.unattached > 0
    }

    /// Notes that a part of the functions counts. From now on a signal must not end tiptoe before the report.
    pub(super) fn note_begun(&self) {
        // A command has not begun yet, and never will.
        if Phase::now() == Phase::Preparing && !self.target.is_command() {
            Phase::Attaching.begin();
        }
    }

    /// Notes how many functions are missing.
    pub(super) fn note_broken_off(&mut self) {
        if self.is_partial() {
            let note = ProcessNote::FunctionsMissing {
                process: session_target(&self.target),
                missing: self.coverage.unattached as u64,
                functions: (self.coverage.unattached + self.counters.len()) as u64,
            };
            self.coverage.note(note);
        }
    }
}
