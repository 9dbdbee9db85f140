//! Compiles a filter of calls by arguments to compares and branches.

use tiptoe_event::{Comparison, Filter, Join, Operator, Width};

use crate::code::{Code, ForwardJump};

/// The hardware numbers of rdi, rsi, rdx, rcx, r8, r9.
pub(crate) const REGISTERS: [u8; 6] = [7, 6, 2, 1, 8, 9];

/// Appends code that takes one of the returned jumps if the filter rejects the call. Changes only the flags.
pub(crate) fn emit(code: &mut Code, filter: &Filter) -> Vec<ForwardJump> {
    let all = filter.join() == Join::All;
    let (last, others) = filter
        .comparisons()
        .split_last()
        .expect("a filter is not empty");
    let (mut passed, mut missed) = (Vec::new(), Vec::new());
    for comparison in others {
        let decided = jump_where(code, comparison, !all);
        if all { &mut missed } else { &mut passed }.extend(decided);
    }
    missed.extend(jump_where(code, last, false));
    for jump in passed {
        code.bind(jump);
    }
    missed
}

fn jump_where(code: &mut Code, comparison: &Comparison, holds: bool) -> Option<ForwardJump> {
    if let Some(known) = constant(comparison) {
        // `cmp %al,%al` sets the zero flag, so the jump is always taken.
        return (known == holds).then(|| code.put(&[0x38, 0xc0]).jump_ahead(EQUAL, true));
    }
    compare(code, comparison);
    let condition = condition(comparison) ^ u8::from(!holds);
    Some(code.jump_ahead(condition, true))
}

const EQUAL: u8 = crate::code::IF_EQUAL;

/// Returns the outcome of a comparison with a value outside the width's range.
fn constant(comparison: &Comparison) -> Option<bool> {
    let value = comparison.value;
    let in_range = match comparison.width {
        Width::U8 => u8::try_from(value).is_ok(),
        Width::S8 => i8::try_from(value).is_ok(),
        Width::U16 => u16::try_from(value).is_ok(),
        Width::S16 => i16::try_from(value).is_ok(),
        Width::U32 => u32::try_from(value).is_ok(),
        Width::S32 => i32::try_from(value).is_ok(),
        Width::U64 | Width::S64 => true,
    };
    (!in_range).then(|| comparison.holds(0))
}

fn compare(code: &mut Code, comparison: &Comparison) {
    let register = REGISTERS[usize::from(comparison.arg)];
    let extended = register >> 3;
    let operand = 0xf8 | register & 7;
    let value = comparison.value;
    match comparison.width.bits() {
        8 => code.put(&[0x40 | extended, 0x80, operand, value as u8]),
        16 => code
            .put(&[0x66, 0x40 | extended, 0x81, operand])
            .put(&(value as u16).to_le_bytes()),
        32 => code
            .put(&[0x40 | extended, 0x81, operand])
            .put32(value as i32),
        _ => match i32::try_from(value) {
            Ok(short) => code.put(&[0x48 | extended, 0x81, operand]).put32(short),
            Err(_) => compare_wide(code, register, value),
        },
    };
}

/// Compares with the value, loaded into %rax. The `pop` that restores %rax preserves the flags.
fn compare_wide(code: &mut Code, register: u8, value: i64) -> &mut Code {
    let operand = 0xc0 | register & 7;
    code.put(&[0x50, 0x48, 0xb8]).put(&value.to_le_bytes());
    code.put(&[0x48 | register >> 3, 0x39, operand, 0x58])
}

/// Flipping the lowest bit negates the condition.
fn condition(comparison: &Comparison) -> u8 {
    let signed = comparison.width.signed();
    match comparison.operator {
        Operator::Eq => 0x4,
        Operator::Ne => 0x5,
        Operator::Lt => {
            if signed {
                0xc
            } else {
                0x2
            }
        }
        Operator::Ge => {
            if signed {
                0xd
            } else {
                0x3
            }
        }
        Operator::Le => {
            if signed {
                0xe
            } else {
                0x6
            }
        }
        Operator::Gt => {
            if signed {
                0xf
            } else {
                0x7
            }
        }
    }
}
