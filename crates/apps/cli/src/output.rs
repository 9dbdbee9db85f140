//! The output of a report: stdout, stderr or a file. A file gets its name when it is complete, or with its first
//! line if calls or accesses are printed as they happen.
//!
//! The file must be opened before the trace, because a missing folder would otherwise lose the result.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use tiptoe_collector::RequestTarget;
use tiptoe_report::Options;
use tiptoe_sys::host::destination::{Destination, DestinationError, WholeFile};
use tiptoe_sys::host::limits::explain_file_size;

use crate::failure::Failure;
use crate::terminal::{self, AboveStatusLine, line};

/// Where notes (limits of a result) go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotesTo {
    /// To stderr at once, and into the report.
    Stderr,
    /// Only into the report, because `-o` leaves stderr to the command.
    Report,
}

#[derive(Debug)]
pub enum Output {
    Stdout,
    /// The default with `-- CMD`, because the command shares tiptoe's stdout.
    Stderr,
    Whole(Rc<WholeFile>, PathBuf),
    Direct(File, PathBuf),
}

impl Output {
    /// Returns the output that `-o` chooses, or the target's default. With `has_values` a new file is readable
    /// only for its owner, because the report contains the program's values, such as arguments.
    pub fn chosen(
        path: Option<&Path>,
        target: &RequestTarget,
        has_values: bool,
    ) -> Result<Output, Failure> {
        match (path, target) {
            (Some(path), _) if path.as_os_str() == "-" => Ok(Output::Stdout),
            (Some(path), _) => Output::file(path, has_values),
            (None, RequestTarget::Command(_)) => Ok(Output::Stderr),
            (None, _) => Ok(Output::Stdout),
        }
    }

    pub fn file(path: &Path, has_values: bool) -> Result<Output, Failure> {
        let opened = Destination::open(path, has_values).map_err(|why| not_written(path, why))?;
        Ok(match opened {
            Destination::Whole(file) => Output::Whole(Rc::new(file), path.to_owned()),
            Destination::Direct(file) => Output::Direct(file, path.to_owned()),
        })
    }

    pub fn notes_to(&self, target: &RequestTarget) -> NotesTo {
        match (self, target) {
            (Output::Stderr, _) => NotesTo::Stderr,
            (_, RequestTarget::Command(_)) => NotesTo::Report,
            _ => NotesTo::Stderr,
        }
    }

    /// Returns where the comments (notes and cost) of a report for scripts go. A file must contain them, because
    /// users keep the file, but not stderr.
    pub fn comments_to(&self, target: &RequestTarget) -> NotesTo {
        match self {
            Output::Whole(..) | Output::Direct(..) => NotesTo::Report,
            Output::Stdout | Output::Stderr => self.notes_to(target),
        }
    }

    /// A closed pipe is no error.
    pub fn write(self, report: &str) -> Result<(), Failure> {
        line::end();
        let (written, path) = match self {
            Output::Stdout => (write_all(io::stdout(), report), "standard output".into()),
            Output::Stderr => (
                write_all(terminal::for_reports(), report),
                "standard error".into(),
            ),
            Output::Direct(file, path) => (write_all(file, report), path),
            Output::Whole(file, path) => {
                let written = write_all(file.file(), report).and_then(|()| file.commit());
                (written, path)
            }
        };
        written.map_err(|error| not_written(&path, explain_file_size(error)))
    }

    pub fn stream(&self) -> Result<Box<dyn Write>, Failure> {
        let (file, path) = match self {
            Output::Stdout => return Ok(Box::new(AboveStatusLine(io::stdout()))),
            Output::Stderr => return Ok(Box::new(terminal::for_reports())),
            Output::Direct(file, path) => (file, path),
            Output::Whole(file, _) => return Ok(Box::new(GrowingFile(Rc::clone(file)))),
        };
        let file = file.try_clone();
        let file = file.map_err(|error| not_written(path, error))?;
        Ok(Box::new(file))
    }

    pub fn options(&self, top: Option<usize>) -> Options {
        let options = match self {
            Output::Stdout => terminal::options_of(&io::stdout()),
            Output::Stderr => terminal::options(),
            Output::Whole(..) | Output::Direct(..) => Options {
                color: terminal::is_always_colored(),
                ..Options::default()
            },
        };
        Options { top, ..options }
    }
}

/// A file that gets its name with its first line, so that no line is lost if the disk is full or tiptoe is killed.
struct GrowingFile(Rc<WholeFile>);

impl Write for GrowingFile {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        self.0.appear()?;
        self.0.file().write(lines)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.file().flush()
    }
}

fn write_all(mut to: impl Write, report: &str) -> io::Result<()> {
    match to.write_all(report.as_bytes()).and_then(|()| to.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

fn not_written(path: &Path, why: impl Into<DestinationError>) -> Failure {
    Failure::NotWritten {
        path: path.to_owned(),
        why: why.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_a_missing_folder_are_reported() {
        let full = Output::file(Path::new("/dev/full"), false)
            .unwrap()
            .write("report")
            .unwrap_err()
            .to_string();
        assert!(full.contains("No space left on device"), "{full}");
        let missing = Output::file(Path::new("/nonexistent/report"), false).unwrap_err();
        let missing = missing.to_string();
        assert!(missing.contains("/nonexistent/report cannot be written: No such file"));
    }
}
