//! Reads a report, and the counts that targets expect.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::schema;

/// A report, or another line of `--json`.
#[derive(Debug, Clone)]
pub struct Report {
    /// The parsed JSON.
    pub value: Value,
}

impl Report {
    /// Parses a line. Panics if the line does not match the schema.
    pub fn parse(text: &str) -> Report {
        let value =
            serde_json::from_str(text).unwrap_or_else(|error| panic!("no JSON ({error}): {text}"));
        schema::check(&value);
        Report { value }
    }

    #[cfg(test)]
    pub(crate) fn of_events(events: &str) -> Report {
        let events: Value = serde_json::from_str(events).expect("JSON");
        let value = serde_json::json!({ "events": events });
        Report { value }
    }

    /// Returns the events.
    pub fn events(&self) -> &[Value] {
        self.value["events"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Returns a function's event, by any of its names.
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

    /// Returns the waits and wakes of user locks.
    pub fn lock_calls(&self) -> [Option<u64>; 2] {
        let locks = &self.value["locks"];
        [&locks["waits"], &locks["wakes"]].map(Value::as_u64)
    }

    /// Returns a function's count. Panics without an event.
    pub fn count(&self, function: &str) -> u64 {
        let event = self
            .event(function)
            .unwrap_or_else(|| panic!("no event `{function}`: {:#}", self.value));
        event["count"].as_u64().expect("a count")
    }

    /// Returns how many events are counted via `way`.
    pub fn via(&self, way: &str) -> usize {
        self.events()
            .iter()
            .filter(|event| event["via"] == way)
            .count()
    }

    /// Returns how often each refusal's reason occurs.
    pub fn refusals(&self) -> BTreeMap<String, usize> {
        let mut reasons = BTreeMap::new();
        for refusal in self.value["refusals"].as_array().into_iter().flatten() {
            *reasons
                .entry(refusal["reason"].as_str().unwrap_or_default().to_owned())
                .or_default() += 1;
        }
        reasons
    }

    /// Asserts that each expected count is reported exactly.
    pub fn assert_exact(&self, expected: &ExpectedCounts) {
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

fn function_of(event: &Value) -> Option<&str> {
    let (_, after) = event["event"].as_str()?.split_once(':')?;
    Some(after.split_once(':')?.1)
}

/// Each function's calls as the target printed them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExpectedCounts(pub BTreeMap<String, u64>);

impl ExpectedCounts {
    /// Parses the lines `expect NAME COUNT`.
    pub fn parse(output: &str) -> ExpectedCounts {
        let lines = output
            .lines()
            .filter_map(|line| line.strip_prefix("expect ")?.rsplit_once(' '));
        ExpectedCounts(
            lines
                .filter_map(|(name, count)| Some((name.to_owned(), count.parse().ok()?)))
                .collect(),
        )
    }

    /// Returns the functions.
    pub fn names(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expectations_keep_names_with_spaces_and_colons() {
        let expected = ExpectedCounts::parse("hello\nexpect a::b(int) const 7\nexpect x 0\n");
        assert_eq!(expected.names(), ["a::b(int) const", "x"]);
        assert_eq!(expected.0["a::b(int) const"], 7);
    }

    #[test]
    fn functions_are_found_by_every_name() {
        let event =
            serde_json::json!({"event": "uprobe:hot:till::refuse", "count": 3, "names": ["other"]});
        let report = Report {
            value: serde_json::json!({"events": [event]}),
        };
        assert_eq!(report.count("till::refuse"), 3);
        assert_eq!(report.count("other"), 3);
        assert!(report.event("refuse").is_none());
    }
}
