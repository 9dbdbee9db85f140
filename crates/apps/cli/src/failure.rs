//! Failures as the user reads them, and clap's errors in the same form.

use std::fmt::Display;
use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::{processes, terminal};

/// The exit status if tiptoe itself failed.
pub const FAILED: u8 = 2;

/// A failure: one line that says what failed, and at most one that says what to do.
#[derive(Debug)]
pub struct Failure {
    what: String,
    hint: Option<String>,
}

impl Failure {
    /// Returns a failure without a hint. `what` says in one line what failed.
    pub fn new(what: impl Into<String>) -> Failure {
        Failure {
            what: what.into(),
            hint: None,
        }
    }

    /// Adds a hint: one line that says what to do.
    pub fn hint(self, hint: impl Into<String>) -> Failure {
        Failure {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// Returns the failure for an option that is reserved, but not implemented; `instead` is the hint.
    pub fn not_yet(what: impl Display, instead: &str) -> Failure {
        Failure::new(format!("{what} is not implemented yet")).hint(instead)
    }

    /// Prints the failure. Returns the exit status.
    pub fn report(&self) -> ExitCode {
        say(&self.what, self.hint.as_deref());
        ExitCode::from(FAILED)
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Failure {
        Failure::new(format!("the report has no JSON form: {error}"))
    }
}

impl From<tiptoe_collector::Error> for Failure {
    fn from(error: tiptoe_collector::Error) -> Failure {
        Failure {
            what: error.to_string(),
            hint: error.hint(),
        }
    }
}

/// Prints clap's error in the form of a [`Failure`]. Help and the version, which are errors too, are printed as clap
/// formats them. Returns the exit status.
pub fn usage(error: &clap::Error) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        return match error.print() {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Failure::new(format!("standard output cannot be written: {error}")).report()
            }
            // A reader that has closed the pipe, such as `head`, has read enough.
            _ => ExitCode::SUCCESS,
        };
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        error.to_string().lines().for_each(terminal::say);
        return ExitCode::from(FAILED);
    }
    let (what, hint) = two_lines(&error.to_string());
    say(&what, Some(&hint));
    ExitCode::from(FAILED)
}

/// Splits clap's message into what failed (its first paragraph) and a hint (its tip). Drops a tip
/// that says how to pass a mistyped option as a word. Without a tip the hint is the command's help,
/// because clap's usage line cannot be typed as it is; after `-p`, an unexpected number is taken for
/// a process id.
fn two_lines(message: &str) -> (String, String) {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut paragraphs = message.split("\n\n").map(words);
    let what = paragraphs.next().unwrap_or_default();
    let tip = paragraphs.find_map(|text| text.strip_prefix("tip: ").map(str::to_owned));
    // Of several tips, which are in one paragraph, the first is the best.
    let tip = tip.map(|tips| tips.split(" tip: ").next().unwrap_or_default().to_owned());
    let tip = tip.filter(|tip| !tip.starts_with("to pass '"));
    let what = what.strip_prefix("error: ").unwrap_or(&what);
    // Replaces the standard library's message for a number that does not parse.
    let what = what.replace(
        "invalid digit found in string",
        "not a whole number from 0 on",
    );
    let word = what.split('\'').nth(1).unwrap_or_default();
    let is_pid = what.starts_with("unexpected argument") && processes::is_pid(word);
    let hint = || match is_pid && has_pids() {
        true => processes::LIST_HINT.to_owned(),
        false => help(),
    };
    let hint = tip.unwrap_or_else(hint);
    (what, hint)
}

/// Returns whether the command line has `-p`.
fn has_pids() -> bool {
    let mut own = words().take_while(|word| word != "--");
    own.any(|word| word.starts_with("-p") || word == "--pid" || word.starts_with("--pid="))
}

/// Returns the words of the command line, which need not be UTF-8.
fn words() -> impl Iterator<Item = String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned())
}

/// Returns the command line for the given command's help, or for all help if there is no such
/// command.
fn help() -> String {
    use clap::CommandFactory;
    let given = words().nth(1).unwrap_or_default();
    match crate::args::Cli::command().find_subcommand(&given) {
        Some(command) => format!("tiptoe {} --help", command.get_name()),
        None => "tiptoe --help".to_owned(),
    }
}

fn say(what: &str, hint: Option<&str>) {
    terminal::say(&format!("error: {what}"));
    if let Some(hint) = hint {
        terminal::say(&format!("hint: {hint}"));
    }
}
