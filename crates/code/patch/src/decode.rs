//! Reads a function once, from first byte to last.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

use crate::Refusal;
use crate::syscall;

/// A function's bytes in memory.
#[derive(Clone, Copy, Debug)]
pub struct FunctionCode<'a> {
    /// The address of the first byte.
    pub address: u64,
    /// The function, then the bytes up to the next.
    pub bytes: &'a [u8],
    /// How many of these bytes are the function's.
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

/// Bytes between functions, never executed, which an island may replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Padding {
    /// The address of the first byte.
    pub address: u64,
    /// The bytes now.
    pub bytes: Vec<u8>,
}

/// Returns the padding after a function, if there is any and control cannot reach it.
pub fn padding(function: &FunctionCode) -> Option<Padding> {
    let len = Survey::new(function).unreached_padding(function);
    let start = function.body().len();
    let bytes = function.bytes[start..start + len].to_vec();
    (len > 0).then(|| Padding {
        address: function.address + start as u64,
        bytes,
    })
}

/// Returns a function's direct callees.
pub fn direct_calls(function: &FunctionCode) -> Vec<u64> {
    let all = transfers(function).into_iter();
    let calls = all.filter(|(_, returns_to)| returns_to.is_some());
    calls.map(|(target, _)| target).collect()
}

/// Returns the return addresses of a function's calls.
pub fn call_returns(function: &FunctionCode) -> Vec<u64> {
    let decoder = function.decoder(0).into_iter();
    let calls = decoder.filter(|instruction| {
        let flow = instruction.flow_control();
        matches!(flow, FlowControl::Call | FlowControl::IndirectCall)
    });
    calls.map(|call| call.next_ip()).collect()
}

/// Returns the targets of a function's direct calls and jumps, inside and outside, and for each
/// call its return address.
pub fn transfers(function: &FunctionCode) -> Vec<(u64, Option<u64>)> {
    let decoder = function.decoder(0).into_iter();
    let found = decoder.filter_map(|instruction| {
        let is_call = instruction.flow_control() == FlowControl::Call;
        let returns_to = is_call.then(|| instruction.next_ip());
        Some((direct_target(&instruction)?, returns_to))
    });
    found.collect()
}

fn filler(bytes: &[u8], address: u64) -> usize {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut len = 0;
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let idle = instruction.mnemonic() == Mnemonic::Nop || instruction.code() == Code::Int3;
        if !idle {
            break;
        }
        len = decoder.position();
    }
    len
}

pub(crate) fn falls_through(instruction: &Instruction) -> bool {
    use FlowControl::{Exception, IndirectBranch, Return, UnconditionalBranch};
    !matches!(
        instruction.flow_control(),
        Exception | IndirectBranch | Return | UnconditionalBranch
    )
}

#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// Targets of its direct branches and calls, sorted.
    targets: Vec<u64>,
    /// Whether control does not continue after the last instruction, which ends the function.
    ends_function: bool,
    /// System calls that may run from a copy, sorted.
    movable: Vec<u64>,
}

impl Survey {
    pub(crate) fn new(function: &FunctionCode) -> Survey {
        let mut survey = Survey::default();
        let mut decoder = function.decoder(0);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            let start = decoder.position();
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                // Data between instructions: try again one byte later.
                survey.ends_function = false;
                decoder
                    .set_position(start + 1)
                    .expect("inside the function");
                decoder.set_ip(function.address + start as u64 + 1);
                continue;
            }
            if let Some(target) = direct_target(&instruction) {
                survey.targets.push(target);
            }
            survey.ends_function = !falls_through(&instruction) || instruction.is_call_near();
        }
        survey.targets.sort_unstable();
        survey.movable = syscall::movable(function, &survey);
        survey
    }

    pub(crate) fn is_movable(&self, address: u64) -> bool {
        self.movable.binary_search(&address).is_ok()
    }

    pub(crate) fn is_target(&self, address: u64) -> bool {
        self.targets.binary_search(&address).is_ok()
    }

    /// Returns how many bytes of filler follow, unless control may reach them.
    pub(crate) fn unreached_padding(&self, function: &FunctionCode) -> usize {
        let body = function.body().len();
        let end = function.address + body as u64;
        let len = if self.ends_function {
            filler(&function.bytes[body..], end)
        } else {
            0
        };
        let reached = self
            .targets
            .iter()
            .any(|t| (end..end + len as u64).contains(t));
        if reached { 0 } else { len }
    }
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

/// Fails unless an instruction begins at `offset`, decoded from the first byte as code of 64 or 32
/// `bits`.
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
    fn padding_is_filler_that_control_cannot_reach() {
        let check = |bytes: &[u8], size, want: usize| {
            let len = padding(&code(bytes, size)).map_or(0, |p| p.bytes.len());
            assert_eq!(len, want, "{bytes:x?}");
        };
        check(&[0xc3, 0x90, 0x90, 0x0f, 0x1f, 0x00], 1, 5);
        check(&[0xc3, 0xcc, 0xcc, 0x55], 1, 2);
        check(&[0xc3, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], 1, 10);
        check(&[0x90, 0x90, 0x90], 1, 0);
        check(&[0x74, 0x01, 0xc3, 0x90, 0x90], 3, 0);
        check(&[0xc3], 1, 0);
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

    #[test]
    fn targets_are_found_after_data() {
        let bytes = [0xeb, 0x01, 0x06, 0xeb, 0xfb, 0xc3];
        let survey = Survey::new(&code(&bytes, 6));
        assert!(survey.is_target(0x1003) && survey.is_target(0x1000) && survey.ends_function);
    }
}
