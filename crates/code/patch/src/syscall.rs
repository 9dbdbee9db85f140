//! Finds system calls as libc makes them: `mov $nr,%eax; …; syscall`.
//!
//! A jump fits on the `mov`, which has five bytes or more. No branch, branch target or other write to %eax may be
//! between the `mov` and the system call; otherwise a thread might execute only one. In libc's `syscall`, which has the
//! number in a register, the patch is on the instruction before the call.
//!
//! Many of libc's functions are little more than a system call, so a patch may displace the call (run its copy). The
//! call's number must then be known and not in [`crate::call_numbers::stays`].

use iced_x86::{Code, FlowControl, Instruction, Mnemonic, Register};

use crate::call_numbers::{NumberedCall, known_calls, number};
use crate::decode::FunctionCode;
use crate::shape::{Kind, Shape, run, shape_in};
use crate::survey::Survey;

/// A system call, and the `mov $nr,%eax` or `push` (see `pushed`) to patch.
#[derive(Clone, Debug)]
pub struct SyscallSite {
    /// The address of the `mov` or `push`.
    pub address: u64,
    /// The call's number; `u32::MAX` if only %eax has it.
    pub nr: u32,
    /// The address of the `syscall`, or of the call to the function that makes it.
    pub syscall: u64,
    /// What can be patched at `address`.
    pub shape: Shape,
}

/// Finds the system calls of these numbers.
pub fn syscall_sites(function: &FunctionCode, nrs: &[u32]) -> Vec<SyscallSite> {
    let survey = Survey::new(function);
    let mut known = known_calls(function, &survey.targets, number);
    known.retain(|pair| nrs.contains(&pair.nr));
    let sites = known.iter().map(|pair| site(function, &survey, pair));
    sites.flatten().collect()
}

/// Finds the system calls whose number is copied from a register that may hold `nr`. The patch must compare %eax.
pub(crate) fn hoisted_sites(function: &FunctionCode, nr: u32) -> Vec<SyscallSite> {
    let held: Vec<Register> = function
        .decoder(0)
        .into_iter()
        .filter(|i| i.code() == Code::Mov_r32_imm32 && i.immediate32() == nr)
        .map(|i| i.op0_register())
        .filter(|register| *register != Register::EAX)
        .collect();
    if held.is_empty() {
        return Vec::new();
    }
    let survey = Survey::new(function);
    let copied = |instruction: &Instruction| {
        let copies = matches!(instruction.code(), Code::Mov_r32_rm32 | Code::Mov_rm32_r32)
            && instruction.op0_register() == Register::EAX
            && held.contains(&instruction.op1_register());
        copies.then_some(nr)
    };
    let pairs = known_calls(function, &survey.targets, copied);
    let sites = pairs.iter().map(|pair| site(function, &survey, pair));
    sites.flatten().collect()
}

/// Finds the only system call of a function like `syscall(3)`. The patch is on the five-byte instruction before it.
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
            found = Some(previous.filter(|_| alone)?).map(|mov| NumberedCall {
                nr: u32::MAX,
                start: mov,
                syscall: start,
            });
        }
        let fits = instruction.len() == 5 && instruction.flow_control() == FlowControl::Next;
        previous = fits.then_some(start);
    }
    site(function, &survey, &found?)
}

/// Returns whether code may replace its thread's thread-local block unnoticed, by `wrfsbase`, or by an arch_prctl that
/// cannot be hooked.
pub fn may_replace_block(function: &FunctionCode) -> bool {
    const ARCH_PRCTL: u32 = 158;
    let code: Vec<Instruction> = function.decoder(0).into_iter().collect();
    if code.iter().any(|i| i.mnemonic() == Mnemonic::Wrfsbase) {
        return true;
    }
    let mut numbers = code.iter().filter(|i| number(i) == Some(ARCH_PRCTL));
    let makes_any = code.iter().any(|i| i.code() == Code::Syscall);
    let sites = syscall_sites(function, &[ARCH_PRCTL]);
    makes_any && numbers.any(|i| sites.iter().all(|site| site.address != i.ip()))
}

fn site(function: &FunctionCode, survey: &Survey, pair: &NumberedCall) -> Option<SyscallSite> {
    let mut shape = shape_in(function, survey, pair.start, Kind::SystemCall).ok()?;
    let want = pair.syscall - pair.start;
    let steps = run(function, survey, pair.start, want).ok()?;
    let syscall = function.address + pair.syscall as u64;
    steps.last().filter(|last| last.end() == want)?;
    shape.run = steps;
    shape.after_syscall = Some(syscall + 2);
    Some(SyscallSite {
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

    #[test]
    fn code_that_may_replace_its_threads_block() {
        let check = |bytes: &[u8], want: bool| {
            let function = FunctionCode {
                address: 0x1000,
                bytes,
                size: bytes.len(),
            };
            assert_eq!(may_replace_block(&function), want, "{bytes:x?}");
        };
        // wrfsbase %edi and %r15; wrgsbase %rdi
        check(&[0xf3, 0x0f, 0xae, 0xd7, 0xc3], true);
        check(&[0xf3, 0x49, 0x0f, 0xae, 0xd7, 0xc3], true);
        check(&[0xf3, 0x48, 0x0f, 0xae, 0xdf, 0xc3], false);
        // mov $158,%eax; syscall; ret
        check(&[0xb8, 0x9e, 0, 0, 0, 0x0f, 0x05, 0xc3], false);
        check(&[0xb8, 0x27, 0, 0, 0, 0x0f, 0x05, 0xc3], false);
        // mov $158,%eax; je to the next
        check(&[0xb8, 0x9e, 0, 0, 0, 0x74, 0, 0x0f, 0x05, 0xc3], true);
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

    /// mov %rdi,%rax; mov 8(%rsp),%r9; syscall; ret
    #[test]
    fn a_call_of_any_number_is_hooked_after_its_arguments() {
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
        // No site: the last instruction sets the number; there are two calls.
        assert_eq!(look(&[0x48, 0x89, 0xf8, 0x0f, 0x05, 0xc3]), None);
        assert_eq!(look(&[&bytes[..10], &bytes[3..]].concat()), None);
    }
}
