//! Patterns for whole names: `*` matches any text, `?` one character.

pub use tiptoe_event::is_glob;

/// Returns whether the pattern matches the whole text. Takes at most the product of the lengths in time, and
/// constant memory.
pub fn matches(pattern: &str, text: impl AsRef<[u8]>) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_ref());
    let (mut p, mut t) = (0, 0);
    // Where to go on after a mismatch: after the last star, which then matches one more byte.
    let mut retry = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                p += 1;
                retry = Some((p, t));
            }
            Some(b'?') => {
                p += 1;
                let is_inside = |byte: &&u8| **byte & 0xc0 == 0x80;
                t += 1 + text[t + 1..].iter().take_while(is_inside).count();
            }
            Some(&byte) if byte == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match retry {
                None => return false,
                Some((after_star, given)) => {
                    (p, t) = (after_star, given + 1);
                    retry = Some((after_star, given + 1));
                }
            },
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        let check =
            |pattern, text, fits| assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        check("*", "", true);
        check("*", "anything", true);
        check("dict*", "dictFind", true);
        check("dict*", "redict", false);
        check("*::push_*", "std::vec::push_back", true);
        check("a*b*c", "aXbXbXc", true);
        check("a*b*c", "aXbXbX", false);
        check("?ict", "dict", true);
        check("?", "", false);
        check("", "", true);
        check("", "a", false);
        check("gr??e", "größe", true);
        check("gr?e", "größe", false);
        check("[ab]", "a", false);
        check("f[abi:*]", "f[abi:cxx11]", true);
        assert!(matches("lib?.so", b"lib\xff.so") && matches("*", b"\xff\xfe"));
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        assert!(!matches(&("*a".repeat(200) + "c"), "a".repeat(5_000)));
    }
}
