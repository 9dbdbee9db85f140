//! Runs programs for tests. Each program is killed when its test ends, or after 60 s.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::{evidence, keeper};

/// A running program with pipes.
#[derive(Debug)]
pub struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
    _watchdog: Watchdog,
}

impl Process {
    /// Starts a command.
    pub fn start(command: &mut Command) -> Process {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().map(BufReader::new));
        Process {
            _watchdog: Watchdog::new(&child),
            child,
            stdin,
            stdout,
        }
    }

    /// Starts a target that waits. Returns once it has printed `ready`.
    pub fn waiting(program: &Path, arguments: &[&str]) -> Process {
        let mut process = Process::start(Command::new(program).args(arguments).arg("wait"));
        assert_eq!(process.line(), "ready");
        process
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets a waiting target begin.
    pub fn go(&mut self) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        stdin.write_all(b"go\n").expect("the target reads");
    }

    /// Closes stdin.
    pub fn close(&mut self) {
        self.stdin = None;
    }

    /// Returns the next line of stdout.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout
            .as_mut()
            .expect("stdout is piped")
            .read_line(&mut line)
            .expect("text");
        line.trim_end().to_owned()
    }

    /// Closes stdin and waits for the end. Returns the rest of stdout, and the status.
    pub fn finish(mut self) -> (String, ExitStatus) {
        self.close();
        let mut text = String::new();
        self.stdout
            .take()
            .expect("stdout is piped")
            .read_to_string(&mut text)
            .expect("text");
        (text, self.child.wait().expect("our child"))
    }

    /// Waits for the end.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("our child")
    }

    /// Returns whether the program runs.
    pub fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: `self` has not reaped the child, so the pid is its own.
        unsafe { libc::kill(self.pid() as i32, signal) };
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    eprintln!("process {} had ended by itself: {status}", self.pid())
                }
                _ => save_evidence(self.pid().cast_signed()),
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command as `Command::output` does, for at most 60 s.
pub fn output(command: &mut Command) -> Output {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn();
    let child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let _watchdog = Watchdog::new(&child);
    child.wait_with_output().expect("our own child")
}

/// A running program that gets its whole stdin at once.
#[derive(Debug)]
pub struct FedProcess {
    child: Option<Child>,
    _watchdog: Watchdog,
}

impl FedProcess {
    /// Starts a command.
    pub fn start(command: &mut Command) -> FedProcess {
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn();
        let child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        FedProcess {
            _watchdog: Watchdog::new(&child),
            child: Some(child),
        }
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// Writes stdin and waits for the end. Returns stdout and the status, 128 + N for signal N.
    pub fn finish(mut self, input: &[u8]) -> (Vec<u8>, i32) {
        let mut child = self.child.take().expect("it runs");
        let mut stdin = child.stdin.take().expect("stdin is piped");
        let output = std::thread::scope(|scope| {
            // The write fails if the program ends early.
            scope.spawn(move || stdin.write_all(input));
            child.wait_with_output().expect("our own child")
        });
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        let signal = output.status.signal().map(|signal| 128 + signal);
        (output.stdout, output.status.code().or(signal).unwrap_or(-1))
    }
}

impl Drop for FedProcess {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[derive(Debug)]
struct Watchdog {
    done: Arc<AtomicBool>,
}

impl Watchdog {
    fn new(child: &Child) -> Watchdog {
        let done = Arc::new(AtomicBool::new(false));
        let (leader, seen) = (child.id().cast_signed(), Arc::clone(&done));
        let limit = limit();
        std::thread::spawn(move || {
            let until = Instant::now() + limit;
            // Relaxed: nothing is ordered by the flag.
            while Instant::now() < until && !seen.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(50));
            }
            if !seen.load(Relaxed) {
                eprintln!("killed after {limit:?}: process group {leader}");
                save_evidence(leader);
                // SAFETY: the group belongs to the test.
                unsafe { libc::kill(-leader, libc::SIGKILL) };
            }
        });
        Watchdog { done }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.done.store(true, Relaxed);
    }
}

fn limit() -> Duration {
    let limit = std::env::var("TIPTOE_TEST_LIMIT").ok();
    Duration::from_secs(limit.and_then(|limit| limit.parse().ok()).unwrap_or(60))
}

fn save_evidence(leader: i32) {
    if let Some(folder) = std::env::var_os(keeper::EVIDENCE) {
        let mut all = keeper::below(std::process::id().cast_signed());
        all.retain(|pid| *pid != leader);
        all.insert(0, leader);
        evidence::save(Path::new(&folder), &all);
    }
}

/// Waits until `condition` holds. Panics after `limit`.
pub fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < until, "{what}: not after {limit:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
