//! What failed, and what to do about it.

use std::fmt::Display;
use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::terminal;

/// The exit status where tiptoe itself failed.
pub const FAILED: u8 = 2;

/// A failure as the user reads it: at most two lines.
#[derive(Debug)]
pub struct Failure {
    what: String,
    hint: Option<String>,
}

impl Failure {
    /// What failed, in one line.
    pub fn new(what: impl Into<String>) -> Failure {
        Failure {
            what: what.into(),
            hint: None,
        }
    }

    /// With what to do about it, in one line.
    pub fn hint(self, hint: impl Into<String>) -> Failure {
        Failure {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// Something that is part of the plan, and not built.
    pub fn not_yet(what: impl Display, instead: &str) -> Failure {
        Failure::new(format!("{what} is not implemented yet")).hint(instead)
    }

    /// Prints it; the exit status.
    pub fn report(&self) -> ExitCode {
        say(&self.what, self.hint.as_deref());
        ExitCode::from(FAILED)
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

/// What clap has to say, in two lines; `--help` and `--version` in full.
pub fn usage(error: &clap::Error) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        return match error.print() {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Failure::new(format!("standard output cannot be written: {error}")).report()
            }
            // A reader that has gone away has seen enough.
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

/// The first paragraph is what failed. A tip is what to do, unless it says how to pass a mistyped option as a word; without
/// one the command's help is, because clap's usage cannot be typed as it is.
fn two_lines(message: &str) -> (String, String) {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut paragraphs = message.split("\n\n").map(words);
    let what = paragraphs.next().unwrap_or_default();
    let tip = paragraphs.find_map(|text| text.strip_prefix("tip: ").map(str::to_owned));
    let tip = tip.filter(|tip| !tip.starts_with("to pass '"));
    let what = what.strip_prefix("error: ").unwrap_or(&what);
    // The standard library's words for a number with a letter in it.
    let what = what.replace(
        "invalid digit found in string",
        "not a whole number from 0 on",
    );
    (what, tip.unwrap_or_else(help))
}

/// The help of the command that was given, where it was one.
fn help() -> String {
    use clap::CommandFactory;
    let given = std::env::args().nth(1).unwrap_or_default();
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
