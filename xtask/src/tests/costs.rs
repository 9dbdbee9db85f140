//! `tests/costs.txt`: the run times of the longest tests.

use std::collections::HashMap;
use std::fmt::Write;

use super::one::Outcome;
use crate::root;

const FILE: &str = "tests/costs.txt";
/// Shorter tests are not listed.
const LEAST_S: f64 = 1.5;
const HEAD: &str = "# Seconds that a test takes on two busy cores, longest first: `cargo run -p xtask -- tests --write-costs`.\n";

pub fn read() -> HashMap<String, f64> {
    let text = std::fs::read_to_string(root().join(FILE)).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines
        .filter_map(|(cost, name)| Some((name.to_owned(), cost.parse().ok()?)))
        .collect()
}

pub fn write(outcomes: &[Outcome]) {
    let mut rows: Vec<(&str, f64)> = outcomes
        .iter()
        .map(|outcome| (outcome.name.as_str(), outcome.seconds))
        .collect();
    rows.retain(|(_, seconds)| *seconds >= LEAST_S);
    rows.sort_by(|a, b| b.1.total_cmp(&a.1));
    let text = rows
        .iter()
        .fold(HEAD.to_owned(), |mut text, (name, seconds)| {
            writeln!(text, "{seconds:.1} {name}").expect("a String");
            text
        });
    std::fs::write(root().join(FILE), text).unwrap_or_else(|error| panic!("{FILE}: {error}"));
}
