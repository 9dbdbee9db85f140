//! clap's errors in the form of a [`Failure`].

use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::failure::{FAILED, Failure, NOT_A_NUMBER, PIDS_HINT};
use crate::{processes, terminal};

/// Prints clap's error. Help and version are errors of clap, too. Returns the exit status.
pub fn report(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match error.print() {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Failure::HelpNotWritten(error).report()
            }
            // A reader that closed the pipe, such as `head`, has read enough.
            _ => ExitCode::SUCCESS,
        },
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            error.to_string().lines().for_each(terminal::say);
            ExitCode::from(FAILED)
        }
        _ => failure(&error.to_string()).report(),
    }
}

/// Splits clap's message into what failed (the first paragraph) and a hint. The hint is clap's tip, except the tip to
/// pass a mistyped option as a word. Without a tip, the hint is the command for help, because clap's usage line cannot
/// be run.
fn failure(message: &str) -> Failure {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut paragraphs = message.split("\n\n").map(words);
    let what = paragraphs.next().unwrap_or_default();
    let tip = paragraphs.find_map(|text| text.strip_prefix("tip: ").map(str::to_owned));
    // The first of several tips is the best.
    let tip = tip.map(|tips| tips.split(" tip: ").next().unwrap_or_default().to_owned());
    let tip = tip.filter(|tip| !tip.starts_with("to pass '"));
    let what = what.strip_prefix("error: ").unwrap_or(&what);
    // Replaces std's message for a number that does not parse.
    let what = what.replace("invalid digit found in string", NOT_A_NUMBER);
    let word = what.split('\'').nth(1).unwrap_or_default();
    let is_pid = what.starts_with("unexpected argument") && processes::is_pid(word);
    let hint = || match is_pid && has_pids() {
        true => PIDS_HINT.to_owned(),
        false => help(),
    };
    let hint = tip.unwrap_or_else(hint);
    Failure::Usage { what, hint }
}

fn has_pids() -> bool {
    let mut own = words().take_while(|word| word != "--");
    own.any(|word| word.starts_with("-p") || word == "--pid" || word.starts_with("--pid="))
}

fn words() -> impl Iterator<Item = String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned())
}

fn help() -> String {
    use clap::CommandFactory;
    let given = words().nth(1).unwrap_or_default();
    match crate::args::Cli::command().find_subcommand(&given) {
        Some(command) => format!("tiptoe {} --help", command.get_name()),
        None => "tiptoe --help".to_owned(),
    }
}
