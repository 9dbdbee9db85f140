//! The instructions that may run twice.
//!
//! A patch's code overwrites flags. If an instruction before the patch changes only flags, that code runs the
//! instruction again at its end. This is allowed for `cmp`, `test`, and `bt`. On memory, `bt` must have an immediate,
//! because an offset in a register may reach beyond the operand. These three change only the six status flags, which
//! depend only on the operands. Other compares may change more (`comiss`: MXCSR).
//!
//! The patch's code writes below the stack pointer, and may replace the return address. So an operand on the stack must
//! be above it. If other memory changes between the two runs, the effect is as if the thread had been preempted before
//! the first. Only a fault handler, a watchpoint or a device would notice two reads.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

const RETURN_ADDRESS: u64 = 8;

pub(crate) fn may_be_repeated(instruction: &Instruction) -> bool {
    let operands = |memory: fn(&Instruction) -> bool| {
        (0..instruction.op_count()).all(|op| match instruction.op_kind(op) {
            OpKind::Register => instruction.op_register(op).is_gpr(),
            OpKind::Memory => memory(instruction) && is_kept(instruction),
            _ => instruction.try_immediate(op).is_ok(),
        })
    };
    match instruction.mnemonic() {
        Mnemonic::Cmp | Mnemonic::Test => operands(|_| true),
        Mnemonic::Bt => operands(|bt| bt.try_immediate(1).is_ok()),
        _ => false,
    }
}

fn is_kept(instruction: &Instruction) -> bool {
    let (base, index) = (instruction.memory_base(), instruction.memory_index());
    // Only a base register can be the stack pointer.
    base.full_register() != Register::RSP
        || base == Register::RSP
            && index == Register::None
            && (RETURN_ADDRESS..1 << 31).contains(&instruction.memory_displacement64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    #[test]
    fn memory_must_be_what_a_hit_keeps() {
        let check = |bytes: &[u8], may: bool| {
            let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
            assert_eq!(may_be_repeated(&instruction), may, "{bytes:x?}");
        };
        // cmp (%rdi),%eax; cmp 8(%rsp),%eax; cmp %rsp,%rax
        check(&[0x3b, 0x07], true);
        check(&[0x3b, 0x44, 0x24, 8], true);
        check(&[0x48, 0x39, 0xe0], true);
        // cmp (%rsp),%eax; cmp -8(%rsp),%eax; cmp 8(%rsp,%rcx),%eax; cmp 8(%esp),%eax
        check(&[0x3b, 0x04, 0x24], false);
        check(&[0x3b, 0x44, 0x24, 0xf8], false);
        check(&[0x3b, 0x44, 0x0c, 8], false);
        check(&[0x67, 0x3b, 0x44, 0x24, 8], false);
        // bt $1,(%rdi); bt %eax,%ecx; bt %eax,(%rdi)
        check(&[0x0f, 0xba, 0x27, 1], true);
        check(&[0x0f, 0xa3, 0xc1], true);
        check(&[0x0f, 0xa3, 0x07], false);
    }
}
