//! What enables a missing thing, and `tiptoe doctor --fix`.
//!
//! INVARIANT: `--fix` runs only constant commands, because it runs as root and text from this machine, such as a
//! path, could be crafted to do harm.

use std::fmt;
use std::process::{Command, ExitCode};

use serde::Serialize;

use super::check_result::CheckResult;
use crate::failure::Failure;
use crate::notice::Notice;
use crate::terminal;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fix {
    /// Text for the user, on which `--fix` does not act.
    Advice(String),
    /// A command that `--fix` runs as root.
    Command(&'static [&'static str]),
}

impl fmt::Display for Fix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fix::Advice(words) => f.write_str(words),
            Fix::Command(words) => write!(f, "sudo {}", words.join(" ")),
        }
    }
}

impl Serialize for Fix {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Prints and runs each command once, until one fails. Fails if there are commands and the user is not root.
pub fn run(rows: &[CheckResult], uid: u32) -> Result<ExitCode, Failure> {
    let mut commands: Vec<&[&'static str]> = Vec::new();
    for row in rows {
        if let Some(Fix::Command(words)) = row.fix
            && !commands.contains(&words)
        {
            commands.push(words);
        }
    }
    if commands.is_empty() {
        terminal::say(Notice::NothingToFix);
        return Ok(ExitCode::SUCCESS);
    }
    if uid != 0 {
        return Err(Failure::NotRoot);
    }
    for words in commands {
        run_one(words)?;
    }
    terminal::say(Notice::Fixed);
    Ok(ExitCode::SUCCESS)
}

fn run_one(words: &[&'static str]) -> Result<(), Failure> {
    let line = words.join(" ");
    terminal::say(Notice::Running(&line));
    let (program, arguments) = words.split_first().expect("a command has a name");
    let status = Command::new(program).args(arguments).status();
    let status = status.map_err(|error| Failure::FixNotRun { program, error })?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::FixFailed { line, status }),
    }
}
