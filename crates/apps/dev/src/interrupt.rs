//! `tiptoe-dev bench interrupt`: the time from SIGINT to the end of tiptoe. The goal is 200 ms in each phase:
//!
//! - `preparing`: tiptoe is reading a debug file of 1 GB, before it attaches. After the signal tiptoe still gives the
//!   attach some time to complete. The result includes that time.
//! - `counting`: tiptoe counts with one of its commands, and must detach and report.
//! - `ending`: as `counting`, but a second SIGINT follows at once.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use crate::error::Error;
use crate::options::Options;
use crate::table::{Table, TableRow};
use crate::workshop::{Program, Workshop, failed};

/// The traced program. It would call the probed function for each line of input, but the bench sends none.
const PROGRAM: &str = "\
#include <stdio.h>
volatile long counted;
__attribute__((noinline)) void count(void) { counted++; }
int main(void) {
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        count();
        puts(\"0\");
        fflush(stdout);
    }
    return 0;
}
";
/// The size of the largest debug file whose check sum tiptoe computes.
const DEBUG_FILE: u64 = 1 << 30;
const INSTRUMENTS: [(&str, &[&str]); 4] = [
    ("probe", &["probe", "count"]),
    ("lock", &["lock"]),
    ("watch", &["watch", "counted:8"]),
    ("stat", &["stat"]),
];

pub(crate) fn run(options: &Options) -> Result<Table, Error> {
    let mut table = Table {
        bench: "interrupt".into(),
        ..Table::default()
    };
    let workshop = Workshop::new("interrupt", PROGRAM)?;
    let program = workshop.start(None)?;
    let debug = link_to_long_file(&workshop)?;
    let stripped = workshop.start(None)?;
    let rounds = |once: &dyn Fn() -> Result<f64, Error>| {
        (0..options.rounds)
            .map(|_| once())
            .collect::<Result<Vec<_>, _>>()
    };
    let preparing = rounds(&|| {
        let mut tiptoe = Tiptoe::start(INSTRUMENTS[0].1, &stripped)?;
        tiptoe.wait_until_it_reads(&debug)?;
        tiptoe.interrupt(1)
    })?;
    table
        .rows
        .push(TableRow::new("preparing", &preparing, "ms").at("probe"));
    let counting = |words: &[&str], times| {
        rounds(&|| {
            let mut tiptoe = Tiptoe::start(words, &program)?;
            tiptoe.wait_until_it_counts()?;
            tiptoe.interrupt(times)
        })
    };
    for (name, words) in INSTRUMENTS {
        match counting(words, 1) {
            Ok(times) => table
                .rows
                .push(TableRow::new("counting", &times, "ms").at(name)),
            Err(error) => table.notes.push(format!("skipped: {name} ({error})")),
        }
    }
    let ending = counting(INSTRUMENTS[0].1, 2)?;
    table
        .rows
        .push(TableRow::new("ending", &ending, "ms").at("probe"));
    Ok(table)
}

/// Strips the program and links it to a debug file without a build-id. Zeroes at the file's end make its check sum
/// wrong, so tiptoe refuses the file only after reading all of it.
fn link_to_long_file(workshop: &Workshop) -> Result<PathBuf, Error> {
    let writing = || failed("writing a debug file");
    let (program, debug) = ("program", "program.debug");
    let folder = workshop.folder().canonicalize().map_err(writing())?;
    let objcopy = |options: &[&str], from: &str, to: &str| {
        let mut objcopy = Command::new("objcopy");
        objcopy.args(options).args([from, to]);
        let status = objcopy.current_dir(&folder).status();
        match status.map_err(failed("running `objcopy`"))?.success() {
            true => Ok(()),
            false => Err(Error::Compile("`objcopy` failed".to_owned())),
        }
    };
    objcopy(&["--remove-section=.note.gnu.build-id"], program, debug)?;
    let link = format!("--add-gnu-debuglink={debug}");
    objcopy(&["--strip-all", &link], program, "stripped")?;
    // A running program's file cannot be written, only replaced.
    std::fs::rename(folder.join("stripped"), folder.join(program)).map_err(writing())?;
    let path = folder.join(debug);
    let file = File::options().write(true).open(&path);
    let file = file.map_err(writing())?;
    file.set_len(DEBUG_FILE).map_err(writing())?;
    Ok(path)
}

struct Tiptoe {
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl Tiptoe {
    fn start(words: &[&str], program: &Program) -> Result<Tiptoe, Error> {
        let starting = || failed("starting tiptoe");
        // Cargo puts both programs into one folder.
        let own = std::env::current_exe().map_err(starting())?;
        let mut command = Command::new(own.with_file_name("tiptoe"));
        command.args(words).args(["-p", &program.pid().to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().map_err(starting())?;
        let Some(stderr) = child.stderr.take() else {
            unreachable!("it is piped");
        };
        Ok(Tiptoe {
            child,
            stderr: BufReader::new(stderr),
        })
    }

    fn wait_until_it_counts(&mut self) -> Result<(), Error> {
        let mut last = String::new();
        loop {
            let mut line = String::new();
            let read = self.stderr.read_line(&mut line);
            if read.map_err(failed("reading from tiptoe"))? == 0 {
                return Err(Error::Answer(last.trim().to_owned()));
            }
            if line.starts_with("counting:") {
                return Ok(());
            }
            last = line;
        }
    }

    fn wait_until_it_reads(&mut self, file: &Path) -> Result<(), Error> {
        let folder = format!("/proc/{}/fd", self.child.id());
        loop {
            let open = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            let mut open = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
            if open.any(|open| open == file) {
                return Ok(());
            }
            if self
                .child
                .try_wait()
                .map_err(failed("waiting for tiptoe"))?
                .is_some()
            {
                return Err(Error::Answer("it ended".to_owned()));
            }
            std::thread::yield_now();
        }
    }

    /// Returns the ms from the last of `times` signals.
    fn interrupt(mut self, times: u32) -> Result<f64, Error> {
        let signalling = |error: rustix::io::Errno| failed("interrupting tiptoe")(error.into());
        let mut from = Instant::now();
        for _ in 0..times {
            from = Instant::now();
            kill_process(Pid::from_child(&self.child), Signal::INT).map_err(signalling)?;
        }
        self.child.wait().map_err(failed("waiting for tiptoe"))?;
        Ok(from.elapsed().as_secs_f64() * 1e3)
    }
}

impl Drop for Tiptoe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
