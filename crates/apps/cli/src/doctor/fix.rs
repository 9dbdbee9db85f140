//! `tiptoe doctor --fix`: runs the commands that enable missing things.

use std::process::{Command, ExitCode};

use super::check_result::{CheckResult, Fix};
use crate::failure::Failure;
use crate::notice::Notice;
use crate::terminal;

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
