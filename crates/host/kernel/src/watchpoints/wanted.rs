//! Evaluates conditions in tiptoe's process. In the kernel, `bpf/store.h` must give the same results.

use super::{Condition, Operand, Operator, WatchWanted};

impl WatchWanted {
    /// Returns whether an access to `len` bytes counts.
    pub fn wants(&self, old: Option<u64>, new: u64, len: u8, is_signed: bool) -> bool {
        let wide = |value| widen(value, len, is_signed);
        let (old, new) = (old.map(wide), wide(new));
        if self.only_changed && old == Some(new) {
            return false;
        }
        let mut conditions = self.conditions.iter();
        conditions.all(|condition| condition.holds(old, new, is_signed))
    }
}

fn widen(value: u64, len: u8, is_signed: bool) -> u64 {
    let unused = 64u32.saturating_sub(8 * u32::from(len));
    match (unused, is_signed) {
        (0 | 64.., _) => value,
        (unused, false) => value << unused >> unused,
        (unused, true) => ((value << unused).cast_signed() >> unused).cast_unsigned(),
    }
}

impl Condition {
    fn holds(&self, old: Option<u64>, new: u64, is_signed: bool) -> bool {
        let of = |operand| match operand {
            Operand::Old => old,
            Operand::New => Some(new),
            Operand::Constant(constant) => Some(constant),
        };
        let (Some(left), Some(right)) = (of(self.left), of(self.right)) else {
            return true;
        };
        let is_less = match is_signed {
            true => left.cast_signed() < right.cast_signed(),
            false => left < right,
        };
        match self.operator {
            Operator::Equal => left == right,
            Operator::Different => left != right,
            Operator::Less => is_less,
            Operator::LessOrEqual => is_less || left == right,
            Operator::Greater => !is_less && left != right,
            Operator::GreaterOrEqual => !is_less,
            Operator::HasBits => left & right != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Form;
    use super::*;

    fn wanted(only_changed: bool, conditions: &[(Operand, Operator, Operand)]) -> WatchWanted {
        let conditions = conditions.iter();
        WatchWanted {
            pid: 1,
            by_thread: false,
            only_changed,
            one_by_one: false,
            conditions: conditions
                .map(|&(left, operator, right)| Condition {
                    left,
                    operator,
                    right,
                })
                .collect(),
            allowed_ns: None,
            form: Form::Tasks,
            all_slots: false,
        }
    }

    #[test]
    fn values_are_compared_by_their_types_sign() {
        let minus = Operand::Constant((-2i64).cast_unsigned());
        let below = wanted(false, &[(Operand::New, Operator::Less, minus)]);
        assert!(below.wants(Some(0), 0xfffd, 2, true), "-3 < -2");
        assert!(!below.wants(Some(0), 0xffff, 2, true), "-1 < -2");
        assert!(below.wants(Some(0), 0xffff, 2, false), "65535 < 2^64 - 2");
        let changed = wanted(true, &[]);
        assert!(!changed.wants(Some(5), 5, 4, true) && changed.wants(Some(5), 6, 4, true));
        assert!(
            !changed.wants(Some(0x1_05), 0x2_05, 1, false),
            "one byte of each"
        );
        let five = Operand::Constant(5);
        let both = [
            (Operand::Old, Operator::GreaterOrEqual, five),
            (Operand::New, Operator::HasBits, five),
        ];
        let both = wanted(false, &both);
        assert!(both.wants(Some(5), 4, 8, false) && !both.wants(Some(4), 4, 8, false));
        assert!(!both.wants(Some(5), 2, 8, false));
        assert!(changed.wants(None, 5, 4, true));
        assert!(both.wants(None, 4, 8, false) && !both.wants(None, 2, 8, false));
    }
}
