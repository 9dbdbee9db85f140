//! The system calls that code outside the C library makes by itself.

use tiptoe_patch::{FunctionCode, may_change_masks, may_replace_block};

use super::Object;

pub const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// arch_prctl may give a thread another thread-local block (what %fs points to).
pub const ARCH_PRCTL: u32 = 158;
/// The calls of `planner::hooks` that the agent (tiptoe's library) must see first in all code. They move code, copy,
/// replace or trace a process, change what threads may do, or lock memory. Hooks of other calls, such as clone3, read
/// structures that the caller passes. So those calls are hooked only in libc, which is known to pass valid
/// structures.
pub const HOOKED_EVERYWHERE: &[u32] = &[
    25, 56, 57, 58, 59, 101, 151, 157, ARCH_PRCTL, 272, 308, 317, 322,
];

#[derive(Debug, Default)]
pub struct OwnCalls {
    pub functions: Vec<u64>,
    /// The first function that may block signals by a system call that no hook sees.
    pub blocks_signals: Option<String>,
    /// The first function that may give its thread another thread-local block, and cannot be hooked.
    pub replaces_block: Option<String>,
}

impl OwnCalls {
    pub(super) fn of(object: &Object) -> OwnCalls {
        let mut found = OwnCalls {
            replaces_block: wrfsbase(object),
            ..OwnCalls::default()
        };
        for function in object.functions_with(&SYSCALL) {
            let Some(code) = object.code(function, 0).map(with_last_call) else {
                continue;
            };
            let name = || Some(function.display_name().into_owned());
            if may_call(&code, HOOKED_EVERYWHERE) {
                found.functions.push(function.address);
            }
            if found.blocks_signals.is_none() && may_change_masks(&code) {
                found.blocks_signals = name();
            }
            if found.replaces_block.is_none()
                && may_call(&code, &[ARCH_PRCTL])
                && may_replace_block(&code)
            {
                found.replaces_block = name();
            }
        }
        found
    }
}

/// Returns the first code with the instruction `wrfsbase`, which cannot be hooked. Outside known functions, the
/// beginnings of instructions are unknown, so these bytes count at any position.
fn wrfsbase(object: &Object) -> Option<String> {
    let is_it = |code: &[u8], at: usize| {
        let before = |distance: usize| at.checked_sub(distance).and_then(|at| code.get(at));
        let is_rex = before(1).is_some_and(|byte| byte & 0xf0 == 0x40);
        let is_repeated = before(1) == Some(&0xf3) || is_rex && before(2) == Some(&0xf3);
        is_repeated
            && code
                .get(at + 2)
                .is_some_and(|operand| (0xd0..=0xd7).contains(operand))
    };
    object
        .addresses_with(&[0x0f, 0xae], is_it)
        .find_map(|address| {
            let Some(function) = object.image.function_containing(address) else {
                return Some(format!("code at {address:#x}"));
            };
            let code = object.code(function, 0)?;
            may_replace_block(&code).then(|| function.display_name().into_owned())
        })
}

pub fn may_call(code: &FunctionCode<'_>, numbers: &[u32]) -> bool {
    let bytes = code.bytes;
    let mut four = bytes
        .windows(4)
        .filter_map(|four| <[u8; 4]>::try_from(four).ok());
    bytes.windows(2).any(|pair| pair == SYSCALL)
        && four.any(|four| numbers.contains(&u32::from_le_bytes(four)))
}

/// Extends a function whose known size ends just before its `syscall`. The size of a function without a name comes
/// from its unwind information. The unwind information of clone3 ends before the `syscall`, because the child cannot
/// be unwound after it.
pub fn with_last_call(code: FunctionCode<'_>) -> FunctionCode<'_> {
    let split = code.bytes.split_at_checked(code.size);
    let is_cut = split.is_some_and(|(own, next)| {
        own.iter().nth_back(4) == Some(&0xb8) && next.starts_with(&SYSCALL)
    });
    let missing = if is_cut { SYSCALL.len() } else { 0 };
    FunctionCode {
        size: code.size + missing,
        ..code
    }
}
