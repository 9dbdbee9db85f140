//! A report's form: the part on which programs rely, without numbers. It is a set, because how many lines a report has,
//! and in which order, depends on chance.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::Report;

/// The form of a report.
#[derive(Debug, Default)]
pub struct Form(BTreeSet<String>);

impl Form {
    /// Returns `PATH: VALUE` for each value. Strings at the paths in `any` become `text`.
    pub fn of_json(lines: &str, any: &[&str]) -> Form {
        let mut form = Form::default();
        for line in lines.lines().filter(|line| line.starts_with('{')) {
            form.add("", &Report::parse(line).value, any);
        }
        form
    }

    /// Returns the form of text: numbers are `0`, spaces single.
    pub fn of_text(text: &str) -> Form {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        Form(lines.map(|line| masked(&words(line))).collect())
    }

    fn add(&mut self, path: &str, value: &Value, any: &[&str]) {
        let said = match value {
            Value::Object(keys) => {
                keys.iter()
                    .for_each(|(key, value)| self.add(&format!("{path}.{key}"), value, any));
                return;
            }
            Value::Array(all) if !all.is_empty() => {
                all.iter()
                    .for_each(|value| self.add(&format!("{path}[]"), value, any));
                return;
            }
            Value::Array(_) => "[]".to_owned(),
            Value::Number(_) => "0".to_owned(),
            Value::String(_) if any.contains(&path) => "text".to_owned(),
            Value::String(text) => format!("{:?}", masked(text)),
            Value::Bool(_) | Value::Null => value.to_string(),
        };
        self.0.insert(format!("{path}: {said}"));
    }

    /// Asserts the form. Lines that begin with `?` may be missing.
    pub fn assert_is(&self, expected: &str) {
        let lines = expected.lines().filter(|line| !line.is_empty());
        let (chance, always): (BTreeSet<&str>, BTreeSet<&str>) =
            lines.partition(|line| line.starts_with('?'));
        let chance: BTreeSet<&str> = chance.iter().map(|line| line[1..].trim_start()).collect();
        let found: BTreeSet<&str> = self.0.iter().map(String::as_str).collect();
        let missing: Vec<_> = always.difference(&found).collect();
        let new: Vec<_> = found
            .iter()
            .filter(|line| !always.contains(*line) && !chance.contains(*line))
            .collect();
        let whole: Vec<&str> = found.iter().copied().collect();
        assert!(
            missing.is_empty() && new.is_empty(),
            "missing: {missing:#?}\nnew: {new:#?}\n{}",
            whole.join("\n")
        );
    }
}

fn masked(text: &str) -> String {
    let mut masked = String::new();
    let mut is_in_number = false;
    for (at, char) in text.char_indices() {
        let next = text[at + char.len_utf8()..].chars().next();
        let is_point = char == '.' && is_in_number && next.is_some_and(|c| c.is_ascii_digit());
        match char.is_ascii_digit() || is_point {
            true if is_in_number => {}
            true => masked.push('0'),
            false => masked.push(char),
        }
        is_in_number = char.is_ascii_digit() || is_point;
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_masked_and_all_else_is_kept() {
        let text = "  12.5,ns,cs-1 3.14.15 1.\nuser 3";
        Form::of_text(text).assert_is("0,ns,cs-0 0 0.\nuser 0\n? luck");
        let json = serde_json::json!({"a": [{"b": 1.5}, {"b": 2, "c": "x7"}], "d": [], "e": "any"});
        let mut form = Form::default();
        form.add("", &json, &[".e"]);
        form.assert_is(".a[].b: 0\n.a[].c: \"x0\"\n.d: []\n.e: text");
    }

    #[test]
    #[should_panic(expected = "missing: [")]
    fn a_lost_line_fails() {
        Form::of_text("a 1").assert_is("a 0\nb");
    }

    #[test]
    #[should_panic(expected = "new: [")]
    fn a_new_line_fails() {
        Form::of_text("a 1\nb").assert_is("a 0");
    }
}
