//! The `tiptoe` command: turns the command line into events for the driver (which runs traces), and prints the
//! driver's session (the result).
//!
//! Only this crate formats errors: a line says what failed, and at most one more line says what to do. The exit
//! status is 2. A closed pipe is no error, so that `tiptoe … | head` succeeds.
#![forbid(unsafe_code)]

mod args;
mod bug;
mod common;
mod counters;
mod doctor;
mod failure;
mod generate;
mod instrument;
mod interrupt;
mod lock;
mod notice;
mod observer;
mod other_command;
mod output;
mod parse;
mod probe;
mod processes;
mod ready;
mod stat;
mod status;
mod target_names;
mod terminal;
mod usage;
mod values;
mod version;
mod watch;

use std::process::ExitCode;

use clap::CommandFactory;

use crate::args::{Cli, Command};
use crate::failure::Failure;

#[global_allocator]
static ALLOCATOR: tiptoe_sys::host::memory::Bounded = tiptoe_sys::host::memory::Bounded;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(terminal::say_panic));
    let cli = match parse::parse() {
        Ok(cli) => cli,
        Err(error) => return usage::report(&error),
    };
    let result = run(cli);
    terminal::line::end();
    result.unwrap_or_else(|failure| {
        interrupt::stay_if_ending();
        failure.report()
    })
}

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    if cli.version.version {
        return version::run(&cli.version);
    }
    let Some(command) = cli.command else {
        return Err(Failure::NoCommand);
    };
    match command {
        Command::Probe(args) => probe::run(*args),
        Command::Lock(args) => lock::run(*args),
        Command::Watch(args) => watch::run(*args),
        Command::Stat(args) => stat::run(*args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Bug(args) => bug::run(&args.folder),
        Command::Generate(args) => generate::run(&args.folder, &Cli::command()),
    }
}
