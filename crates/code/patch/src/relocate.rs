//! Copies instructions to other addresses, with the same effect.
//!
//! | original | copy |
//! | --- | --- |
//! | operand relative to the instruction pointer | the same bytes, displacement adjusted |
//! | `jmp`, `jcc`, short or near | the near form |
//! | `jrcxz`, `loop` | `op +2; jmp +5; jmp near` |
//! | `call` | pushes the original return address, then jumps |
//! | system calls, breakpoints, and other instructions that depend on their address | refused |
//! | all others | the same bytes |

use iced_x86::{Code as Op, ConstantOffsets, FlowControl, Instruction, Register};

use crate::Refusal;
use crate::code::{Code, LinkTarget};

pub(crate) fn relocate(
    instruction: &Instruction,
    bytes: &[u8],
    constants: &ConstantOffsets,
) -> Result<Code, Refusal> {
    let mut copy = Code::default();
    match instruction.flow_control() {
        FlowControl::Next => {}
        FlowControl::Exception if instruction.code() == Op::Ud2 => {}
        FlowControl::Return if matches!(instruction.code(), Op::Retnq | Op::Retnq_imm16) => {}
        FlowControl::IndirectBranch if instruction.code() == Op::Jmp_rm64 => {}
        FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
            branch(&mut copy, instruction, bytes)?;
            return Ok(copy);
        }
        FlowControl::Call if instruction.code() == Op::Call_rel32_64 => {
            push_return(&mut copy, instruction.next_ip());
            let target = LinkTarget::Address(instruction.near_branch_target());
            copy.relative(&[0xe9], target, &[]);
            return Ok(copy);
        }
        FlowControl::IndirectCall if instruction.code() == Op::Call_rm64 => {
            push_return(&mut copy, instruction.next_ip());
            let jump = as_jump(instruction, bytes)?;
            verbatim(&mut copy, instruction, &jump, constants)?;
            return Ok(copy);
        }
        _ => return Err(refuse(instruction)),
    }
    verbatim(&mut copy, instruction, bytes, constants)?;
    Ok(copy)
}

fn unrelocatable(instruction: &Instruction, what: &'static str) -> Refusal {
    Refusal::Unrelocatable {
        address: instruction.ip(),
        what,
    }
}

fn refuse(instruction: &Instruction) -> Refusal {
    let address = instruction.ip();
    match instruction.code() {
        Op::Syscall | Op::Sysenter | Op::Int_imm8 => Refusal::SystemCall { address },
        Op::Int3 | Op::Int1 => unrelocatable(instruction, "breakpoint"),
        Op::Xbegin_rel16 | Op::Xbegin_rel32 => unrelocatable(instruction, "transaction"),
        _ => unrelocatable(instruction, "unusual control transfer"),
    }
}

fn verbatim(
    copy: &mut Code,
    instruction: &Instruction,
    bytes: &[u8],
    constants: &ConstantOffsets,
) -> Result<(), Refusal> {
    if !instruction.is_ip_rel_memory_operand() {
        copy.put(bytes);
        return Ok(());
    }
    if instruction.memory_base() != Register::RIP || constants.displacement_size() != 4 {
        return Err(unrelocatable(instruction, "32-bit address"));
    }
    let at = constants.displacement_offset();
    let target = LinkTarget::Address(instruction.ip_rel_memory_address());
    copy.relative(&bytes[..at], target, &bytes[at + 4..]);
    Ok(())
}

fn branch(copy: &mut Code, instruction: &Instruction, bytes: &[u8]) -> Result<(), Refusal> {
    if instruction.op0_kind() != iced_x86::OpKind::NearBranch64 || narrows(bytes) {
        return Err(unrelocatable(instruction, "branch of unusual size"));
    }
    let target = LinkTarget::Address(instruction.near_branch_target());
    if instruction.is_jmp_short_or_near() {
        copy.relative(&[0xe9], target, &[]);
    } else if instruction.is_jcc_short_or_near() {
        let field = if instruction.is_jcc_short() { 1 } else { 4 };
        let condition = bytes[bytes.len() - field - 1] & 0xf;
        copy.relative(&[0x0f, 0x80 | condition], target, &[]);
    } else if instruction.is_jcx_short() || instruction.is_loop() || instruction.is_loopcc() {
        copy.put(&bytes[..bytes.len() - 1]).put(&[2, 0xeb, 5]);
        copy.relative(&[0xe9], target, &[]);
    } else {
        return Err(refuse(instruction));
    }
    Ok(())
}

/// Returns whether a branch has an operand size prefix, whose effect differs between Intel and AMD.
fn narrows(bytes: &[u8]) -> bool {
    bytes
        .iter()
        .take_while(|b| matches!(b, 0x66 | 0x2e | 0x3e | 0xf2))
        .any(|&b| b == 0x66)
}

