//! Times as text: `1ms`, `500us`, `1.5s`.

use core::ops::RangeInclusive;
use core::time::Duration;

/// The first unit that fits counts, so `s` is after `ns`, `us` and `ms`.
const UNITS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3_600 * 1_000_000_000),
];

/// The accepted times. tiptoe's loops cannot keep shorter periods, and sums of longer times could overflow.
const KEPT: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(10 * 365 * 86_400);

/// How many digits after the point are read.
const PLACES: usize = 18;

/// Parses a time with its unit, rounded down. `None` for a bare number, a sign, an exponent, or an overflow.
pub fn duration_ns(text: &str) -> Option<u64> {
    let unit = |(unit, ns): &(&str, u64)| Some((text.strip_suffix(unit)?, *ns));
    let (number, unit_ns) = UNITS.iter().find_map(unit)?;
    number_ns(number, unit_ns)
}

/// Parses an option's time, from 1 ms to ten years. A number without a unit is in seconds.
pub fn time(text: &str) -> Option<Duration> {
    let is_bare = text.ends_with(|last: char| last.is_ascii_digit() || last == '.');
    let ns = match is_bare {
        true => number_ns(text, 1_000_000_000),
        false => duration_ns(text),
    };
    ns.map(Duration::from_nanos)
        .filter(|time| KEPT.contains(time))
}

fn number_ns(number: &str, unit_ns: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole = digits(whole)?.checked_mul(u128::from(unit_ns))?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let places = fraction.get(..PLACES).unwrap_or(fraction);
    let scale = 10_u128.pow(places.len() as u32);
    let part = digits(places)? * u128::from(unit_ns) / scale;
    u64::try_from(whole.checked_add(part)?).ok()
}

/// Parses digits; an empty text is 0.
fn digits(text: &str) -> Option<u128> {
    text.bytes().try_fold(0_u128, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u128::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, ns) in [
            ("1ms", 1_000_000),
            ("500us", 500_000),
            ("500µs", 500_000),
            ("2s", 2_000_000_000),
            ("250ns", 250),
            ("1.5ms", 1_500_000),
            (".5us", 500),
            ("0s", 0),
            ("0.9ns", 0),
            ("1.0000000000000000000009s", 1_000_000_000),
            ("3m", 180_000_000_000),
            ("1h", 3_600_000_000_000),
            ("18446744073709551615ns", u64::MAX),
        ] {
            assert_eq!(duration_ns(text), Some(ns), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_times() {
        for text in [
            "",
            "s",
            "ms",
            ".s",
            "1",
            "1.5",
            "-1ms",
            "+1ms",
            "1e3s",
            "1 ms",
            "1ms ",
            "infs",
            "NaNs",
            "1.2.3s",
            "1.é0000000000000000s",
            "1d",
            "1MS",
            "18446744073709551616ns",
            "99999999999h",
            "999999999999999999999999999999999999999999999s",
        ] {
            assert_eq!(duration_ns(text), None, "{text}");
        }
    }
}
