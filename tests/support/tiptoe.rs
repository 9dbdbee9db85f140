//! Runs the tiptoe command.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::process::{Process, output};
use crate::ready::Ready;
use crate::report::{ExpectedCounts, Report};
use crate::waiting::last_child;

/// Returns the tiptoe command: `TIPTOE_BIN`, or cargo's.
pub fn command() -> Command {
    let named = std::env::var_os("TIPTOE_BIN").map(PathBuf::from);
    existing(named.unwrap_or_else(|| built().join("tiptoe")))
}

/// Returns `tiptoe-dev`.
pub fn dev_command() -> Command {
    existing(Path::new(command().get_program()).with_file_name("tiptoe-dev"))
}

fn existing(path: PathBuf) -> Command {
    assert!(path.exists(), "no {}: run `cargo build`", path.display());
    Command::new(path)
}

pub(crate) fn built() -> PathBuf {
    // …/target/debug/deps/e2e-HASH -> …/target/debug
    let test = std::env::current_exe().expect("this test has a path");
    test.ancestors().nth(2).expect("target/debug").to_owned()
}

/// A tiptoe command under construction, by default `probe --budget off`.
#[derive(Debug, Clone, Default)]
pub struct Probe {
    instrument: Option<&'static str>,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    is_contained: bool,
}

/// The results of tiptoe and its command.
#[derive(Debug)]
pub struct Run {
    /// The report, if any.
    pub report: Option<Report>,
    /// The command's stdout.
    pub stdout: Vec<u8>,
    /// The command's stderr and tiptoe's messages.
    pub stderr: String,
    /// The exit status.
    pub status: i32,
}

impl Probe {
    /// Returns a `probe` command for these specs (names of functions).
    pub fn new<S: AsRef<str>>(specs: &[S]) -> Probe {
        Probe::within("off", specs)
    }

    /// Returns a `probe` command with this `--budget`.
    pub fn within<S: AsRef<str>>(budget: &str, specs: &[S]) -> Probe {
        let arguments = specs.iter().map(|spec| spec.as_ref().to_owned()).collect();
        Probe {
            arguments,
            ..Probe::default()
        }
        .with(&["--json", "--budget", budget])
    }

    /// Returns a `lock` command.
    pub fn lock() -> Probe {
        Probe::lock_within("off")
    }

    /// Returns `lock` within a budget.
    pub fn lock_within(budget: &str) -> Probe {
        Probe {
            instrument: Some("lock"),
            ..Probe::default()
        }
        .with(&["--json", "--budget", budget])
    }

    /// Returns a `watch` command.
    pub fn watch() -> Probe {
        Probe::watch_within("off")
    }

    /// Returns `watch` within a budget.
    pub fn watch_within(budget: &str) -> Probe {
        Probe {
            instrument: Some("watch"),
            ..Probe::default()
        }
        .with(&["--json", "--budget", budget])
    }

    /// Returns a `stat` command.
    pub fn stat() -> Probe {
        Probe {
            instrument: Some("stat"),
            ..Probe::default()
        }
        .with(&["--json"])
    }

    /// Adds options.
    #[must_use]
    pub fn with(mut self, options: &[&str]) -> Probe {
        self.arguments
            .extend(options.iter().map(|option| (*option).to_owned()));
        self
    }

    /// Sets a variable of tiptoe and the command.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Probe {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Gives tiptoe its own pid namespace.
    #[must_use]
    pub fn contained(mut self) -> Probe {
        self.is_contained = true;
        self
    }

    /// Runs `program` to its end. The report is a file, because stdout belongs to the program.
    pub fn run(&self, program: &Path, arguments: &[&str]) -> Run {
        let report = report_path();
        let mut command = self.command(&report);
        let output = output(command.arg("--").arg(program).args(arguments));
        Run::new(output, &report)
    }

    /// Returns the command that launches `program`, and the report's path.
    pub fn launch(&self, program: &Path) -> (Command, PathBuf) {
        let report = report_path();
        let mut command = self.command(&report);
        command.arg("--").arg(program);
        (command, report)
    }

