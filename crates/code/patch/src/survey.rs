//! A function's branch targets and padding.

use iced_x86::{Code, Decoder, DecoderOptions, Mnemonic};

use crate::call_numbers::movable;
use crate::decode::{BranchTargets, FunctionCode, direct_target, each_instruction, falls_through};

/// Bytes between functions, which a jump may replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Padding {
    /// The address.
    pub address: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Returns the padding after a function, unless control can reach it.
pub fn padding(function: &FunctionCode) -> Option<Padding> {
    let len = Survey::new(function).unreached_padding(function);
    let start = function.body().len();
    let bytes = function.bytes[start..start + len].to_vec();
    (len > 0).then(|| Padding {
        address: function.address + start as u64,
        bytes,
    })
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

#[derive(Debug)]
pub(crate) struct Survey {
    pub(crate) targets: BranchTargets,
    ends_function: bool,
    /// Addresses of system calls that may run from a copy, sorted.
    movable: Vec<u64>,
}

impl Survey {
    pub(crate) fn new(function: &FunctionCode) -> Survey {
        let mut targets = Vec::new();
        let mut ends_function = false;
        each_instruction(function, |instruction| {
            targets.extend(instruction.and_then(direct_target));
            ends_function = instruction.is_some_and(|i| !falls_through(i) || i.is_call_near());
        });
        let targets = BranchTargets::new(targets);
        Survey {
            movable: movable(function, &targets),
            targets,
            ends_function,
        }
    }

    pub(crate) fn is_movable(&self, address: u64) -> bool {
        self.movable.binary_search(&address).is_ok()
    }

    pub(crate) fn is_target(&self, address: u64) -> bool {
        self.targets.contains(address)
    }

    pub(crate) fn unreached_padding(&self, function: &FunctionCode) -> usize {
        let body = function.body().len();
        let end = function.address + body as u64;
        let len = if self.ends_function {
            filler(&function.bytes[body..], end)
        } else {
            0
        };
        let reached = self.targets.any_in(end..end + len as u64);
        if reached { 0 } else { len }
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
    fn targets_are_found_after_data() {
        let bytes = [0xeb, 0x01, 0x06, 0xeb, 0xfb, 0xc3];
        let survey = Survey::new(&code(&bytes, 6));
        assert!(survey.is_target(0x1003) && survey.is_target(0x1000) && survey.ends_function);
    }
}
