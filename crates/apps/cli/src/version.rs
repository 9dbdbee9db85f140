//! `tiptoe --version`, and with `--verbose` what tiptoe was built from.

use std::process::ExitCode;

use clap::Args;

use crate::failure::Failure;
use crate::output::Output;

/// The build script (`build/description.rs`) writes this text.
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

pub fn run(args: &VersionArgs) -> Result<ExitCode, Failure> {
    let text = match args.verbose {
        true => verbose(),
        false => short(),
    };
    Output::Stdout.write(&text)?;
    Ok(ExitCode::SUCCESS)
}

pub fn verbose() -> String {
    short() + DESCRIPTION
}

fn short() -> String {
    format!("tiptoe {}\n", env!("CARGO_PKG_VERSION"))
}
