//! Rows sorted by address, each valid up to the next.

use crate::Rule;

/// Returns a row: `rule` holds from the link-time address `start` on.
#[inline]
pub const fn encode_row(start: u32, rule: Rule) -> u64 {
    (start as u64) << 32 | rule.bits() as u64
}

/// Returns the rule at an address; if the table is corrupt, any of its rules, or [`Rule::UNKNOWN`].
#[inline]
pub fn find(len: u32, row: impl Fn(u32) -> u64, at: u32) -> Rule {
    let (mut first, mut left) = (0, len);
    // Each iteration halves `left`, so there are at most 32.
    while left > 1 {
        let half = left / 2;
        if row(first + half) >> 32 <= u64::from(at) {
            first += half;
        }
        left -= half;
    }
    let found = if len > 0 { row(first) } else { u64::MAX };
    match found >> 32 <= u64::from(at) {
        true => Rule::from_bits(found as u32),
        false => Rule::UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_holds_up_to_the_next_row() {
        let rules = [1, 2, 3].map(Rule::from_bits);
        let rows = [
            encode_row(10, rules[0]),
            encode_row(20, rules[1]),
            encode_row(u32::MAX, rules[2]),
        ];
        let find = |len, at| find(len, |index| rows[index as usize], at);
        let expected = [
            (9, 0),
            (10, 1),
            (19, 1),
            (20, 2),
            (u32::MAX - 1, 2),
            (u32::MAX, 3),
        ];
        for (at, bits) in expected {
            assert_eq!(find(3, at).bits(), bits, "{at}");
        }
        assert_eq!((find(2, u32::MAX).bits(), find(0, 10)), (2, Rule::UNKNOWN));
    }

    #[test]
    fn binary_search_agrees_with_a_linear_one() {
        for len in 0..20u32 {
            let start = |index: u32| 2 * index + 1;
            for at in 0..45 {
                let found = find(
                    len,
                    |index| encode_row(start(index), Rule::from_bits(index + 1)),
                    at,
                );
                let last = (0..len).rfind(|index| start(*index) <= at);
                assert_eq!(found.bits(), last.map_or(0, |index| index + 1));
            }
        }
    }
}
