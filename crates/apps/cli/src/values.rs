//! Parses the values of options.

use std::time::Duration;

use tiptoe_collector::Budget;
use tiptoe_event::{Via, duration_ns};

use crate::failure::BadValue;

pub fn time(text: &str) -> Result<Duration, BadValue> {
    tiptoe_event::time(text).ok_or(BadValue::Time)
}

/// Parses a call's time, in nanoseconds. A unit is required, because tiptoe must not guess it.
pub fn slower_ns(text: &str) -> Result<u64, BadValue> {
    let ns = duration_ns(text).filter(|ns| *ns > 0);
    ns.ok_or(BadValue::CallTime)
}

/// Parses a process id, for commands with `--comm`.
pub fn pid(text: &str) -> Result<u32, BadValue> {
    number_of_process(text).ok_or(BadValue::Pid)
}

/// Parses a process id, for commands without `--comm`.
pub fn pid_alone(text: &str) -> Result<u32, BadValue> {
    number_of_process(text).ok_or(BadValue::PidAlone)
}

fn number_of_process(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| *number > 0)
}

/// Parses `--via`. Accepts `kernel-task` for every command. Commands that do not support it refuse it later, with an
/// error that names `tiptoe watch`.
pub fn via(text: &str) -> Result<Via, BadValue> {
    text.parse().map_err(|_| BadValue::Via)
}

pub fn budget(text: &str) -> Result<Budget, BadValue> {
    if text == "off" {
        return Ok(Budget::Off);
    }
    let percent = plain_number(text.strip_suffix('%').unwrap_or(text));
    let sensible = percent.filter(|percent| *percent > 0.0 && *percent <= 100.0);
    sensible.map(Budget::Percent).ok_or(BadValue::Budget)
}

/// Parses digits and a point, without the signs, exponents, infinity and NaN that Rust's parser accepts.
fn plain_number(text: &str) -> Option<f64> {
    let plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_ids_are_numbers_above_0() {
        assert_eq!(pid("42"), Ok(42));
        for text in ["0", "-1", "redis-server", "4294967296", ""] {
            assert_eq!(pid(text), Err(BadValue::Pid), "{text}");
            assert_eq!(pid_alone(text), Err(BadValue::PidAlone), "{text}");
        }
    }

    #[test]
    fn times_have_seconds_or_a_unit() {
        for (text, ms) in [
            ("2", 2000),
            ("1.5s", 1500),
            ("500ms", 500),
            ("3m", 180_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(time(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in [
            "",
            "s",
            "0",
            "-1",
            "1e3",
            "inf",
            "NaN",
            "1 s",
            "99999999999",
            "999us",
        ] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_of_calls_have_a_unit() {
        assert_eq!(slower_ns("500us"), Ok(500_000));
        assert_eq!(slower_ns("1.5ms"), Ok(1_500_000));
        for text in ["", "1", "0ms", "-1ms", "fast", "0.1ns"] {
            assert!(slower_ns(text).is_err(), "{text}");
        }
    }

    #[test]
    fn budgets_are_percent_or_off() {
        assert_eq!(budget("off"), Ok(Budget::Off));
        assert_eq!(budget("0.5%"), Ok(Budget::Percent(0.5)));
        assert_eq!(budget("100"), Ok(Budget::Percent(100.0)));
        for text in ["", "0", "101", "-1", "%", "1%%", "on"] {
            assert!(budget(text).is_err(), "{text}");
        }
    }
}
