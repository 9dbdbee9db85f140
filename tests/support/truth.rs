//! Parses what a target prints about the ends of its calls, and compares a report with the numbers.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use crate::report::{ExpectedCounts, Report};

/// The lines `expect`, `returns`, `left`, `inside` and `unfinished` of a target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Truth(pub BTreeMap<String, Calls>);

/// One function's calls; `None` if the target prints no number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Calls {
    /// Every call.
    pub entries: u64,
    /// Calls that returned.
    pub returns: Option<u64>,
    /// Calls that ended by an exception, longjmp, or the end of their thread.
    pub left: Option<u64>,
    /// Calls that still run when the program ends.
    pub inside: Option<u64>,
    /// `left` plus `inside`, if the target knows only the sum.
    pub unfinished: Option<u64>,
}

/// How returns are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReturnComparison {
    /// Every call must be timed.
    Enough,
    /// Some calls may be only counted.
    Bounded,
}

impl Truth {
    /// Parses a target's output.
    pub fn parse(output: &str) -> Truth {
        let mut truth = Truth::default();
        output.lines().for_each(|line| truth.read(line));
        truth
    }

    fn read(&mut self, line: &str) {
        let Some((name, count)) = parse_number(line) else {
            return;
        };
        let calls = self.0.entry(name.to_owned()).or_default();
        match line.split(' ').next() {
            Some("expect") => calls.entries = count,
            Some("returns") => calls.returns = Some(count),
            Some("left") => calls.left = Some(count),
            Some("inside") => calls.inside = Some(count),
            _ => calls.unfinished = Some(count),
        }
    }

    /// Returns the entered functions.
    pub fn names(&self) -> Vec<&str> {
        let entered = self.0.iter().filter(|(_, calls)| calls.entries > 0);
        entered.map(|(name, _)| name.as_str()).collect()
    }

    /// Returns only the entries.
    pub fn entries(&self) -> ExpectedCounts {
        let entries = self
            .0
            .iter()
            .map(|(name, calls)| (name.clone(), calls.entries));
        ExpectedCounts(entries.filter(|(_, count)| *count > 0).collect())
    }
}

/// Returns the output without the lines of [`Truth`], whose numbers vary.
pub fn without_truth(output: &str) -> String {
    let lines = output.lines().filter(|line| parse_number(line).is_none());
    lines.fold(String::new(), |text, line| text + line + "\n")
}

fn parse_number(line: &str) -> Option<(&str, u64)> {
    let (word, rest) = line.split_once(' ')?;
    let known = ["expect", "returns", "left", "inside", "unfinished"].contains(&word);
    let (name, count) = rest.rsplit_once(' ')?;
    Some((name, count.parse().ok().filter(|_| known)?))
}

impl Report {
    /// Returns a number of an event. Panics without it.
    pub fn number(&self, function: &str, key: &str) -> u64 {
        let event = self
            .event(function)
            .unwrap_or_else(|| panic!("no event `{function}`: {:#}", self.value));
        let number = event.get(key).and_then(Value::as_u64);
        number.unwrap_or_else(|| panic!("`{function}` has no `{key}`: {event:#}"))
    }

    /// Returns whether an event is `uretprobe:`.
    pub fn counts_returns(&self, function: &str) -> bool {
        let event = self
            .event(function)
            .and_then(|event| event["event"].as_str());
        event.is_some_and(|event| event.starts_with("uretprobe:"))
    }

    /// Returns the entries.
    pub fn entries(&self, function: &str) -> u64 {
        match self.counts_returns(function) {
            true => self.ends(function),
            false => self.count(function),
        }
    }

    /// Returns the number of all ends.
    pub fn ends(&self, function: &str) -> u64 {
        let ends = ["returns", "left", "inside", "only_counted"];
        ends.iter().map(|end| self.number(function, end)).sum()
    }

    /// Returns the count that an event must have by its ends.
    pub fn count_by_ends(&self, function: &str) -> u64 {
        match self.counts_returns(function) {
            true => self.number(function, "returns"),
            false => self.ends(function),
        }
    }

