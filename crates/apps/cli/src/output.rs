//! Where words go: stdout, stderr, or a file that appears only when it is whole.
//!
//! The file is opened before the trace begins, so that a folder that does not
//! exist is an error while nothing has been traced in vain.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use tiptoe_report::Options;

use crate::failure::Failure;

/// Where a report goes.
#[derive(Debug)]
pub enum Output {
    /// Standard output: with `-p`, where the target has its own.
    Stdout,
    /// Standard error: with `-- CMD`, whose stdout stays its own.
    Stderr,
    /// A file beside the named one, which takes its place once it is written.
    Replaced(NamedTempFile, PathBuf),
    /// A file that cannot be replaced, such as a device or a pipe.
    Direct(File, PathBuf),
}

impl Output {
    /// Opens a file for a report.
    pub fn file(path: &Path) -> Result<Output, Failure> {
        open(path).map_err(|error| cannot_write(path, &error))
    }

    /// Writes the whole report. A reader that has gone away is no failure.
    pub fn write(self, report: &str) -> Result<(), Failure> {
        let (written, path) = match self {
            Output::Stdout => (whole(io::stdout(), report), "standard output".into()),
            Output::Stderr => (whole(io::stderr(), report), "standard error".into()),
            Output::Direct(file, path) => (whole(file, report), path),
            Output::Replaced(file, path) => (replace(file, &path, report), path),
        };
        written.map_err(|error| cannot_write(&path, &error))
    }

    /// Where lines go that come before the report.
    pub fn stream(&self) -> Result<Box<dyn Write>, Failure> {
        let (file, path) = match self {
            Output::Stdout => return Ok(Box::new(io::stdout())),
            Output::Stderr => return Ok(Box::new(io::stderr())),
            Output::Direct(file, path) => (file, path),
            Output::Replaced(file, path) => (file.as_file(), path),
        };
        let file = file.try_clone();
        let file = file.map_err(|error| cannot_write(path, &error))?;
        Ok(Box::new(file))
    }

    /// How a text report looks there.
    pub fn options(&self, top: Option<usize>) -> Options {
        let terminal = match self {
            Output::Stdout => io::stdout().is_terminal(),
            Output::Stderr => io::stderr().is_terminal(),
            Output::Replaced(..) | Output::Direct(..) => false,
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

/// Writes to stderr, where nobody can be told that it failed.
pub fn to_stderr(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

fn open(path: &Path) -> io::Result<Output> {
    // A link stays a link: what it points at is replaced.
    let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(&place).is_ok_and(|found| !found.is_file()) {
        let file = OpenOptions::new().write(true).open(&place)?;
        return Ok(Output::Direct(file, path.to_owned()));
    }
    let folder = place
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let mut builder = tempfile::Builder::new();
    builder
        .prefix(".tiptoe-")
        .permissions(fs::Permissions::from_mode(0o666));
    let file = builder.tempfile_in(folder.unwrap_or(Path::new(".")))?;
    Ok(Output::Replaced(file, place))
}

fn replace(file: NamedTempFile, path: &Path, report: &str) -> io::Result<()> {
    whole(file.as_file(), report)?;
    // A disk that is full may say so only now.
    file.as_file().sync_data()?;
    file.persist(path)?;
    Ok(())
}

fn whole(mut to: impl Write, report: &str) -> io::Result<()> {
    match to.write_all(report.as_bytes()).and_then(|()| to.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let what = format!("{} cannot be written: {}", path.display(), reason(error));
    Failure::new(what).hint("-o FILE puts the report in another place")
}

/// The system's words for an error, without the path of the temporary file, which
/// its library put behind them and nobody knows.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let own = text.split_once(" at path \"").map(|(own, _)| own);
    own.unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_whole_and_replaces_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report");
        fs::write(&path, "old").unwrap();
        let output = Output::file(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        output.write("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        drop(Output::file(&path).unwrap());
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            1,
            "nothing is left behind"
        );
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("report"), folder.path().join("link"));
        fs::write(&path, "old").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        Output::file(&link).unwrap().write("new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn a_full_disk_and_a_missing_folder_are_said() {
        let full = Output::file(Path::new("/dev/full"))
            .unwrap()
            .write("report");
        assert!(
            format!("{full:?}").contains("No space left on device"),
            "{full:?}"
        );
        let missing = format!("{:?}", Output::file(Path::new("/nonexistent/report")));
        assert!(missing.contains("/nonexistent/report cannot be written: No such file"));
        assert!(!missing.contains(".tiptoe-"), "{missing}");
    }
}
