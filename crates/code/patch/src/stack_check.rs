//! Finds the check for stack room at a Go function's beginning: `cmp 0x10(%r14),%rsp; jbe more`. For large frames the
//! check compares %r12, the frame's end. If there is no room, or the goroutine is preempted, `more` calls
//! `runtime.morestack` and restarts the function. So a patch must be after the check; otherwise such a call would count
//! twice.

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::decode::FunctionCode;

const MOST: usize = 8;
/// The most instructions from `more` to the jump back.
const MOST_BACK: usize = 64;
const LIMIT: u64 = 0x10;

/// Returns the offset after the stack check, if the function has one.
pub fn after_stack_check(function: &FunctionCode) -> Option<usize> {
    let mut has_compared = false;
    for instruction in function.decoder(0).into_iter().take(MOST) {
        match instruction.mnemonic() {
            Mnemonic::Jbe if has_compared => {
                let after_check = instruction.next_ip().wrapping_sub(function.address) as usize;
                return begins_again(function, &instruction).then_some(after_check);
            }
            // The extra check of a frame so large that its end's address may wrap.
            Mnemonic::Jb if begins_again(function, &instruction) => {}
            Mnemonic::Cmp => has_compared |= is_with_limit(&instruction),
            Mnemonic::Lea | Mnemonic::Mov | Mnemonic::Sub if is_scratch(&instruction) => {}
            _ => return None,
        }
    }
    None
}

fn is_with_limit(instruction: &Instruction) -> bool {
    let base = instruction.memory_base();
    instruction.op1_kind() == OpKind::Memory
        && instruction.memory_displacement64() == LIMIT
        && base != Register::RSP
}

fn is_scratch(instruction: &Instruction) -> bool {
    const SCRATCH: [Register; 3] = [Register::R12, Register::R13, Register::RCX];
    SCRATCH.contains(&instruction.op0_register())
}

fn begins_again(function: &FunctionCode, branch: &Instruction) -> bool {
    let target = branch.near_branch_target().wrapping_sub(function.address);
    let Some(target) = usize::try_from(target)
        .ok()
        .filter(|target| *target < function.body().len())
    else {
        return false;
    };
    let mut has_called = false;
    for instruction in function.decoder(target).into_iter().take(MOST_BACK) {
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::Call => has_called = true,
            FlowControl::UnconditionalBranch => {
                return has_called && instruction.near_branch_target() == function.address;
            }
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], after_check: Option<usize>) {
        let function = FunctionCode {
            address: 0x40_1000,
            bytes,
            size: bytes.len(),
        };
        assert_eq!(after_stack_check(&function), after_check, "{bytes:02x?}");
    }

    #[test]
    fn a_call_passes_once_after_the_stack_check() {
        // cmp 0x10(%r14),%rsp; jbe +2; push %rbp; ret; call; jmp back
        let small = [
            0x49, 0x3b, 0x66, 0x10, 0x76, 2, 0x55, 0xc3, 0xe8, 0, 0, 0, 0, 0xeb, 0xf1,
        ];
        check(&small, Some(6));
        // lea -0x98(%rsp),%r12; cmp 0x10(%r14),%r12; jbe +2; …
        let medium = [
            0x4c, 0x8d, 0xa4, 0x24, 0x68, 0xff, 0xff, 0xff, 0x4d, 0x3b, 0x66, 0x10, 0x76, 2, 0x55,
            0xc3, 0xe8, 0, 0, 0, 0, 0xeb, 0xe9,
        ];
        check(&medium, Some(14));
    }

    #[test]
    fn other_code_is_counted_at_its_first_instruction() {
        let elsewhere = [
            0x49, 0x3b, 0x66, 0x10, 0x76, 2, 0x55, 0xc3, 0xe8, 0, 0, 0, 0, 0xeb, 0xf3,
        ];
        check(&elsewhere, None);
        let a_loop = [0x49, 0x3b, 0x66, 0x10, 0x76, 2, 0x55, 0xc3, 0xeb, 0xf6];
        check(&a_loop, None);
        // cmp $0x10,%rsp; jbe …
        let number = [
            0x48, 0x83, 0xfc, 0x10, 0x76, 2, 0x55, 0xc3, 0xe8, 0, 0, 0, 0, 0xeb, 0xf1,
        ];
        check(&number, None);
        // Bytes after the function are not read.
        check(&[0x49, 0x3b, 0x66, 0x10, 0x76, 0x7f], None);
        check(&[0x55, 0xc3], None);
        check(&[], None);
    }
}
