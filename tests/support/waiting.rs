//! A target that waits until tiptoe has attached.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::memory::Site;
use crate::process::Process;
use crate::report::{ExpectedCounts, Report};
use crate::tiptoe::Probe;

/// A target that printed `ready` and has not begun.
#[derive(Debug)]
pub struct WaitingTarget {
    /// The started process.
    pub process: Process,
    /// The target's pid, which differs from that of `process` if the command forked it.
    pub pid: u32,
    program: PathBuf,
}

impl WaitingTarget {
    /// Starts `program` through a command such as `prlimit --nofile=4`.
    pub fn through(through: &[&str], program: &Path, arguments: &[&str]) -> WaitingTarget {
        let mut command = Command::new(through[0]);
        command.args(&through[1..]).arg(program).args(arguments);
        WaitingTarget::start(&mut command, program)
    }

    /// Starts a command that execs or forks `program`.
    pub fn start(command: &mut Command, program: &Path) -> WaitingTarget {
        let mut process = Process::start(command.arg("wait"));
        assert_eq!(process.line(), "ready");
        let pid = last_child(process.pid());
        let program = program.to_owned();
        WaitingTarget {
            process,
            pid,
            program,
        }
    }

    /// Attaches, lets the target run to its end, and compares every count.
    pub fn count(mut self, probe: &Probe, functions: &[&str]) -> Report {
        let attached = probe.attach(&[self.pid]);
        attached.wait_ready();
        self.process.go();
        let expected = self.finish();
        let report = attached.finish();
        report.assert_exact(&ExpectedCounts(
            expected
                .0
                .into_iter()
                .filter(|(name, _)| functions.contains(&&**name))
                .collect(),
        ));
        report
    }

    /// Lets the target run to its end, with status 0.
    pub fn end(mut self) -> ExpectedCounts {
        self.process.go();
        self.finish()
    }

    /// Returns the place of a function's probe.
    pub fn site(&self, function: &str) -> Site {
        Site::new(self.pid, &self.program, function)
    }

    /// Waits for the end. Returns the counts. Panics unless the status is 0.
    pub fn ended(self) -> ExpectedCounts {
        self.finish()
    }

    fn finish(self) -> ExpectedCounts {
        let (output, status) = self.process.finish();
        assert!(status.success(), "{status}: {output}");
        ExpectedCounts::parse(&output)
    }
}

/// Returns the last of a chain of processes, each of which has one child.
pub fn last_child(pid: u32) -> u32 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let child = children
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok());
    child.map_or(pid, last_child)
}
