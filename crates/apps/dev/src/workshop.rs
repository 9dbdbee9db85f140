//! Compiles and runs the program that a bench measures. The program answers questions over a pipe.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::error::Error;
use crate::private::PrivateFolder;

const ASKING: &str = "asking the benched program";

pub(crate) const HEADERS: [(&str, &str); 2] = [
    ("still.h", include_str!("still.h")),
    ("pinned.h", include_str!("pinned.h")),
];

pub(crate) struct Workshop {
    folder: PrivateFolder,
}

impl Workshop {
    pub(crate) fn new(bench: &str, source: &str) -> Result<Workshop, Error> {
        Workshop::with(bench, source, &[])
    }

    /// Makes a folder with a bench's compiled program. `headers` are names and texts.
    pub(crate) fn with(
        bench: &str,
        source: &str,
        headers: &[(&str, &str)],
    ) -> Result<Workshop, Error> {
        let writing = || failed("writing the benched program");
        let folder = PrivateFolder::new(bench).map_err(writing())?;
        for (name, text) in HEADERS.iter().chain(headers) {
            std::fs::write(folder.path().join(name), text).map_err(writing())?;
        }
        let workshop = Workshop { folder };
        workshop.compile("program", source, &["-pthread", "-lm"])?;
        Ok(workshop)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

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

/// Refuses `nan` and `inf`.
pub(crate) fn finite(answer: &str) -> Result<f64, Error> {
    let number = answer
        .parse()
        .ok()
        .filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| Error::Answer(answer.to_owned()))
}

pub(crate) fn cc(folder: &Path, arguments: &[&str]) -> Result<(), Error> {
    let mut command = Command::new("cc");
    command.arg("-O2").args(arguments).current_dir(folder);
    // The bench removes this folder; a killed compiler leaves its temporary files.
    command.env("TMPDIR", folder);
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

pub(crate) struct Program {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Program {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn ask(&mut self, question: &str) -> Result<f64, Error> {
        self.begin(question)?;
        self.answer()
    }

    pub(crate) fn begin(&mut self, question: &str) -> Result<(), Error> {
        let questions = self.questions.as_mut();
        let questions = questions.ok_or(Error::Answer(String::new()))?;
        writeln!(questions, "{question}").map_err(failed(ASKING))
    }

    pub(crate) fn answer(&mut self) -> Result<f64, Error> {
        let mut answer = String::new();
        let read = self.answers.read_line(&mut answer);
        read.map_err(failed(ASKING))?;
        finite(answer.trim())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The program ends when its stdin is closed.
        self.questions = None;
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_number() {
        assert_eq!(finite("13.5").ok(), Some(13.5));
        for answer in ["nan", "-nan", "inf", "", "what?"] {
            assert!(matches!(finite(answer), Err(Error::Answer(_))), "{answer}");
        }
    }
}
