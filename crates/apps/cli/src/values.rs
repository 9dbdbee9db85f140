//! Values of options, read from their text.

use std::time::Duration;

use tiptoe_collector::Budget;

/// The longest time that makes sense, so that no sum of times overflows: ten years.
const LONGEST_S: f64 = 10.0 * 365.0 * 86_400.0;

/// The units of a time, and what they are in seconds; `ms` before `m` and `s`.
const UNITS: [(&str, f64); 4] = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

/// A time: seconds, or a number with one of the units `ms`, `s`, `m`, `h`.
pub fn time(text: &str) -> Result<Duration, String> {
    let unit = UNITS
        .iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)));
    let (number, seconds) = unit.unwrap_or((text, &1.0));
    let time = plain_number(number).map(|number| number * seconds);
    let sensible = time.filter(|time| (1e-3..=LONGEST_S).contains(time));
    let time = sensible.and_then(|time| Duration::try_from_secs_f64(time).ok());
    time.ok_or_else(|| "not a time (write 2, 1.5s, 500ms or 3m)".to_owned())
}

/// A budget: `off`, or percent with or without the sign.
pub fn budget(text: &str) -> Result<Budget, String> {
    if text == "off" {
        return Ok(Budget::Off);
    }
    let percent = plain_number(text.strip_suffix('%').unwrap_or(text));
    let sensible = percent.filter(|percent| *percent > 0.0 && *percent <= 100.0);
    let budget = sensible.map(Budget::Percent);
    budget.ok_or_else(|| "not a budget (write 1%, 0.5 or off)".to_owned())
}

/// A number of digits and a point: no sign, exponent, infinity or NaN.
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
    fn times() {
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
        ] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn budgets() {
        assert_eq!(budget("off"), Ok(Budget::Off));
        assert_eq!(budget("0.5%"), Ok(Budget::Percent(0.5)));
        assert_eq!(budget("100"), Ok(Budget::Percent(100.0)));
        for text in ["", "0", "101", "-1", "%", "1%%", "on"] {
            assert!(budget(text).is_err(), "{text}");
        }
    }
}
