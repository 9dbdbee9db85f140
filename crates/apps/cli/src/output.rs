//! Where words go: stdout, stderr, or a file that appears only when it is whole.
//!
//! The file is opened before the trace begins, so that a folder that does not
//! exist is an error while nothing has been traced in vain.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use tiptoe_report::Options;
use tiptoe_sys::host::destination::{Destination, Refused, WholeFile};
use tiptoe_sys::host::limits::explain_file_size;

use crate::failure::Failure;
use crate::terminal;

/// What to do where a file cannot be had.
const ELSEWHERE: &str = "-o FILE puts the report in another place";

/// Where a report goes.
#[derive(Debug)]
pub enum Output {
    /// Standard output: with `-p`, where the target has its own.
    Stdout,
    /// Standard error: with `-- CMD`, whose stdout stays its own.
    Stderr,
    /// A file that has its name once it is written.
    Whole(WholeFile, PathBuf),
    /// A device, a pipe, or a descriptor.
    Direct(File, PathBuf),
}

impl Output {
    /// Opens a file for a report, which nobody else may read if there are `values` of the program in it.
    pub fn file(path: &Path, values: bool) -> Result<Output, Failure> {
        let opened = Destination::open(path, values).map_err(|why| refused(path, &why))?;
        Ok(match opened {
            Destination::Whole(file) => Output::Whole(file, path.to_owned()),
            Destination::Direct(file) => Output::Direct(file, path.to_owned()),
        })
    }

    /// Writes the whole report. A reader that has gone away is no failure.
    pub fn write(self, report: &str) -> Result<(), Failure> {
        let (written, path) = match self {
            Output::Stdout => (whole(io::stdout(), report), "standard output".into()),
            Output::Stderr => (
                whole(terminal::for_reports(), report),
                "standard error".into(),
            ),
            Output::Direct(file, path) => (whole(file, report), path),
            Output::Whole(file, path) => (place(file, report), path),
        };
        written.map_err(|error| cannot_write(&path, &explain_file_size(error)))
    }

    /// Where lines go that come before the report.
    pub fn stream(&self) -> Result<Box<dyn Write>, Failure> {
        let (file, path) = match self {
            Output::Stdout => return Ok(Box::new(io::stdout())),
            Output::Stderr => return Ok(Box::new(terminal::for_reports())),
            Output::Direct(file, path) => (file, path),
            Output::Whole(file, path) => (file.file(), path),
        };
        let file = file.try_clone();
        let file = file.map_err(|error| cannot_write(path, &error))?;
        Ok(Box::new(file))
    }

    /// How a text report looks there.
    pub fn options(&self, top: Option<usize>) -> Options {
        let terminal = match self {
            Output::Stdout => io::stdout().is_terminal(),
            Output::Stderr => terminal::is_terminal(),
            Output::Whole(..) | Output::Direct(..) => false,
        };
        terminal_options(top, terminal)
    }
}

/// How text looks on a terminal, or off one.
pub fn terminal_options(top: Option<usize>, terminal: bool) -> Options {
    if !terminal {
        return Options {
            top,
            ..Options::default()
        };
    }
    let width = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    Options { top, width, color }
}

fn place(file: WholeFile, report: &str) -> io::Result<()> {
    whole(file.file(), report)?;
    file.place()
}

fn whole(mut to: impl Write, report: &str) -> io::Result<()> {
    match to.write_all(report.as_bytes()).and_then(|()| to.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let what = format!("{} cannot be written: {error}", path.display());
    Failure::new(what).hint(ELSEWHERE)
}

fn refused(path: &Path, why: &Refused) -> Failure {
    let what = format!("{} cannot be written: {why}", path.display());
    Failure::new(what).hint(match why {
        Refused::NoReader => "start the reader first",
        Refused::OwnerLost => "remove the file first, or -o FILE puts the report in another place",
        _ => ELSEWHERE,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_a_missing_folder_are_said() {
        let full = Output::file(Path::new("/dev/full"), false)
            .unwrap()
            .write("report");
        assert!(
            format!("{full:?}").contains("No space left on device"),
            "{full:?}"
        );
        let missing = format!(
            "{:?}",
            Output::file(Path::new("/nonexistent/report"), false)
        );
        assert!(missing.contains("/nonexistent/report cannot be written: No such file"));
    }
}
