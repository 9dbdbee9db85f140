//! The program whose locks are measured. Its folder goes with this value.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::error::Error;

const SOURCE: &str = include_str!("program.c");

/// The running program.
pub(super) struct Program {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    folder: PathBuf,
}

impl Program {
    /// Compiles and starts it.
    pub(super) fn start() -> Result<Program, Error> {
        let folder = std::env::temp_dir().join(format!("tiptoe-lock-{}", std::process::id()));
        let failed = |what| move |error| Error::Io { what, error };
        let writing = "writing the benched program";
        std::fs::create_dir_all(&folder).map_err(failed(writing))?;
        std::fs::write(folder.join("program.c"), SOURCE).map_err(failed(writing))?;
        let output = Command::new("cc")
            .args(["-O2", "-pthread", "-o", "program", "program.c"])
            .current_dir(&folder)
            .output();
        let output = output.map_err(failed("running `cc`"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Error::Compile(said));
        }
        let mut child = Command::new(folder.join("program"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed("starting the benched program"))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both are piped");
        };
        Ok(Program {
            child,
            questions: Some(stdin),
            answers: BufReader::new(stdout),
            folder,
        })
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The number that it answers.
    pub(super) fn ask(&mut self, question: &str) -> Result<f64, Error> {
        let io = |error| Error::Io {
            what: "asking the benched program",
            error,
        };
        let questions = self.questions.as_mut();
        let questions = questions.ok_or(Error::Answer(String::new()))?;
        writeln!(questions, "{question}").map_err(io)?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).map_err(io)?;
        let number = answer.trim().parse();
        number.map_err(|_| Error::Answer(answer.trim().to_owned()))
    }

    /// Whether its locks are watched.
    pub(super) fn is_armed(&mut self) -> Result<bool, Error> {
        Ok(self.ask("armed")? != 0.0)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It ends with its questions. Each fails only where what it ends is gone already.
        self.questions = None;
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