    /// Starts a target that waits. Returns tiptoe and the target's pid.
    pub fn start(&self, program: &Path, arguments: &[&str]) -> (AttachedTiptoe, u32) {
        let report = report_path();
        let mut command = self.command(&report);
        let (mut process, ready) = Ready::of(&mut command, |command| {
            Process::start(command.arg("--").arg(program).args(arguments).arg("wait"))
        });
        assert_eq!(process.line(), "ready");
        let pid = last_child(process.pid());
        let attached = AttachedTiptoe {
            process,
            report,
            ready,
        };
        (attached, pid)
    }

    /// Attaches until `--duration` or the processes' end.
    pub fn attach(&self, pids: &[u32]) -> AttachedTiptoe {
        let report = report_path();
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        let mut command = self.command(&report);
        command.args(["-p", &pids.join(",")]);
        let (process, ready) = Ready::of(&mut command, Process::start);
        AttachedTiptoe {
            process,
            report,
            ready,
        }
    }

    /// Attaches, and waits until `--duration` is over.
    pub fn attach_and_wait(&self, pids: &[u32]) -> Run {
        let report = report_path();
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        let output = output(self.command(&report).args(["-p", &pids.join(",")]));
        Run::new(output, &report)
    }

    fn command(&self, report: &Path) -> Command {
        let mut command = match self.is_contained {
            true => contained(&command()),
            false => command(),
        };
        command
            .arg(self.instrument.unwrap_or("probe"))
            .args(&self.arguments)
            .arg("-o")
            .arg(report);
        command.envs(self.environment.iter().cloned());
        command
    }
}

fn contained(command: &Command) -> Command {
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--pid", "--fork", "--kill-child", "--mount-proc", "--"])
        .arg(command.get_program());
    unshare
}

impl Run {
    /// Reads a finished command's result.
    pub fn new(output: Output, report: &Path) -> Run {
        let code = std::os::unix::process::ExitStatusExt::signal(&output.status)
            .map(|signal| 128 + signal);
        Run {
            report: take_report(report),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            status: output.status.code().or(code).unwrap_or(-1),
        }
    }

    /// Returns the report. Panics unless the status is 0.
    pub fn good(&self) -> &Report {
        assert_eq!(self.status, 0, "status {}: {}", self.status, self.stderr);
        self.report
            .as_ref()
            .unwrap_or_else(|| panic!("no report: {}", self.stderr))
    }

    /// Returns the counts that the target printed.
    pub fn expected(&self) -> ExpectedCounts {
        ExpectedCounts::parse(&String::from_utf8_lossy(&self.stdout))
    }
}

/// A running tiptoe.
#[derive(Debug)]
pub struct AttachedTiptoe {
    /// Tiptoe's process.
    pub process: Process,
    report: PathBuf,
    ready: Ready,
}

impl AttachedTiptoe {
    /// Waits as [`Ready::wait`] does.
    pub fn wait_ready(&self) {
        self.ready.wait();
    }

    /// Ends tiptoe as Ctrl-C does.
    pub fn interrupt(self) -> Report {
        self.process.signal(libc::SIGINT);
        self.finish()
    }

    /// Waits for tiptoe's end.
    pub fn finish(self) -> Report {
        let (_, status) = self.process.finish();
        assert!(status.success(), "tiptoe ended with {status}");
        let text = std::fs::read_to_string(&self.report).expect("a report");
        let _ = std::fs::remove_file(&self.report);
        Report::parse(&text)
    }
}

/// Reads a report and removes its file.
pub fn take_report(path: &Path) -> Option<Report> {
    let text = std::fs::read_to_string(path).ok();
    let _ = std::fs::remove_file(path);
    // Lines of `--record` precede the report.
    let text = text?;
    Some(Report::parse(text.lines().next_back()?))
}

fn report_path() -> PathBuf {
    static TURN: AtomicU32 = AtomicU32::new(0);
    let name = format!(
        "tiptoe-test-{}-{}.json",
        std::process::id(),
        TURN.fetch_add(1, Relaxed)
    );
    let path = std::env::temp_dir().join(name);
    // A killed run may have left this file.
    let _ = std::fs::remove_file(&path);
    path
}
