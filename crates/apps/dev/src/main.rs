//! The `tiptoe-dev` command, for developers of tiptoe. No package contains it.
#![forbid(unsafe_code)]

mod args;
mod bench;
mod failure;
mod plan;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::failure::Failure;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Bench(args) => bench::run(&args),
        Command::Plan(args) => plan::run(&args),
    };
    tiptoe_dev::stay_if_ending();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// A closed pipe is no error.
fn print(report: &str) -> Result<(), Failure> {
    use std::io::{ErrorKind, Write};
    match std::io::stdout().write_all(report.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::NotPrinted(error)),
        _ => Ok(()),
    }
}
