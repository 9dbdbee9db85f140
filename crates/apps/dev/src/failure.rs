//! Failures, as one line and at most one hint.

use std::process::ExitCode;

use tiptoe_event::Printable;

/// The reason why there are no numbers.
#[derive(Debug)]
pub struct Failure {
    what: String,
    hint: Option<String>,
}

impl Failure {
    /// Returns a failure without a hint. `what` is one line.
    pub fn new(what: impl Into<String>) -> Failure {
        let (what, hint) = (what.into(), None);
        Failure { what, hint }
    }

    /// Adds a hint: one line that says what to do.
    pub fn hint(self, hint: impl Into<String>) -> Failure {
        let hint = Some(hint.into());
        Failure { hint, ..self }
    }

    /// Prints the failure, escaped, because it may quote a file. Returns the exit status, which is that of bad options.
    pub fn report(&self) -> ExitCode {
        eprintln!("error: {}", Printable(&self.what));
        if let Some(hint) = &self.hint {
            eprintln!("hint: {}", Printable(hint));
        }
        ExitCode::from(2)
    }
}
