//! The program whose locks are measured.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::error::Error;

const SOURCE: &str = include_str!("program.c");

/// A folder where all that is needed is compiled. It goes with this value.
pub(super) struct Workshop {
    folder: PathBuf,
}

impl Workshop {
    /// With the program in it.
    pub(super) fn new() -> Result<Workshop, Error> {
        let folder = std::env::temp_dir().join(format!("tiptoe-lock-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(failed("writing the benched program"))?;
        let workshop = Workshop { folder };
        workshop.compile("program", SOURCE, &["-pthread"])?;
        Ok(workshop)
    }

    /// Compiles a library.
    pub(super) fn library(&self, name: &str, source: &str) -> Result<PathBuf, Error> {
        self.compile(name, source, &["-shared", "-fPIC", "-ldl"])
    }

    fn compile(&self, name: &str, source: &str, options: &[&str]) -> Result<PathBuf, Error> {
        let file = format!("{name}.c");
        let writing = failed("writing the benched program");
        std::fs::write(self.folder.join(&file), source).map_err(writing)?;
        let output = Command::new("cc")
            .args(["-O2", "-o", name, &file])
            .args(options)
            .current_dir(&self.folder)
            .output();
        let output = output.map_err(failed("running `cc`"))?;
        match output.status.success() {
            true => Ok(self.folder.join(name)),
            false => Err(Error::Compile(
                String::from_utf8_lossy(&output.stderr).into_owned(),
            )),
        }
    }

    /// Starts the program, perhaps with a library in front of its others.
    pub(super) fn start(&self, preloaded: Option<&Path>) -> Result<Program, Error> {
        let mut command = Command::new(self.folder.join("program"));
        if let Some(library) = preloaded {
            command.env("LD_PRELOAD", library);
        }
        let mut child = command
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
        })
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        // Who cannot remove it leaves it to the system.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn failed(what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::Io { what, error }
}

/// The running program.
pub(super) struct Program {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Program {
    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The number that it answers.
    pub(super) fn ask(&mut self, question: &str) -> Result<f64, Error> {
        let io = || failed("asking the benched program");
        let questions = self.questions.as_mut();
        let questions = questions.ok_or(Error::Answer(String::new()))?;
        writeln!(questions, "{question}").map_err(io())?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).map_err(io())?;
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
        // It ends with its questions; this fails only where it is gone already.
        self.questions = None;
        let _ = self.child.wait();
    }
}
