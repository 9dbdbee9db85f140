//! `tiptoe generate`: writes man pages and completions from the definitions of `--help`, so that they agree.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::failure::Failure;

pub const GENERATE_EXAMPLES: &str = "\
Examples:
  tiptoe generate out                 write man pages and completions into out
  man -l out/man/tiptoe-probe.1       read one of the man pages
  source out/bash/tiptoe.bash         complete words in this bash";

/// `tiptoe generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// The folder for `man`, `bash`, `zsh` and `fish`
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}

pub fn run(folder: &Path, cli: &Command) -> Result<ExitCode, Failure> {
    write(folder, cli).map_err(|error| Failure::NotGenerated {
        folder: folder.to_owned(),
        error,
    })?;
    Ok(ExitCode::SUCCESS)
}

fn write(folder: &Path, cli: &Command) -> std::io::Result<()> {
    let man = folder.join("man");
    std::fs::create_dir_all(&man)?;
    clap_mangen::generate_to(cli.clone(), man)?;
    for (shell, name) in [
        (Shell::Bash, "bash"),
        (Shell::Zsh, "zsh"),
        (Shell::Fish, "fish"),
    ] {
        let completions = folder.join(name);
        std::fs::create_dir_all(&completions)?;
        clap_complete::generate_to(shell, &mut cli.clone(), "tiptoe", completions)?;
    }
    Ok(())
}
