//! The traced program, which is generated and compiled, and answers questions over a pipe.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::assembly::{Site, assembly, header};
use crate::error::Error;
use crate::private::PrivateFolder;
use crate::workshop::{HEADERS, cc, failed, finite};

const PROGRAM: &str = include_str!("target.c");
const PROGRAM_NAME: &str = "bench-target";

#[derive(Debug)]
pub(crate) struct Target {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    folder: PrivateFolder,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CallTimes {
    /// The mean over the copies of the called functions.
    pub ns_per_call: f64,
    pub calls: u64,
    /// The calls of all threads per second of wall time.
    pub per_s: f64,
    pinned: u32,
}

impl CallTimes {
    fn parse(answer: &str) -> Option<CallTimes> {
        let mut words = answer.split(' ');
        Some(CallTimes {
            ns_per_call: finite(words.next()?).ok()?,
            calls: words.next()?.parse().ok()?,
            per_s: finite(words.next()?).ok()?,
            pinned: words.next()?.parse().ok()?,
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub site: Site,
    pub depth: u32,
    pub threads: u32,
    pub ms: u32,
}

impl Target {
    pub(crate) fn start(sites: &[Site]) -> Result<Target, Error> {
        Target::start_under(&[], sites)
    }

    /// Starts the program under `tracer`, a command whose last argument is the program.
    pub(crate) fn start_under(tracer: &[&str], sites: &[Site]) -> Result<Target, Error> {
        let folder = PrivateFolder::new("bench").map_err(failed("making a folder"))?;
        let program = compile(folder.path(), sites)?;
        let program = program.as_os_str();
        let words: Vec<&OsStr> = tracer.iter().map(OsStr::new).chain([program]).collect();
        let child = Command::new(words[0])
            .args(&words[1..])
            .current_dir(folder.path())
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
        // An answer shows that main runs, so all libraries are loaded.
        if let Some(&site) = sites.first() {
            target.probed(site)?;
        }
        Ok(target)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn program(&self) -> PathBuf {
        self.folder.path().join(PROGRAM_NAME)
    }

    pub(crate) fn measure(&mut self, question: Question) -> Result<CallTimes, Error> {
        let Question {
            site,
            depth,
            threads,
            ms,
        } = question;
        let ms = (ms / site.places as u32).max(1);
        let mut whole = CallTimes {
            ns_per_call: 0.0,
            calls: 0,
            per_s: 0.0,
            pinned: threads,
        };
        let mut s_per_call = 0.0;
        for name in site.names() {
            let answer = self.ask(&format!("measure {name} {depth} {threads} {ms}"))?;
            let parsed = CallTimes::parse(&answer).filter(|times| times.pinned == threads);
            let parsed = parsed.ok_or(Error::Answer(answer))?;
            whole.ns_per_call += parsed.ns_per_call / site.places as f64;
            whole.calls += parsed.calls;
            s_per_call += 1.0 / (parsed.per_s * site.places as f64);
        }
        whole.per_s = 1.0 / s_per_call;
        Ok(whole)
    }

    pub(crate) fn probed(&mut self, site: Site) -> Result<usize, Error> {
        let questions = site.names().map(|name| format!("probed {name}"));
        questions
            .map(|question| self.number::<usize>(&question))
            .sum()
    }

    /// Returns the longest time in `ms` that a busy thread did not run, while `others` threads wait.
    pub(crate) fn gap_ns(&mut self, ms: u32, others: u32) -> Result<f64, Error> {
        self.number(&format!("gap {ms} {others}"))
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
        // The program ends when its stdin is closed. So a tracer that started it can end by itself, and clean up.
        self.questions = None;
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn compile(folder: &Path, sites: &[Site]) -> Result<PathBuf, Error> {
    let io = |error| Error::Io {
        what: "writing the benched program",
        error,
    };
    let files = [
        ("target.c", PROGRAM.to_owned()),
        ("sites.h", header(sites)),
        ("sites.S", assembly(sites)),
    ];
    let headers = HEADERS.map(|(name, text)| (name, text.to_owned()));
    for (name, text) in files.into_iter().chain(headers) {
        std::fs::write(folder.join(name), text).map_err(io)?;
    }
    let arguments = ["-pthread", "-o", PROGRAM_NAME, "target.c", "sites.S"];
    cc(folder, &arguments)?;
    Ok(folder.join(PROGRAM_NAME))
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
                let is_whole = measured.ns_per_call > 0.0 && measured.per_s > 0.0;
                assert!(
                    is_whole && measured.calls >= site.functions as u64,
                    "{site:?}"
                );
            }
            assert_eq!(target.probed(site).expect("an answer"), 0);
        }
        assert!(target.gap_ns(5, 1).expect("an answer") >= 0.0);
    }

    #[test]
    fn every_thread_has_its_cpu() {
        let mut target = Target::start(&[KINDS[0]]).expect("cc is installed");
        for threads in [1, 2, 300] {
            let question = Question {
                site: KINDS[0],
                depth: 0,
                threads,
                ms: 1,
            };
            let measured = target.measure(question).expect("an answer");
            assert_eq!(measured.pinned, threads);
        }
        assert!(target.gap_ns(5, 300).expect("an answer") >= 0.0);
    }
}
