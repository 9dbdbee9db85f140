//! A tiptoe whose talk a test waits for.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use crate::process::{Process, wait_until};
use crate::ready::Ready;
use crate::report::Report;

/// How long it may take on a busy machine until tiptoe says what is waited for.
const LIMIT: Duration = Duration::from_secs(60);

/// A running tiptoe, its talk and its report.
#[derive(Debug)]
pub struct Heard {
    /// The command.
    pub process: Process,
    ready: Ready,
    talk: PathBuf,
    report: PathBuf,
}

impl Heard {
    /// Starts a command of tiptoe's. Its stdout goes to a file, by a shell: what `-o` names is there at the end only.
    pub fn start(command: &Command) -> Heard {
        static TURN: AtomicU32 = AtomicU32::new(0);
        // Relaxed: numbers that differ are all that is wanted.
        let turn = TURN.fetch_add(1, Relaxed);
        let file = |what: &str| {
            let name = format!("tiptoe-heard-{}-{turn}-{what}", std::process::id());
            std::env::temp_dir().join(name)
        };
        let (talk, report) = (file("talk"), file("report"));
        let mut shell = Command::new("sh");
        shell.args(["-c", r#"exec "$@" >"$REPORT""#, "sh"]);
        shell.arg(command.get_program()).args(command.get_args());
        shell.env("REPORT", &report);
        shell.stderr(File::create(&talk).expect("a temporary folder"));
        let (process, ready) = Ready::of(&mut shell, Process::start);
        Heard {
            process,
            ready,
            talk,
            report,
        }
    }

    /// Returns when it counts, once; fails the test where it ends before that.
    pub fn wait_ready(&self) {
        self.ready.wait();
    }

    /// What it has said so far.
    pub fn talk(&self) -> String {
        std::fs::read_to_string(&self.talk).expect("our own file")
    }

    /// What it has written so far.
    pub fn written(&self) -> String {
        std::fs::read_to_string(&self.report).unwrap_or_default()
    }

    /// Waits until it has said this.
    pub fn wait_for(&self, words: &str) {
        wait_until(words, LIMIT, || self.talk().contains(words));
    }

    /// Waits until it has written this.
    pub fn wait_written(&self, words: &str) {
        wait_until(words, LIMIT, || self.written().contains(words));
    }

    /// Waits for its end and takes its report, the last line that it has written.
    pub fn finish(self) -> Report {
        let Heard {
            process,
            talk,
            report,
            ..
        } = self;
        let (_, status) = process.finish();
        let said = std::fs::read_to_string(&talk).unwrap_or_default();
        let _ = std::fs::remove_file(&talk);
        assert!(status.success(), "tiptoe ended with {status}: {said}");
        let text = std::fs::read_to_string(&report).expect("a report");
        let _ = std::fs::remove_file(&report);
        let last = text.trim_end().lines().next_back();
        Report::parse(last.expect("a report"))
    }
}
