//! The program that is traced: generated, compiled, and asked over a pipe.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::assembly::{Site, assembly, header};
use crate::error::Error;

const PROGRAM: &str = include_str!("target.c");

/// The running target. It ends, and its folder goes, with this value.
#[derive(Debug)]
pub(crate) struct Target {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    folder: PathBuf,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Measured {
    /// CPU time of one call.
    pub ns_per_call: f64,
    /// How many calls it is the mean of.
    pub calls: u64,
}

/// What is measured: which site, how deep, in how many threads, for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub site: Site,
    pub depth: u32,
    pub threads: u32,
    pub ms: u32,
}

impl Target {
    /// Compiles a program with these sites and starts it.
    pub(crate) fn start(sites: &[Site]) -> Result<Target, Error> {
        let folder = std::env::temp_dir().join(format!("tiptoe-bench-{}", std::process::id()));
        let program = compile(&folder, sites)?;
        let child = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.map_err(|error| Error::Io {
            what: "starting the benched program",
            error,
        })?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both are piped");
        };
        let mut target = Target {
            child,
            questions: Some(stdin),
            answers: BufReader::new(stdout),
            folder,
        };
        // Its first answer comes from main: its libraries are there.
        if let Some(&site) = sites.first() {
            target.probed(site)?;
        }
        Ok(target)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// CPU time per call.
    pub(crate) fn measure(&mut self, question: Question) -> Result<Measured, Error> {
        let Question {
            site,
            depth,
            threads,
            ms,
        } = question;
        let answer = self.ask(&format!("measure {} {depth} {threads} {ms}", site.name))?;
        let parse = || {
            let (ns, calls) = answer.split_once(' ')?;
            Some(Measured {
                ns_per_call: ns.parse().ok()?,
                calls: calls.parse().ok()?,
            })
        };
        parse().ok_or(Error::Answer(answer.clone()))
    }

    /// How many functions of the site carry a probe now.
    pub(crate) fn probed(&mut self, site: Site) -> Result<usize, Error> {
        self.number(&format!("probed {}", site.name))
    }

    /// The longest time in `ms` that a busy thread stood still.
    pub(crate) fn gap_ns(&mut self, ms: u32) -> Result<f64, Error> {
        self.number(&format!("gap {ms}"))
    }

    fn number<T: std::str::FromStr>(&mut self, question: &str) -> Result<T, Error> {
        let answer = self.ask(question)?;
        answer.parse().map_err(|_| Error::Answer(answer))
    }

    fn ask(&mut self, question: &str) -> Result<String, Error> {
        let io = |error| Error::Io {
            what: "asking the benched program",
            error,
        };
        let questions = self
            .questions
            .as_mut()
            .ok_or(Error::Answer(String::new()))?;
        writeln!(questions, "{question}").map_err(io)?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).map_err(io)?;
        Ok(answer.trim().to_owned())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.questions = None;
        // Each fails only where what it ends is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn compile(folder: &Path, sites: &[Site]) -> Result<PathBuf, Error> {
    let io = |error| Error::Io {
        what: "writing the benched program",
        error,
    };
    std::fs::create_dir_all(folder).map_err(io)?;
    let files = [
        ("target.c", PROGRAM.to_owned()),
        ("sites.h", header(sites)),
        ("sites.S", assembly(sites)),
    ];
    for (name, text) in files {
        std::fs::write(folder.join(name), text).map_err(io)?;
    }
    let arguments = [
        "-O2",
        "-pthread",
        "-o",
        "bench-target",
        "target.c",
        "sites.S",
    ];
    let output = Command::new("cc")
        .args(arguments)
        .current_dir(folder)
        .output();
    let output = output.map_err(|error| Error::Io {
        what: "running `cc`",
        error,
    })?;
    if !output.status.success() {
        return Err(Error::Compile(
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ));
    }
    Ok(folder.join("bench-target"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assembly::{KINDS, MANY, SHARED, TRAP};

    #[test]
    fn the_generated_program_answers() {
        let sites = [&KINDS[..], &[TRAP, MANY[0], SHARED]].concat();
        let mut target = Target::start(&sites).expect("cc is installed");
        for site in sites {
            for (depth, threads) in [(0, 1), (5, 1), (0, 2)] {
                let measured = target
                    .measure(Question {
                        site,
                        depth,
                        threads,
                        ms: 1,
                    })
                    .expect("an answer");
                assert!(
                    measured.ns_per_call > 0.0 && measured.calls >= site.functions as u64,
                    "{site:?}"
                );
            }
            assert_eq!(target.probed(site).expect("an answer"), 0);
        }
        assert!(target.gap_ns(5).expect("an answer") >= 0.0);
    }
}
