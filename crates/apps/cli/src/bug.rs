//! `tiptoe bug`: writes what a bug report needs into a folder.
//!
//! INVARIANT: the files contain no environment variable, no process's command line or name, no user's or host's
//! name, and no path below a home, because users publish the files. So the files contain only chosen fields, and
//! [`without_homes`] filters all text.

mod system;

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::failure::Failure;
use crate::notice::Notice;
use crate::output::Output;
use crate::{doctor, terminal, version};

pub const BUG_EXAMPLES: &str = "\
Examples:
  tiptoe bug                    write into the new folder tiptoe-bug
  tiptoe bug /tmp/report        write into another new folder
  tar czf bug.tgz tiptoe-bug    pack what was written, to send it";

/// `tiptoe bug`.
#[derive(Debug, Args)]
pub struct BugArgs {
    /// The folder, which must not exist yet
    #[arg(value_name = "FOLDER", default_value = "tiptoe-bug")]
    pub folder: PathBuf,
}

/// Writes the files into a new folder and lists them. Removes the folder if a file cannot be written.
pub fn run(folder: &Path) -> Result<ExitCode, Failure> {
    let new = DirBuilder::new().mode(0o700).create(folder);
    new.map_err(|error| not_created(folder.to_owned(), error))?;
    match write(folder) {
        Ok(lines) => {
            Output::Stdout.write(&tiptoe_report::printable_lines(&lines))?;
            terminal::say(Notice::LookAtFiles);
            terminal::say(Notice::CommandNeeded);
            Ok(ExitCode::SUCCESS)
        }
        Err(failure) => {
            let _ = std::fs::remove_dir_all(folder);
            Err(failure)
        }
    }
}

fn write(folder: &Path) -> Result<String, Failure> {
    let files = [
        (
            "version.txt",
            "this tiptoe, and what is inside it",
            version::verbose(),
        ),
        (
            "doctor.txt",
            "what works on this machine",
            doctor::text_for_others(),
        ),
        (
            "system.txt",
            "kernel, CPU, distribution, C library, settings",
            system::describe(Path::new("/")),
        ),
    ];
    let mut lines = String::new();
    for (name, about, text) in files {
        let path = folder.join(name);
        let text = without_homes(&text, std::env::home_dir().as_deref());
        Output::file(&path, true)?.write(&(text.trim_end().to_owned() + "\n"))?;
        lines += &format!("{}: {about}\n", path.display());
    }
    Ok(lines)
}

fn not_created(folder: PathBuf, error: std::io::Error) -> Failure {
    match error.kind() {
        ErrorKind::AlreadyExists => Failure::FolderExists(folder),
        _ => Failure::FolderNotCreated { folder, error },
    }
}

/// Replaces each path below `/home`, `/root` or the given home by `[home]`. A path ends at white space.
fn without_homes(text: &str, home: Option<&Path>) -> String {
    let home = home.and_then(Path::to_str).filter(|home| home.len() > 1);
    let usual = ["/home", "/root"].map(|folder| format!("{folder}/"));
    let homes = usual.into_iter().chain(home.map(str::to_owned));
    homes.fold(text.to_owned(), |text, home| {
        let mut parts = text.split(&home);
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let end = part.find(char::is_whitespace).unwrap_or(part.len());
            out += "[home]";
            out += &part[end..];
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_below_a_home_are_left_out() {
        let home = Some(Path::new("/data/people/zoe"));
        for (text, expected) in [
            ("at /home/zoe/cgroup (and 2)", "at [home] (and 2)"),
            ("ROOT/x\n/home/a/b\n", "[home]\n[home]\n"),
            ("v2 at /data/people/zoe/cgroups", "v2 at [home]"),
            ("v2 at /sys/fs/cgroup", "v2 at /sys/fs/cgroup"),
            ("", ""),
        ] {
            let text = text.replace("ROOT", "/root");
            assert_eq!(without_homes(&text, home), expected);
        }
        assert_eq!(without_homes("/data/x", Some(Path::new("/"))), "/data/x");
    }
}
