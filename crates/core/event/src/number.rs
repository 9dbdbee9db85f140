//! Numbers in text: `42`, `0x2a`.

/// Parses a decimal number, or a hexadecimal one after `0x`, without sign.
pub fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    unsigned(digits, radix)
}

pub(crate) fn unsigned(digits: &str, radix: u32) -> Option<u64> {
    // from_str_radix would accept a sign.
    let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain
        .then(|| u64::from_str_radix(digits, radix).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let check = |text, expected| assert_eq!(number(text), expected, "{text}");
        check("0", Some(0));
        check("18446744073709551615", Some(u64::MAX));
        check("0xfFffFfffFfffFfff", Some(u64::MAX));
        for text in [
            "",
            "0x",
            "+1",
            "-1",
            "0x+1",
            "0x-1",
            "1f",
            " 1",
            "1_000",
            "18446744073709551616",
        ] {
            check(text, None);
        }
    }
}
