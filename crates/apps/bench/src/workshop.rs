//! A program that is compiled to be measured, and answers questions over a pipe.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::error::Error;
use crate::private::PrivateFolder;

const ASKING: &str = "asking the benched program";

/// Moments of a thread: a header that programs may include.
pub(crate) const STILL: &str = include_str!("still.h");

/// A folder where all that is needed is compiled. It goes with this value.
pub(crate) struct Workshop {
    folder: PrivateFolder,
}

impl Workshop {
    /// With the program of a bench in it.
    pub(crate) fn new(bench: &str, source: &str) -> Result<Workshop, Error> {
        Workshop::with(bench, source, &[])
    }

    /// With headers besides, by their names.
    pub(crate) fn with(
        bench: &str,
        source: &str,
        headers: &[(&str, &str)],
    ) -> Result<Workshop, Error> {
        let writing = || failed("writing the benched program");
        let folder = PrivateFolder::new(bench).map_err(writing())?;
        for (name, text) in [("still.h", STILL)].iter().chain(headers) {
            std::fs::write(folder.path().join(name), text).map_err(writing())?;
        }
        let workshop = Workshop { folder };
        workshop.compile("program", source, &["-pthread"])?;
        Ok(workshop)
    }

    /// Where it is.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Compiles a library.
    pub(crate) fn library(&self, name: &str, source: &str) -> Result<PathBuf, Error> {
        self.compile(name, source, &["-shared", "-fPIC", "-ldl"])
    }

    fn compile(&self, name: &str, source: &str, options: &[&str]) -> Result<PathBuf, Error> {
        let file = format!("{name}.c");
        let writing = failed("writing the benched program");
        std::fs::write(self.folder().join(&file), source).map_err(writing)?;
        cc(self.folder(), &[&["-o", name, &file][..], options].concat())?;
        Ok(self.folder().join(name))
    }

    /// Starts the program, perhaps with a library in front of its others.
    pub(crate) fn start(&self, preloaded: Option<&Path>) -> Result<Program, Error> {
        let mut command = Command::new(self.folder().join("program"));
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

/// Compiles what lies in a folder.
pub(crate) fn cc(folder: &Path, arguments: &[&str]) -> Result<(), Error> {
    let mut command = Command::new("cc");
    command.arg("-O2").args(arguments).current_dir(folder);
    let output = command.output().map_err(failed("running `cc`"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Error::Compile(
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )),
    }
}

pub(crate) fn failed(what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::Io { what, error }
}

/// The running program.
pub(crate) struct Program {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Program {
    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The number that it answers.
    pub(crate) fn ask(&mut self, question: &str) -> Result<f64, Error> {
        self.begin(question)?;
        self.answer()
    }

    /// Asks, and does not wait.
    pub(crate) fn begin(&mut self, question: &str) -> Result<(), Error> {
        let questions = self.questions.as_mut();
        let questions = questions.ok_or(Error::Answer(String::new()))?;
        writeln!(questions, "{question}").map_err(failed(ASKING))
    }

    /// Waits for the number.
    pub(crate) fn answer(&mut self) -> Result<f64, Error> {
        let mut answer = String::new();
        let read = self.answers.read_line(&mut answer);
        read.map_err(failed(ASKING))?;
        let number = answer.trim().parse();
        number.map_err(|_| Error::Answer(answer.trim().to_owned()))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It ends with its questions; this fails only where it is gone already.
        self.questions = None;
        let _ = self.child.wait();
    }
}
