//! The report's JSON, and the counts that targets expect of it.

use std::collections::BTreeMap;

use serde_json::Value;

/// A report, as `--json` printed it.
#[derive(Debug, Clone)]
pub struct Report {
    /// The JSON itself.
    pub value: Value,
}

impl Report {
    /// Parses one JSON value; panics with the text where it is none.
    pub fn parse(text: &str) -> Report {
        let value =
            serde_json::from_str(text).unwrap_or_else(|error| panic!("no JSON ({error}): {text}"));
        Report { value }
    }

    /// The events.
    pub fn events(&self) -> &[Value] {
        self.value["events"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The event of a function, by any of its names.
    pub fn event(&self, function: &str) -> Option<&Value> {
        self.events().iter().find(|event| {
            let named = event["names"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|name| name == function);
            named || function_of(event) == Some(function)
        })
    }

    /// Waits and wakes, of the locks of programs.
    pub fn lock_calls(&self) -> [Option<u64>; 2] {
        let locks = &self.value["locks"];
        [&locks["waits"], &locks["wakes"]].map(Value::as_u64)
    }

    /// The count of a function; panics where it is no event.
    pub fn count(&self, function: &str) -> u64 {
        let event = self
            .event(function)
            .unwrap_or_else(|| panic!("no event `{function}`: {:#}", self.value));
        event["count"].as_u64().expect("a count")
    }

    /// How many events went each way: `agent`, `kernel`.
    pub fn via(&self, way: &str) -> usize {
        self.events()
            .iter()
            .filter(|event| event["via"] == way)
            .count()
    }

    /// Reasons of refusals, with how often each was given.
    pub fn refusals(&self) -> BTreeMap<String, usize> {
        let mut reasons = BTreeMap::new();
        for refusal in self.value["refusals"].as_array().into_iter().flatten() {
            *reasons
                .entry(refusal["reason"].as_str().unwrap_or_default().to_owned())
                .or_default() += 1;
        }
        reasons
    }

    /// Every expected count is exactly what was counted.
    pub fn assert_exact(&self, expected: &Expected) {
        assert!(!expected.0.is_empty(), "the target expects nothing");
        let wrong: Vec<String> = expected
            .0
            .iter()
            .map(|(name, count)| (name, *count, self.count(name)))
            .filter(|(_, expected, counted)| expected != counted)
            .map(|(name, expected, counted)| {
                format!("{name}: expected {expected}, counted {counted}")
            })
            .collect();
        assert!(wrong.is_empty(), "{}\n{:#}", wrong.join("\n"), self.value);
    }
}

/// `uprobe:BINARY:FUNCTION` -> FUNCTION, which may hold `::`.
fn function_of(event: &Value) -> Option<&str> {
    let (_, after) = event["event"].as_str()?.split_once(':')?;
    Some(after.split_once(':')?.1)
}

/// What a target says of its own calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expected(pub BTreeMap<String, u64>);

impl Expected {
    /// Reads the lines `expect NAME COUNT` out of a target's output.
    pub fn parse(output: &str) -> Expected {
        let lines = output
            .lines()
            .filter_map(|line| line.strip_prefix("expect ")?.rsplit_once(' '));
        Expected(
            lines
                .filter_map(|(name, count)| Some((name.to_owned(), count.parse().ok()?)))
                .collect(),
        )
    }

    /// The names.
    pub fn names(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expectations_keep_names_with_spaces_and_colons() {
        let expected = Expected::parse("hello\nexpect a::b(int) const 7\nexpect x 0\n");
        assert_eq!(expected.names(), ["a::b(int) const", "x"]);
        assert_eq!(expected.0["a::b(int) const"], 7);
    }

    #[test]
    fn functions_are_found_by_every_name() {
        let report = Report::parse(
            r#"{"events": [{"event": "uprobe:hot:till::refuse", "count": 3, "names": ["other"]}]}"#,
        );
        assert_eq!(report.count("till::refuse"), 3);
        assert_eq!(report.count("other"), 3);
        assert!(report.event("refuse").is_none());
    }
}
