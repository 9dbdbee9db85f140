//! System calls as the C library makes them: `mov $nr,%eax; …; syscall`.
//!
//! The `mov` is one instruction of five bytes, so a jump fits on it with no head
//! inside. Between it and the system call there must be neither a branch nor a
//! place that one goes to, nor another value for %eax: then whoever passes the
//! `mov` makes that very call.
//!
//! libc's function `syscall` has the number in a register: there the site is the
//! last instruction in front of the call, if it has five bytes (it loads the sixth
//! argument from the stack).

use iced_x86::{Code, FlowControl, Instruction, InstructionInfoFactory, OpAccess, Register};

use crate::Refusal;
use crate::decode::{FunctionCode, Survey};
use crate::shape::{Kind, Shape, run, shape_in};

/// A `mov $nr,%eax` that leads straight to a system call.
#[derive(Clone, Debug)]
pub struct SyscallSite {
    /// Where the `mov` is.
    pub address: u64,
    /// The system call's number; `u32::MAX` where only %eax knows it.
    pub nr: u32,
    /// Where the `syscall` instruction is.
    pub syscall: u64,
    /// What can stand at the `mov`.
    pub shape: Shape,
}

/// Finds the system calls with one of these numbers.
pub fn syscall_sites(function: &FunctionCode, nrs: &[u32]) -> Vec<SyscallSite> {
    let survey = Survey::new(function);
    let pairs = pairs(function, &survey, nrs);
    pairs
        .iter()
        .filter_map(|pair| site(function, &survey, pair).ok())
        .collect()
}

/// Finds the one system call of a function that makes any, by its last instruction
/// before it; [`SyscallSite::nr`] is `u32::MAX`.
pub fn any_syscall_site(function: &FunctionCode) -> Option<SyscallSite> {
    let survey = Survey::new(function);
    let mut instruction = Instruction::default();
    let mut decoder = function.decoder(0);
    let (mut previous, mut found) = (None, None);
    while decoder.can_decode() {
        let start = decoder.position();
        decoder.decode_out(&mut instruction);
        if instruction.code() == Code::Syscall {
            let alone = found.is_none() && !survey.is_target(instruction.ip());
            found = Some(previous.filter(|_| alone)?).map(|mov| Pair {
                nr: u32::MAX,
                start: mov,
                syscall: start,
            });
        }
        let fits = instruction.len() == 5 && instruction.flow_control() == FlowControl::Next;
        previous = fits.then_some(start);
    }
    site(function, &survey, &found?).ok()
}

/// Offsets of a `mov` and its `syscall`.
struct Pair {
    nr: u32,
    start: usize,
    syscall: usize,
}

fn pairs(function: &FunctionCode, survey: &Survey, nrs: &[u32]) -> Vec<Pair> {
    let mut factory = InstructionInfoFactory::new();
    let mut instruction = Instruction::default();
    let mut decoder = function.decoder(0);
    let mut pairs = Vec::new();
    let mut held: Option<(u32, usize)> = None;
    while decoder.can_decode() {
        let start = decoder.position();
        decoder.decode_out(&mut instruction);
        if survey.is_target(instruction.ip()) {
            held = None;
        }
        if let Some(nr) = number(&instruction) {
            held = nrs.contains(&nr).then_some((nr, start));
        } else if instruction.code() == Code::Syscall {
            let found = held.take();
            pairs.extend(found.map(|(nr, mov)| Pair {
                nr,
                start: mov,
                syscall: start,
            }));
        } else if instruction.flow_control() != FlowControl::Next
            || sets_rax(&mut factory, &instruction)
        {
            held = None;
        }
    }
    pairs
}

/// The constant of a five-byte `mov $nr,%eax`.
fn number(instruction: &Instruction) -> Option<u32> {
    let fits = instruction.code() == Code::Mov_r32_imm32
        && instruction.op0_register() == Register::EAX
        && instruction.len() == 5;
    fits.then(|| instruction.immediate32())
}

fn sets_rax(factory: &mut InstructionInfoFactory, instruction: &Instruction) -> bool {
    use OpAccess::{CondRead, NoMemAccess, None, Read};
    let info = factory.info(instruction);
    info.used_registers().iter().any(|used| {
        let only_read = matches!(used.access(), Read | CondRead | NoMemAccess | None);
        used.register().full_register() == Register::RAX && !only_read
    })
}

fn site(function: &FunctionCode, survey: &Survey, pair: &Pair) -> Result<SyscallSite, Refusal> {
    let mut shape = shape_in(function, survey, pair.start, Kind::SystemCall)?;
    let want = pair.syscall - pair.start;
    let steps = run(function, pair.start, want)?;
    let syscall = function.address + pair.syscall as u64;
    if steps.last().is_none_or(|last| last.end() != want) {
        return Err(Refusal::SystemCall { address: syscall });
    }
    shape.run = steps;
    shape.behind_syscall = Some(syscall + 2);
    Ok(SyscallSite {
        address: shape.site,
        nr: pair.nr,
        syscall,
        shape,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], want: &[(u64, u32, u64)]) {
        let function = FunctionCode {
            address: 0x1000,
            bytes,
            size: bytes.len(),
        };
        let sites = syscall_sites(&function, &[56, 202]);
        let found: Vec<_> = sites.iter().map(|s| (s.address, s.nr, s.syscall)).collect();
        assert_eq!(found, want, "{bytes:x?}");
    }

    const MOV_202: [u8; 5] = [0xb8, 0xca, 0, 0, 0];
    const SYSCALL: [u8; 2] = [0x0f, 0x05];

    #[test]
    fn only_straight_ways_to_the_call_are_sites() {
        let code = |parts: &[&[u8]]| parts.concat();
        let at_once = [(0x1000, 202, 0x1005)];
        check(&code(&[&MOV_202, &SYSCALL, &[0xc3]]), &at_once);
        check(
            &code(&[&MOV_202, &[0x31, 0xf6], &SYSCALL]),
            &[(0x1000, 202, 0x1007)],
        );
        check(&code(&[&MOV_202, &[0x31, 0xc0], &SYSCALL]), &[]);
        check(&code(&[&MOV_202, &[0x74, 0x00], &SYSCALL]), &[]);
        check(&code(&[&MOV_202, &SYSCALL, &[0x74, 0xfc]]), &[]);
        check(&code(&[&MOV_202, &SYSCALL, &[0x74, 0xf7]]), &at_once);
        check(&code(&[&[0xb8, 0x27, 0, 0, 0], &SYSCALL]), &[]);
    }

    /// mov %rdi,%rax; mov 8(%rsp),%r9; syscall; ret, as libc's `syscall` ends.
    #[test]
    fn a_call_of_any_number_is_hooked_behind_its_arguments() {
        let bytes = [
            0x48, 0x89, 0xf8, 0x4c, 0x8b, 0x4c, 0x24, 0x08, 0x0f, 0x05, 0xc3,
        ];
        let look = |bytes| {
            let function = FunctionCode {
                address: 0x1000,
                bytes,
                size: bytes.len(),
            };
            any_syscall_site(&function).map(|site| (site.address, site.syscall))
        };
        assert_eq!(look(&bytes), Some((0x1003, 0x1008)));
        // The number may not come from the last instruction, and one call is all.
        assert_eq!(look(&[0x48, 0x89, 0xf8, 0x0f, 0x05, 0xc3]), None);
        assert_eq!(look(&[&bytes[..10], &bytes[3..]].concat()), None);
    }
}
