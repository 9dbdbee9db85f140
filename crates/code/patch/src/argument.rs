//! Finds constant arguments of calls.

use std::collections::HashMap;

use iced_x86::{
    Code as Opcode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register,
};

use crate::call_numbers::sets;
use crate::decode::FunctionCode;
use crate::survey::Survey;

/// Returns the first argument of the call that returns to `returns_to`, if it is a constant set by code without
/// branches before the call.
pub fn first_argument(function: &FunctionCode, returns_to: u64) -> Option<u64> {
    let survey = Survey::new(function);
    let (call, known) = constants_before(function, &survey, |call| call.next_ip() == returns_to)?;
    let is_call = matches!(
        call.flow_control(),
        FlowControl::Call | FlowControl::IndirectCall
    );
    known.get(&Register::RDI).copied().filter(|_| is_call)
}

/// Returns the first wanted instruction, and the registers that code without branches before it sets to constants.
pub(crate) fn constants_before(
    function: &FunctionCode,
    survey: &Survey,
    is_wanted: impl Fn(&Instruction) -> bool,
) -> Option<(Instruction, HashMap<Register, u64>)> {
    let mut factory = InstructionInfoFactory::new();
    let mut known: HashMap<Register, u64> = HashMap::new();
    for instruction in &mut function.decoder(0) {
        if survey.is_target(instruction.ip()) {
            known.clear();
        }
        if is_wanted(&instruction) {
            return Some((instruction, known));
        }
        if instruction.flow_control() != FlowControl::Next {
            known.clear();
            continue;
        }
        let value = constant(&instruction, &known);
        known.retain(|register, _| !sets(&mut factory, &instruction, &[*register]));
        if let Some(value) = value {
            known.insert(instruction.op0_register().full_register(), value);
        }
    }
    None
}

fn constant(instruction: &Instruction, known: &HashMap<Register, u64>) -> Option<u64> {
    match instruction.code() {
        Opcode::Lea_r64_m if instruction.is_ip_rel_memory_operand() => {
            Some(instruction.memory_displacement64())
        }
        Opcode::Mov_r32_imm32 | Opcode::Mov_rm32_imm32
            if instruction.op0_kind() == OpKind::Register =>
        {
            Some(u64::from(instruction.immediate32()))
        }
        _ if instruction.mnemonic() == Mnemonic::Mov
            && [instruction.op0_kind(), instruction.op1_kind()] == [OpKind::Register; 2]
            && instruction.op0_register().is_gpr64() =>
        {
            known.get(&instruction.op1_register()).copied()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argument(bytes: &[u8], returns_to: u64) -> Option<u64> {
        let function = FunctionCode {
            address: 0x1000,
            bytes,
            size: bytes.len(),
        };
        first_argument(&function, returns_to)
    }

    #[test]
    fn a_constant_that_leads_straight_to_the_call() {
        // lea 0x100(%rip),%rax; mov %rax,%rdi; mov %esi,%edx; call; ret
        let copied = [
            0x48, 0x8d, 0x05, 0, 1, 0, 0, 0x48, 0x89, 0xc7, 0x89, 0xf2, 0xe8, 0, 0, 0, 0, 0xc3,
        ];
        assert_eq!(argument(&copied, 0x1011), Some(0x1107));
        assert_eq!(argument(&copied, 0x100c), None, "no call");
        // mov $0x4040,%edi; call; call; ret
        let twice = [
            0xbf, 0x40, 0x40, 0, 0, 0xe8, 0, 0, 0, 0, 0xe8, 0, 0, 0, 0, 0xc3,
        ];
        assert_eq!(argument(&twice, 0x100a), Some(0x4040));
        assert_eq!(
            argument(&twice, 0x100f),
            None,
            "the first call has changed it"
        );
        // mov (%rdi),%rdi; call; and mov $1,%edi; je to the call; mov $2,%edi; call
        assert_eq!(
            argument(&[0x48, 0x8b, 0x3f, 0xe8, 0, 0, 0, 0], 0x1008),
            None
        );
        let either = [
            0xbf, 1, 0, 0, 0, 0x74, 5, 0xbf, 2, 0, 0, 0, 0xe8, 0, 0, 0, 0,
        ];
        assert_eq!(argument(&either, 0x1011), None);
    }
}
