//! Runs a tiptoe whose messages a test waits for.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use crate::process::{Process, wait_until};
use crate::ready::Ready;
use crate::report::Report;

const LIMIT: Duration = Duration::from_secs(60);

/// A running tiptoe.
#[derive(Debug)]
pub struct LoggedTiptoe {
    /// The command.
    pub process: Process,
    ready: Ready,
    talk: PathBuf,
    report: PathBuf,
}

impl LoggedTiptoe {
    /// Starts a tiptoe command with its report and its messages in files.
    pub fn start(command: &mut Command) -> LoggedTiptoe {
        static TURN: AtomicU32 = AtomicU32::new(0);
        // Relaxed: only the numbers must differ.
        let turn = TURN.fetch_add(1, Relaxed);
        let file = |what: &str| {
            let name = format!("tiptoe-logged-{}-{turn}-{what}", std::process::id());
            std::env::temp_dir().join(name)
        };
        let (talk, report) = (file("talk"), file("report"));
        // A killed run may have left this file.
        let _ = std::fs::remove_file(&report);
        command.stderr(File::create(&talk).expect("a temporary folder"));
        command.arg("-o").arg(&report);
        let (process, ready) = Ready::of(command, Process::start);
        LoggedTiptoe {
            process,
            ready,
            talk,
            report,
        }
    }

    /// Waits as [`Ready::wait`] does.
    pub fn wait_ready(&self) {
        self.ready.wait();
    }

    /// Returns the messages so far.
    pub fn talk(&self) -> String {
        std::fs::read_to_string(&self.talk).expect("our own file")
    }

    /// Waits for a message with `words`.
    pub fn wait_for(&self, words: &str) {
        wait_until(words, LIMIT, || self.talk().contains(words));
    }

    /// Waits for tiptoe's end.
    pub fn finish(self) -> Report {
        let LoggedTiptoe {
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
        Report::parse(&text)
    }
}
