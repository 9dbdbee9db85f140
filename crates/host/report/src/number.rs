//! Formats numbers for people.

/// Formats `1234567` as `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Returns the noun for a number: `hit` after 1, otherwise `hits`, `switches`, `accesses`.
pub(crate) fn plural(count: u64, noun: &str) -> String {
    let end = match count {
        1 => "",
        _ if noun.ends_with("ch") || noun.ends_with("ss") => "es",
        _ => "s",
    };
    format!("{noun}{end}")
}

pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!("{} {}", grouped(count), plural(count, noun))
}

pub(crate) fn rate(count: u64, ns: u64) -> String {
    if ns == 0 {
        return "-".to_owned();
    }
    grouped((count as f64 * 1e9 / ns as f64).round() as u64)
}

/// Formats a fraction in percent, without the sign: two decimals; below 0.1% two significant digits, so that a
/// small cost is not printed as 0.
pub(crate) fn percent(fraction: f64) -> String {
    let percent = fraction * 100.0;
    if percent >= 0.1 || percent <= 0.0 {
        return format!("{percent:.2}");
    }
    if percent < 1e-6 {
        return "0.000001".to_owned();
    }
    let decimals = 1 - percent.log10().floor() as i32;
    format!("{percent:.0$}", decimals.max(2) as usize)
}

/// Formats a share in percent, with the percent sign; `-` if the whole is 0.
pub(crate) fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{:.1}%", part as f64 * 100.0 / whole as f64)
}

/// Formats the nanoseconds of one hit: two decimals below 10, one below 100, otherwise none.
pub(crate) fn unit_ns(ns: f64) -> String {
    match ns {
        ns if ns < 10.0 => format!("{ns:.2}"),
        ns if ns < 100.0 => format!("{ns:.1}"),
        ns => format!("{ns:.0}"),
    }
}

/// Formats a time with its unit, to three digits. A time of 1,000 s or more has whole seconds.
pub(crate) fn time(ns: f64) -> String {
    // The limits are below powers of ten, because 999.5, 9.995 and 99.95 would be rounded to four digits.
    const UNITS: [(&str, f64); 3] = [("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    if ns < 999.5 {
        return format!("{ns:.0}ns");
    }
    let fits = |(_, size): &&(&str, f64)| ns / size < 999.5;
    let Some((unit, size)) = UNITS.iter().find(fits) else {
        return format!("{}s", grouped((ns / 1e9).round() as u64));
    };
    let decimals = match ns / size {
        number if number < 9.995 => 2,
        number if number < 99.95 => 1,
        _ => 0,
    };
    format!("{:.decimals$}{unit}", ns / size)
}

pub(crate) fn seconds(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    if seconds < 1.0 {
        format!("{seconds:.3} s")
    } else {
        format!("{seconds:.2} s")
    }
}

/// Formats a fraction in percent without trailing zeros.
pub(crate) fn short_percent(fraction: f64) -> String {
    let percent = percent(fraction);
    let digits = percent.trim_end_matches('0');
    digits.trim_end_matches('.').to_owned()
}

pub(crate) fn since_start(ns: u64) -> String {
    let (seconds, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
    format!("{seconds:>6}.{rest:09}")
}

pub(crate) fn edge_ns(bucket: i64, scale: u8) -> f64 {
    (bucket as f64 / f64::from(scale).exp2()).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(grouped),
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!([0, 1, 2].map(|n| plural(n, "hit")), ["hits", "hit", "hits"]);
        assert_eq!(rate(500, 500_000_000), "1,000");
        assert_eq!(rate(500, 0), "-");
        assert_eq!(share(1, 3), "33.3%");
        assert_eq!([0.5, 99.94, 480.2].map(unit_ns), ["0.50", "99.9", "480"]);
    }

    #[test]
    fn times_have_three_digits_and_their_unit() {
        for (ns, shown) in [
            (0.0, "0ns"),
            (999.4, "999ns"),
            (999.6, "1.00us"),
            (9_994.0, "9.99us"),
            (9_996.0, "10.0us"),
            (99_960.0, "100us"),
            (999_600.0, "1.00ms"),
            (12_345_678.0, "12.3ms"),
            (2.5e9, "2.50s"),
            (1e12, "1,000s"),
            (f64::INFINITY, "18,446,744,073,709,551,615s"),
        ] {
            assert_eq!(time(ns), shown);
        }
    }

    #[test]
    fn a_small_percentage_keeps_its_digits() {
        let fractions = [0.0, 0.0031, 0.000456, 0.0000123, 1e-12, 1.5];
        let shown = ["0.00", "0.31", "0.046", "0.0012", "0.000001", "150.00"];
        assert_eq!(fractions.map(percent), shown);
    }
}