    /// Asserts the target's numbers, that every entry has an end, and that all events but `uretprobe:` have times.
    pub fn assert_returns(&self, truth: &Truth, comparison: ReturnComparison) {
        let mut wrong = String::new();
        assert!(!truth.names().is_empty(), "the target expects nothing");
        for name in truth.names() {
            self.compare(name, &truth.0[name], comparison, &mut wrong);
        }
        assert!(wrong.is_empty(), "{wrong}{:#}", self.value);
    }

    fn compare(&self, name: &str, calls: &Calls, comparison: ReturnComparison, wrong: &mut String) {
        let [count, returns, left, inside, counted] =
            ["count", "returns", "left", "inside", "only_counted"]
                .map(|key| self.number(name, key));
        let timed = self
            .event(name)
            .is_some_and(|event| event.get("histogram").is_some());
        let counted_returns = match comparison {
            ReturnComparison::Enough => returns,
            ReturnComparison::Bounded => returns + counted,
        };
        // Calls that still run when the program ends are reported as left.
        let left_at_the_end = calls.left.map(|left| left + calls.inside.unwrap_or(0));
        let rows = [
            ("entries", Some(calls.entries), self.entries(name)),
            ("returns", calls.returns, counted_returns),
            ("left", left_at_the_end, left),
            ("inside", Some(0), inside),
            ("unfinished", calls.unfinished, left),
            ("count", Some(self.count_by_ends(name)), count),
            (
                "histograms",
                Some(u64::from(!self.counts_returns(name))),
                u64::from(timed),
            ),
            (
                "only_counted",
                (comparison == ReturnComparison::Enough).then_some(0),
                counted,
            ),
        ];
        for (what, expected, reported) in rows {
            if expected.is_some_and(|expected| expected != reported) {
                let expected = expected.unwrap_or_default();
                writeln!(
                    wrong,
                    "{name}: {what} expected {expected}, reported {reported}"
                )
                .expect("a String");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str =
        "sum 5\nexpect a::b 7\nreturns a::b 4\nleft a::b 2\ninside a::b 1\nexpect c 0\n";

    const ENDS: &str = r#""returns": 4, "left": 3, "inside": 0, "only_counted": 0"#;

    fn check(event: &str) {
        let report = Report::of_events(&format!("[{{{event}}}]"));
        report.assert_returns(&Truth::parse(OUTPUT), ReturnComparison::Enough);
    }

    #[test]
    fn the_targets_numbers_are_parsed_and_compared_with_a_report() {
        assert_eq!(Truth::parse(OUTPUT).names(), ["a::b"]);
        assert_eq!(without_truth(OUTPUT), "sum 5\n");
        check(&format!(
            r#""event": "uprobe:hot:a::b", "count": 7, {ENDS}, "histogram": {{}}"#
        ));
        check(&format!(
            r#""event": "uretprobe:hot:a::b", "count": 4, {ENDS}"#
        ));
    }

    #[test]
    #[should_panic(expected = "a::b: left expected 3, reported 2")]
    fn a_wrong_number_is_named() {
        let ends = ENDS
            .replace("\"left\": 3", "\"left\": 2")
            .replace("\"inside\": 0", "\"inside\": 1");
        check(&format!(
            r#""event": "uprobe:hot:a::b", "count": 7, {ends}, "histogram": {{}}"#
        ));
    }

    #[test]
    #[should_panic(expected = "a::b: count expected 4, reported 7")]
    fn returns_are_no_entries() {
        check(&format!(
            r#""event": "uretprobe:hot:a::b", "count": 7, {ENDS}"#
        ));
    }

    #[test]
    #[should_panic(expected = "a::b: histograms expected 1, reported 0")]
    fn entries_are_timed() {
        check(&format!(
            r#""event": "uprobe:hot:a::b", "count": 7, {ENDS}"#
        ));
    }
}
