//! `tiptoe --version`, and with `--verbose` what this command was built from.

use std::process::ExitCode;

use clap::Args;

use crate::failure::Failure;
use crate::output::Output;

/// Rows that the build script wrote (`build/description.rs`).
const DESCRIPTION: &str = include_str!(concat!(env!("OUT_DIR"), "/description.txt"));

/// `tiptoe --version`.
#[derive(Debug, Args)]
pub struct VersionArgs {
    /// Print the version
    #[arg(short = 'V', long)]
    pub version: bool,

    /// With --version: also what it was built from
    ///
    /// Commit, target, agent and BPF programs.
    #[arg(short, long, requires = "version")]
    pub verbose: bool,
}

/// Prints the version.
pub fn run(args: &VersionArgs) -> Result<ExitCode, Failure> {
    let text = match args.verbose {
        true => verbose(),
        false => short(),
    };
    Output::Stdout.write(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the version, and what this command was built from: the commit, the target, and the agent and BPF programs
/// that the command contains.
pub fn verbose() -> String {
    short() + DESCRIPTION
}

fn short() -> String {
    format!("tiptoe {}\n", env!("CARGO_PKG_VERSION"))
}