pub(crate) fn push_return(copy: &mut Code, address: u64) {
    let low = address as u32 as i32;
    copy.put(&[0x68]).put32(low);
    if i64::from(low) as u64 != address {
        copy.put(&[0xc7, 0x44, 0x24, 0x04])
            .put32((address >> 32) as i32);
    }
}

fn as_jump(instruction: &Instruction, bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
    let on_stack = [
        instruction.op0_register(),
        instruction.memory_base(),
        instruction.memory_index(),
    ];
    if on_stack.iter().any(|r| r.full_register() == Register::RSP) {
        // The copy first pushes the return address, which changes the operand's stack pointer.
        return Err(unrelocatable(instruction, "call through the stack pointer"));
    }
    let prefix =
        |b: &u8| matches!(b, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf2 | 0xf3);
    let opcode = bytes.iter().take_while(|b| prefix(b)).count();
    let mut jump = bytes.to_vec();
    match jump.get_mut(opcode + 1) {
        Some(operand) if bytes[opcode] == 0xff => *operand = *operand & !0x38 | 0x20,
        _ => return Err(unrelocatable(instruction, "call of unusual form")),
    }
    Ok(jump)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    const AT: u64 = 0x7f00_1000_0000;
    const TO: u64 = AT + 0x1000;

    fn copy(bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
        let mut decoder = Decoder::with_ip(64, bytes, AT, DecoderOptions::NONE);
        let instruction = decoder.decode();
        let constants = decoder.get_constant_offsets(&instruction);
        let address = |to| {
            if let LinkTarget::Address(a) = to {
                a
            } else {
                unreachable!()
            }
        };
        let copy = relocate(&instruction, &bytes[..instruction.len()], &constants)?;
        Ok(copy.link(TO, address).expect("near"))
    }

    #[test]
    fn each_form_has_its_copy() {
        let check = |original: &[u8], want: &[u8]| {
            assert_eq!(copy(original).expect("relocatable"), want, "{original:x?}");
        };
        check(&[0x55], &[0x55]);
        check(&[0xc3], &[0xc3]);
        check(
            &[0x48, 0x8b, 0x05, 0, 0x20, 0, 0],
            &[0x48, 0x8b, 0x05, 0, 0x10, 0, 0],
        );
        check(
            &[0xc7, 0x05, 0, 0x20, 0, 0, 1, 2, 3, 4],
            &[0xc7, 0x05, 0, 0x10, 0, 0, 1, 2, 3, 4],
        );
        check(&[0xeb, 0x10], &[0xe9, 0x0d, 0xf0, 0xff, 0xff]);
        check(&[0x75, 0x10], &[0x0f, 0x85, 0x0c, 0xf0, 0xff, 0xff]);
        check(&[0x0f, 0x8f, 0, 0x10, 0, 0], &[0x0f, 0x8f, 0, 0, 0, 0]);
        check(
            &[0xe3, 0],
            &[0xe3, 2, 0xeb, 5, 0xe9, 0xf9, 0xef, 0xff, 0xff],
        );
        check(
            &[0x67, 0xe3, 0],
            &[0x67, 0xe3, 2, 0xeb, 5, 0xe9, 0xf9, 0xef, 0xff, 0xff],
        );
    }

    #[test]
    fn calls_push_the_original_return_address() {
        let push = [0x68, 5, 0, 0, 0x10, 0xc7, 0x44, 0x24, 4, 0, 0x7f, 0, 0];
        let direct = copy(&[0xe8, 0, 0x20, 0, 0]).expect("relocatable");
        assert_eq!(direct[..13], push);
        assert_eq!(direct[13..], [0xe9, 0xf3, 0x0f, 0, 0]);
        let register = copy(&[0x41, 0xff, 0xd3]).expect("relocatable");
        assert_eq!(register[13..], [0x41, 0xff, 0xe3]);
        let memory = copy(&[0xff, 0x15, 0, 0x20, 0, 0]).expect("relocatable");
        assert_eq!(memory[13..], [0xff, 0x25, 0xf3, 0x0f, 0, 0]);
    }

    #[test]
    fn instructions_that_cannot_move_are_refused_by_name() {
        let check = |original: &[u8], want: &str| {
            let refusal = copy(original).expect_err("refused").to_string();
            assert!(refusal.contains(want), "{original:x?}: {refusal}");
        };
        check(&[0x0f, 0x05], "system call");
        check(&[0xcd, 0x80], "system call");
        check(&[0xcc], "breakpoint");
        check(&[0xff, 0x54, 0x24, 8], "call through the stack pointer");
        check(&[0xff, 0xd4], "call through the stack pointer");
        check(&[0xc7, 0xf8, 0, 0, 0, 0], "transaction");
        check(&[0x67, 0x8b, 0x05, 0, 0, 0, 0], "32-bit address");
        check(&[0x66, 0xe9, 0, 0, 0, 0], "branch of unusual size");
        check(&[0x48, 0xcf], "unusual control transfer");
    }
}
