//! Patterns for whole names: `*` stands for any text, `?` for one character.

/// Whether the text is a pattern rather than a name.
pub fn is_glob(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// Whether the pattern fits the whole text. Time is at most the product of the
/// two lengths, memory constant.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Where to go on when a literal does not fit: behind the last star, with
    // one more byte of text given to that star.
    let mut retry = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                p += 1;
                retry = Some((p, t));
            }
            Some(&byte) if byte == b'?' || byte == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match retry {
                None => return false,
                Some((behind, given)) => {
                    (p, t) = (behind, given + 1);
                    retry = Some((behind, given + 1));
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
    fn table() {
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
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        assert!(!matches(&("*a".repeat(200) + "c"), &"a".repeat(5_000)));
    }
}
