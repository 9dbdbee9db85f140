//! Other tools that watch a variable: `perf record`, and gdb, which stops the program at each change.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::workshop::{Program, failed};

/// Stores that take longer than this count as watched.
const WATCHED_NS: f64 = 200.0;
/// How many slow measurements in a row show that stores are watched: a single one may be a wait for a CPU.
const IN_A_ROW: usize = 3;
const LIMIT: Duration = Duration::from_secs(20);

pub(super) struct OtherWatcher(Child);

impl OtherWatcher {
    pub(super) fn perf_record(
        program: &mut Program,
        address: u64,
        has_callers: bool,
        folder: &Path,
    ) -> Result<OtherWatcher, Error> {
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-c", "1", "-e"]);
        command.arg(format!("mem:{address:#x}/8:w:u"));
        command.args(["-p", &program.pid().to_string(), "-o"]);
        command.arg(folder.join("perf.data"));
        command.args(has_callers.then_some("-g"));
        OtherWatcher::start(command, program)
    }

    pub(super) fn gdb(
        program: &mut Program,
        address: u64,
        folder: &Path,
    ) -> Result<OtherWatcher, Error> {
        let script = folder.join("watch.gdb");
        let lines = format!(
            "set pagination off\nset confirm off\nwatch *(unsigned long *) {address:#x}\n\
             commands\nsilent\ncontinue\nend\ncontinue\n"
        );
        std::fs::write(&script, lines).map_err(failed("writing a script for gdb"))?;
        let mut command = Command::new("gdb");
        command.args(["-nx", "-batch", "-p", &program.pid().to_string(), "-x"]);
        command.arg(script).env_remove("DEBUGINFOD_URLS");
        OtherWatcher::start(command, program)
    }

    fn start(mut command: Command, program: &mut Program) -> Result<OtherWatcher, Error> {
        let quiet = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = quiet.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::Missing,
            _ => failed("starting another tool")(error),
        });
        let mut other = OtherWatcher(child?);
        other.until_watched(program)?;
        Ok(other)
    }

    fn until_watched(&mut self, program: &mut Program) -> Result<(), Error> {
        let until = Instant::now() + LIMIT;
        let mut in_a_row = 0;
        while in_a_row < IN_A_ROW {
            let is_watched = program.ask("stops 20")? > WATCHED_NS;
            in_a_row = if is_watched { in_a_row + 1 } else { 0 };
            let has_ended = self.0.try_wait().is_ok_and(|status| status.is_some());
            if has_ended || Instant::now() > until {
                return Err(Error::Unwatched);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

impl Drop for OtherWatcher {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
