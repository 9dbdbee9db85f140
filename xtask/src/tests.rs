//! Runs every test of the workspace, each in its own process under a keeper ([`crate::keep`]).
//!
//! - Tests that need what a machine has only once, such as debug registers (`tests/owners.txt`), run one at a time,
//!   all others concurrently. The longest tests start first (`tests/costs.txt`, rewritten by `--write-costs`).
//! - A failed test leaves its output and stacks in `target/failed/NAME`.
//! - A failed test is run again when all others have ended. If it passes, it is `flaky`, and the run succeeds.
//! - Tests marked `#[ignore = "nightly: why"]` run only with `--nightly`.

mod costs;
mod list;
mod one;
mod pools;

use std::path::PathBuf;
use std::time::Instant;

use list::Test;
use one::Outcome;

use crate::root;

/// What to run.
#[derive(Debug, Default)]
pub struct Options {
    is_nightly: bool,
    writes_costs: bool,
    repeat: usize,
    filters: Vec<String>,
}

impl Options {
    /// Reads the command line; `None` if it is wrong.
    pub fn parse(words: &[&str]) -> Option<Options> {
        let mut options = Options {
            repeat: 1,
            ..Options::default()
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--nightly" => options.is_nightly = true,
                "--write-costs" => options.writes_costs = true,
                "--repeat" => options.repeat = words.next()?.parse().ok()?,
                word if word.starts_with('-') => return None,
                word => options.filters.push(word.to_owned()),
            }
        }
        Some(options)
    }
}

const FLAKY: &str = "target/test-flaky";

pub(crate) fn failed_folder() -> PathBuf {
    root().join("target/failed")
}

/// Builds and runs the tests. Returns the exit status.
pub fn run(options: &Options) -> i32 {
    crate::keep::adopt();
    let begin = Instant::now();
    let Some(built) = list::build() else { return 1 };
    println!("tests: built in {:.0} s", begin.elapsed().as_secs_f64());
    let mut tests = list::tests(&built);
    if let Some(name) = pools::without_test(&tests) {
        println!("tests: {}: no test begins with {name}", pools::OWNERS);
        return 1;
    }
    let all = tests.len();
    tests.retain(|test| options.is_nightly || !test.is_nightly);
    let left_out = all - tests.len();
    tests.retain(|test| {
        options.filters.is_empty() || options.filters.iter().any(|part| test.name.contains(part))
    });
    let _ = std::fs::remove_dir_all(failed_folder());
    let begin = Instant::now();
    let repeated = std::iter::repeat_n(&tests, options.repeat).flatten();
    let outcomes = pools::run(repeated.collect(), &costs::read(), &built.command);
    let (passed, failed): (Vec<Outcome>, Vec<Outcome>) =
        outcomes.into_iter().partition(Outcome::is_ok);
    if options.writes_costs {
        costs::write(&passed);
    }
    println!("tests: ran in {:.0} s", begin.elapsed().as_secs_f64());
    let (flaky, failed) = match options.is_nightly {
        true => (Vec::new(), failed),
        false => try_again(failed, &tests, &built.command),
    };
    crate::keep::kill_all();
    sum_up(&passed, &flaky, &failed, left_out)
}

fn try_again(
    failed: Vec<Outcome>,
    tests: &[Test],
    command: &std::path::Path,
) -> (Vec<Outcome>, Vec<Outcome>) {
    // If more tests fail, the change is probably the cause, so no test is run again.
    const MERCY: usize = 12;
    if failed.len() > MERCY {
        return (Vec::new(), failed);
    }
    failed.into_iter().partition(|outcome| {
        let test = tests
            .iter()
            .find(|test| test.name == outcome.name)
            .expect("it ran");
        println!("tests: {} failed; once more by itself", test.name);
        one::run(test, command, "again").is_ok()
    })
}

fn sum_up(passed: &[Outcome], flaky: &[Outcome], failed: &[Outcome], left_out: usize) -> i32 {
    let mut slowest: Vec<&Outcome> = passed.iter().collect();
    slowest.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    for outcome in slowest.iter().take(10) {
        println!("slow: {} ({:.1} s)", outcome.name, outcome.seconds);
    }
    for outcome in failed {
        println!("failed: {outcome}");
    }
    let mut lines = String::new();
    for outcome in flaky {
        lines += &format!("{outcome}\n");
    }
    print!(
        "{}",
        lines
            .lines()
            .map(|line| format!("flaky: {line}\n"))
            .collect::<String>()
    );
    // `make test` and `scripts/flaky.sh` read this file.
    let _ = std::fs::write(root().join(FLAKY), lines);
    println!("tests: {left_out} tests run in `make nightly` only");
    println!(
        "{} passed, {} failed",
        passed.len() + flaky.len(),
        failed.len()
    );
    i32::from(!failed.is_empty())
}
