//! Runs tests: those of `tests/owners.txt` one at a time, all others concurrently.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use super::list::Test;
use super::one::{self, Outcome};

/// Lists the tests that run one at a time, by the beginning of their names. Tests on a line that begins with
/// [`ALONE`] run last, beside no other.
pub const OWNERS: &str = "tests/owners.txt";
const ALONE: &str = "alone ";

fn owners(text: &str) -> Vec<&str> {
    let lines = text.lines();
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect()
}

/// Returns a name of [`OWNERS`] with which no test begins, for example after a test was renamed.
pub fn without_test(tests: &[Test]) -> Option<String> {
    let text = crate::read(OWNERS);
    let names = owners(&text).into_iter();
    let mut names = names.map(|line| line.strip_prefix(ALONE).unwrap_or(line));
    let unused = names.find(|name| !tests.iter().any(|test| test.name.starts_with(name)))?;
    Some(unused.to_owned())
}

pub fn run(tests: Vec<&Test>, costs: &HashMap<String, f64>, command: &Path) -> Vec<Outcome> {
    let text = crate::read(OWNERS);
    let owners = owners(&text);
    let is_owner = |test: &&Test| owners.iter().any(|name| test.name.starts_with(name));
    let is_alone = |test: &&Test| {
        let mut names = owners.iter().filter_map(|line| line.strip_prefix(ALONE));
        names.any(|name| test.name.starts_with(name))
    };
    let (alone, tests): (Vec<&Test>, Vec<&Test>) = tests.into_iter().partition(is_alone);
    let (owning, others): (Vec<&Test>, Vec<&Test>) = tests.into_iter().partition(is_owner);
    let queues = [owning, others, alone].map(|tests| Mutex::new(longest_first(tests, costs)));
    let outcomes = Mutex::new(Vec::new());
    let turn = AtomicUsize::new(0);
    let begin = Instant::now();
    let work = |queue: &Mutex<VecDeque<&Test>>| {
        while let Some(test) = pop(queue) {
            let part = turn.fetch_add(1, Relaxed).to_string();
            let outcome = one::run(test, command, &part);
            outcomes.lock().expect("no panic").push(outcome);
        }
    };
    // There are more threads than CPUs, because tests also wait.
    let threads = 1 + std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| work(&queues[1]));
        }
        // This thread is additional, because its tests wait more than they work.
        scope.spawn(|| {
            work(&queues[0]);
            println!(
                "tests: those that run one at a time took {} s",
                begin.elapsed().as_secs()
            );
        });
    });
    work(&queues[2]);
    outcomes.into_inner().expect("no panic")
}

fn pop<'a>(queue: &Mutex<VecDeque<&'a Test>>) -> Option<&'a Test> {
    queue.lock().expect("no panic").pop_front()
}

/// Sorts tests, the longest first. Those without a recorded cost are short or new, and start last.
fn longest_first<'a>(mut tests: Vec<&'a Test>, costs: &HashMap<String, f64>) -> VecDeque<&'a Test> {
    let cost = |test: &Test| costs.get(&test.name).copied().unwrap_or(1.0);
    tests.sort_by(|a, b| cost(b).total_cmp(&cost(a)));
    tests.into()
}
