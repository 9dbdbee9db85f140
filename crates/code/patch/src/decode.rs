//! Decodes functions.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

use crate::Refusal;

/// A function's code.
#[derive(Clone, Copy, Debug)]
pub struct FunctionCode<'a> {
    /// The address.
    pub address: u64,
    /// The function's bytes, then the bytes up to the next function.
    pub bytes: &'a [u8],
    /// The function's size.
    pub size: usize,
}

impl<'a> FunctionCode<'a> {
    pub(crate) fn body(&self) -> &'a [u8] {
        &self.bytes[..self.size.min(self.bytes.len())]
    }

    pub(crate) fn decoder(&self, offset: usize) -> Decoder<'a> {
        self.decoder_of(64, offset)
    }

    fn decoder_of(&self, bits: u32, offset: usize) -> Decoder<'a> {
        let rest = &self.body()[offset..];
        let address = self.address.wrapping_add(offset as u64);
        Decoder::with_ip(bits, rest, address, DecoderOptions::NONE)
    }
}

/// Returns the targets of direct calls.
pub fn direct_calls(function: &FunctionCode) -> Vec<u64> {
    let all = transfers(function).into_iter();
    let calls = all.filter(|(_, returns_to)| returns_to.is_some());
    calls.map(|(target, _)| target).collect()
}

/// Returns the return addresses of calls.
pub fn call_returns(function: &FunctionCode) -> Vec<u64> {
    let decoder = function.decoder(0).into_iter();
    let calls = decoder.filter(|instruction| {
        let flow = instruction.flow_control();
        matches!(flow, FlowControl::Call | FlowControl::IndirectCall)
    });
    calls.map(|call| call.next_ip()).collect()
}

/// Returns the targets of direct calls and jumps, and each call's return address.
pub fn transfers(function: &FunctionCode) -> Vec<(u64, Option<u64>)> {
    let decoder = function.decoder(0).into_iter();
    let found = decoder.filter_map(|instruction| {
        let is_call = instruction.flow_control() == FlowControl::Call;
        let returns_to = is_call.then(|| instruction.next_ip());
        Some((direct_target(&instruction)?, returns_to))
    });
    found.collect()
}

pub(crate) fn falls_through(instruction: &Instruction) -> bool {
    use FlowControl::{Exception, IndirectBranch, Return, UnconditionalBranch};
    !matches!(
        instruction.flow_control(),
        Exception | IndirectBranch | Return | UnconditionalBranch
    )
}

pub(crate) fn direct_target(instruction: &Instruction) -> Option<u64> {
    use FlowControl::{Call, ConditionalBranch, UnconditionalBranch};
    let direct = match instruction.flow_control() {
        ConditionalBranch => true,
        UnconditionalBranch => instruction.is_jmp_short_or_near(),
        Call => instruction.is_call_near(),
        _ => false,
    };
    direct.then(|| instruction.near_branch_target())
}

/// Calls `visit` with each instruction, and with `None` for each byte that cannot be decoded.
pub(crate) fn each_instruction(
    function: &FunctionCode,
    mut visit: impl FnMut(Option<&Instruction>),
) {
    let mut decoder = function.decoder(0);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        let start = decoder.position();
        decoder.decode_out(&mut instruction);
        if !instruction.is_invalid() {
            visit(Some(&instruction));
            continue;
        }
        visit(None);
        decoder
            .set_position(start + 1)
            .expect("inside the function");
        decoder.set_ip(function.address + start as u64 + 1);
    }
}

pub(crate) fn branch_targets(function: &FunctionCode) -> BranchTargets {
    let mut targets = Vec::new();
    each_instruction(function, |instruction| {
        targets.extend(instruction.and_then(direct_target));
    });
    BranchTargets::new(targets)
}

#[derive(Debug)]
pub(crate) struct BranchTargets {
    sorted: Vec<u64>,
}

impl BranchTargets {
    pub(crate) fn new(mut targets: Vec<u64>) -> Self {
        targets.sort_unstable();
        Self { sorted: targets }
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        self.sorted.binary_search(&address).is_ok()
    }

    pub(crate) fn any_in(&self, range: Range<u64>) -> bool {
        self.sorted.iter().any(|target| range.contains(target))
    }
}

/// Fails unless an instruction begins at `offset`, in code of 64 or 32 `bits`.
pub fn check_boundary(function: &FunctionCode, offset: usize, bits: u32) -> Result<(), Refusal> {
    let size = function.body().len();
    if offset >= size {
        return Err(Refusal::Outside { offset, size });
    }
    let mut decoder = function.decoder_of(bits, 0);
    let mut instruction = Instruction::default();
    while decoder.position() < offset {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            return Err(Refusal::InsideInstruction { offset });
        }
    }
    if decoder.position() == offset {
        Ok(())
    } else {
        Err(Refusal::InsideInstruction { offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(bytes: &[u8], size: usize) -> FunctionCode<'_> {
        FunctionCode {
            address: 0x1000,
            bytes,
            size,
        }
    }

    #[test]
    fn offsets_are_checked_against_the_instructions() {
        let bytes = [0x55, 0x48, 0x89, 0xe5, 0xc3];
        for (offset, fine) in [
            (0, true),
            (1, true),
            (2, false),
            (3, false),
            (4, true),
            (5, false),
        ] {
            assert_eq!(
                check_boundary(&code(&bytes, 5), offset, 64).is_ok(),
                fine,
                "{offset}"
            );
        }
    }

    #[test]
    fn a_prefix_of_64_bit_code_is_an_instruction_of_32_bit_code() {
        let function = code(&[0x48, 0x89, 0xe5, 0xc3], 4);
        assert!(check_boundary(&function, 1, 32).is_ok());
        assert!(check_boundary(&function, 1, 64).is_err());
    }
}
