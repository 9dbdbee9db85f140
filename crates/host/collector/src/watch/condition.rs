//! Parses `--when`, which selects accesses by their values.
//!
//! ```text
//! WHEN    = COMPARE {"&&" COMPARE}
//! COMPARE = VALUE OP VALUE
//! VALUE   = "old" | "new" | a number
//! OP      = "==" | "!=" | "<" | "<=" | ">" | ">=" | "&"
//! ```

use tiptoe_kernel::watchpoints::{Condition, MOST_CONDITIONS, Operand, Operator};

use crate::error::{Error, WhenFault};

/// Each operator with the operator that gives the same result for exchanged operands. Operators of two characters
/// must be first, because `<` is a part of `<=`.
const OPERATORS: [(&str, Operator, Operator); 7] = [
    ("==", Operator::Equal, Operator::Equal),
    ("!=", Operator::Different, Operator::Different),
    ("<=", Operator::LessOrEqual, Operator::GreaterOrEqual),
    (">=", Operator::GreaterOrEqual, Operator::LessOrEqual),
    ("<", Operator::Less, Operator::Greater),
    (">", Operator::Greater, Operator::Less),
    ("&", Operator::HasBits, Operator::HasBits),
];

pub(super) fn parse(text: &str) -> Result<Vec<Condition>, Error> {
    let conditions = text.split("&&").map(|part| compare(part.trim()));
    let conditions: Vec<Condition> = conditions.collect::<Result<_, _>>()?;
    if conditions.len() > MOST_CONDITIONS {
        return Err(Error::ManyConditions);
    }
    Ok(conditions)
}

fn compare(part: &str) -> Result<Condition, Error> {
    let wrong = |fault| Error::BadCondition {
        part: part.to_owned(),
        fault,
    };
    let found = OPERATORS.iter().find_map(|(word, operator, turned)| {
        let (left, right) = part.split_once(word)?;
        Some((left.trim(), right.trim(), *operator, *turned))
    });
    let (left, right, operator, turned) = found.ok_or_else(|| wrong(WhenFault::NoOperator))?;
    let of = |word: &str| value(word).ok_or_else(|| wrong(WhenFault::BadOperand(word.to_owned())));
    let (left, right) = (of(left)?, of(right)?);
    match (left, right) {
        (Operand::Constant(_), Operand::Constant(_)) => Err(wrong(WhenFault::Constant)),
        (Operand::Constant(_), _) => Ok(Condition {
            left: right,
            operator: turned,
            right: left,
        }),
        _ => Ok(Condition {
            left,
            operator,
            right,
        }),
    }
}

fn value(word: &str) -> Option<Operand> {
    let (is_negative, digits) = match word.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, word),
    };
    let number = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => digits.parse().ok(),
    };
    match word {
        "old" => Some(Operand::Old),
        "new" => Some(Operand::New),
        _ if is_negative => number.map(|number| Operand::Constant(number.wrapping_neg())),
        _ => number.map(Operand::Constant),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons() {
        let one = |text: &str| parse(text).unwrap()[0];
        let condition = |left, operator, right| Condition {
            left,
            operator,
            right,
        };
        let (old, new, constant) = (Operand::Old, Operand::New, Operand::Constant);
        assert_eq!(
            one("new == 0"),
            condition(new, Operator::Equal, constant(0))
        );
        assert_eq!(
            one("5<=old"),
            condition(old, Operator::GreaterOrEqual, constant(5))
        );
        assert_eq!(one("new < old"), condition(new, Operator::Less, old));
        let minus = constant(-2i64 as u64);
        assert_eq!(one("new != -2"), condition(new, Operator::Different, minus));
        let two = parse("old != 0 && new & 0x8000").unwrap();
        assert_eq!(two[1], condition(new, Operator::HasBits, constant(0x8000)));
    }

    #[test]
    fn malformed_conditions_are_refused() {
        for text in [
            "",
            "new",
            "new = 0",
            "new == x",
            "1 == 1",
            "new == 0 &&",
            "new == 0x",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        let many = ["new == 0"; MOST_CONDITIONS + 1].join(" && ");
        assert!(parse(&many).is_err());
    }
}
