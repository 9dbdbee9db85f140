//! Finds system calls that another function makes, whose number is pushed: `push $nr; …; call MAKER`.
//!
//! From 2.41 on, glibc makes all cancellable calls by one `syscall`.

use iced_x86::{Code, FlowControl, Instruction, InstructionInfoFactory, OpKind, Register};

use crate::call_numbers::{known_calls, sets};
use crate::decode::{FunctionCode, branch_targets, direct_target};
use crate::flags;
use crate::shape::{Kind, shape_in};
use crate::survey::Survey;
use crate::syscall::SyscallSite;

/// The most instructions searched after a call for a use of its result.
const WAY_BACK: usize = 8;

#[derive(Clone, Debug)]
pub(crate) struct PushedNumber {
    /// [`SyscallSite::syscall`] is the call to `maker`.
    pub(crate) site: SyscallSite,
    pub(crate) maker: u64,
    pub(crate) way_back: Vec<usize>,
}

pub(crate) fn makes_pushed(function: &FunctionCode) -> bool {
    let loaded = |instruction: &Instruction| {
        let loads = matches!(instruction.code(), Code::Mov_r64_rm64 | Code::Mov_r32_rm32)
            && instruction.op1_kind() == OpKind::Memory
            && matches!(instruction.memory_base(), Register::RSP | Register::RBP)
            && instruction.op0_register().full_register() == Register::RAX;
        loads.then_some(0)
    };
    !known_calls(function, &branch_targets(function), loaded).is_empty()
}

/// Finds the pushes of `nr` before a call. The called function must then be checked with [`makes_pushed`].
pub(crate) fn pushed(function: &FunctionCode, nr: u32) -> Vec<PushedNumber> {
    let mut factory = InstructionInfoFactory::new();
    let survey = Survey::new(function);
    let mut held = None;
    let mut found = Vec::new();
    let mut decoder = function.decoder(0);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        let start = decoder.position();
        decoder.decode_out(&mut instruction);
        if survey.is_target(instruction.ip()) {
            held = None;
        }
        let pushes = instruction.code() == Code::Pushq_imm32 && instruction.len() == 5;
        if pushes && instruction.immediate32() == nr {
            held = Some(start);
        } else if instruction.is_call_near() {
            let site = held.take().and_then(|push| {
                let shape = shape_in(function, &survey, push, Kind::SystemCall).ok()?;
                let address = shape.site();
                let syscall = instruction.ip();
                Some(SyscallSite {
                    address,
                    nr,
                    syscall,
                    shape,
                })
            });
            found.extend(site.map(|site| PushedNumber {
                site,
                maker: instruction.near_branch_target(),
                way_back: way_back(function, decoder.position()),
            }));
        } else if instruction.flow_control() != FlowControl::Next
            || disturbs(&mut factory, &instruction)
        {
            held = None;
        }
    }
    found
}

/// Returns whether the instruction forbids a patch before it, because it sets an argument or reads the flags.
fn disturbs(factory: &mut InstructionInfoFactory, instruction: &Instruction) -> bool {
    let arguments = [Register::RDI, Register::RSI];
    flags::read(instruction) != 0 || sets(factory, instruction, &arguments)
}

/// Returns the offsets of the instructions that run after a return to `offset`, up to the first that may use the
/// result.
fn way_back(function: &FunctionCode, offset: usize) -> Vec<usize> {
    let mut factory = InstructionInfoFactory::new();
    let mut way = Vec::new();
    let mut at = offset;
    while way.len() < WAY_BACK && at < function.body().len() {
        let mut decoder = function.decoder(at);
        let instruction = decoder.decode();
        way.push(at);
        let gives_room_back = instruction.op0_register() == Register::RSP;
        let looks = flags::changed(&instruction) != 0 && !gives_room_back;
        at = match instruction.flow_control() {
            FlowControl::Next if !looks && !sets(&mut factory, &instruction, &[Register::RAX]) => {
                at + decoder.position()
            }
            FlowControl::UnconditionalBranch => match direct_target(&instruction) {
                Some(target) => target.wrapping_sub(function.address) as usize,
                None => break,
            },
            _ => break,
        };
    }
    way
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(bytes: &[u8]) -> FunctionCode<'_> {
        FunctionCode {
            address: 0x1000,
            bytes,
            size: bytes.len(),
        }
    }

    const PUSH: [u8; 5] = [0x68, 0xca, 0, 0, 0];
    const CALL: [u8; 5] = [0xe8, 0xfb, 0x0f, 0, 0];

    fn check(parts: &[&[u8]], want: &[(u64, u64, &[usize])]) {
        let bytes = parts.concat();
        let found = pushed(&code(&bytes), 202);
        let found: Vec<_> = found
            .iter()
            .map(|p| (p.site.address, p.maker, &p.way_back[..]))
            .collect();
        assert_eq!(found, want, "{bytes:x?}");
    }

    #[test]
    fn a_number_that_is_pushed_leads_to_a_call() {
        // xor %r8d,%r8d; call; pop %rdx; pop %rcx; jmp +1; (ret;) test %eax,%eax; ret
        let clear = [0x45, 0x31, 0xc0];
        let back = [0x5a, 0x59, 0xeb, 0x01, 0xc3, 0x85, 0xc0, 0xc3];
        let way = [13, 14, 15, 18];
        check(&[&PUSH, &clear, &CALL, &back], &[(0x1000, 0x2008, &way)]);
        // add $16,%rsp; cmp $-4096,%rax; ja
        let back = [
            0x48, 0x83, 0xc4, 0x10, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff, 0x77, 0x00, 0xc3,
        ];
        check(&[&PUSH, &CALL, &back], &[(0x1000, 0x2005, &[10, 14])]);
        // mov %ebx,%esi; cmove %eax,%edx: an argument set too late, and flags read.
        check(&[&PUSH, &[0x89, 0xde], &CALL, &[0xc3]], &[]);
        check(&[&PUSH, &[0x0f, 0x44, 0xd0], &CALL, &[0xc3]], &[]);
        // Another number; a jump to between push and call.
        check(&[&[0x68, 0xcb, 0, 0, 0], &CALL, &[0xc3]], &[]);
        check(&[&PUSH, &CALL, &[0x74, 0xf9]], &[]);
    }

    #[test]
    fn a_maker_loads_the_pushed_number() {
        // mov 16(%rsp),%rax; syscall
        let loads = [0x48, 0x8b, 0x44, 0x24, 0x10, 0x0f, 0x05, 0xc3];
        assert!(makes_pushed(&code(&loads)));
        // mov $202,%eax; syscall
        assert!(!makes_pushed(&code(&[
            0xb8, 0xca, 0, 0, 0, 0x0f, 0x05, 0xc3
        ])));
    }
}
