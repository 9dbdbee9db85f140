//! Finds system calls as libc makes them: `mov $nr,%eax; …; syscall`.
//!
//! The `mov` has at least five bytes, so that a jump fits on it with no head inside. Between it and the
//! system call must be no branch, branch target or other write to %eax. Otherwise a thread that
//! passes the `mov` might not make that call.
//!
//! libc's function `syscall` has the number in a register. Its site is the last instruction before
//! the call, of five bytes (it loads the sixth argument).
//!
//! A patch may displace a call whose number is known and not in [`stays`], because many of libc's
//! functions are only a call, and `read` has too few bytes before its call.

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register,
};

use crate::Refusal;
use crate::decode::{FunctionCode, Survey};
use crate::shape::{Kind, Shape, run, shape_in};

/// A system call, and the `mov $nr,%eax` or `push` (see `pushed`) before it, which is patched.
#[derive(Clone, Debug)]
pub struct SyscallSite {
    /// The address of the `mov` or `push`.
    pub address: u64,
    /// The system call's number; `u32::MAX` if only %eax has it.
    pub nr: u32,
    /// The address of the `syscall`, or of the call of the function with it.
    pub syscall: u64,
    /// The shape of the patch at `address`.
    pub shape: Shape,
}

/// Finds the system calls of these numbers.
pub fn syscall_sites(function: &FunctionCode, nrs: &[u32]) -> Vec<SyscallSite> {
    let survey = Survey::new(function);
    let pairs = pairs(function, &survey, nrs);
    pairs
        .iter()
        .filter_map(|pair| site(function, &survey, pair).ok())
        .collect()
}

/// Finds the system calls before which a loop copies a register to %eax that may hold `nr`. The
/// patch must compare %eax.
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
    let pairs = known_calls(function, &survey, copied);
    let sites = pairs.iter().map(|pair| site(function, &survey, pair));
    sites.filter_map(Result::ok).collect()
}

/// Finds the only system call of a function like `syscall(3)`, whose argument is the number. The
/// site begins at the instruction before it, which must have a jump's five bytes.
/// [`SyscallSite::nr`] is `u32::MAX`.
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

pub(crate) struct Pair {
    nr: u32,
    start: usize,
    syscall: usize,
}

/// Returns whether a call must be made at its own address:
/// - calls that return twice, in another program, or never;
/// - calls that the kernel may restart under another number, which it forgets if the thread traps
///   first;
/// - calls that a patch may hook: for signals, credentials, mappings and locked memory.
pub fn stays(nr: u32) -> bool {
    const STAY: &[u32] = &[
        7, 35, 202, 219, 230, // poll, nanosleep, futex, restart_syscall, clock_nanosleep
        9, 10, 11, 25, 151, 329, // mmap, mprotect, munmap, mremap, mlockall, pkey_mprotect
        13, 14, 15, 34, 127, 128, 130, 270, 271, 281, 282, 289,
        441, // signals, and waits for them
        56, 57, 58, 59, 60, 231, 322, 435, // clone, fork, vfork, exec, exit
        101, 105, 106, 113, 114, 116, 117, 119, 157, 158, 272, 308,
        317, // set*id, prctl, arch_prctl, namespaces, seccomp
    ];
    STAY.contains(&nr)
}

const MASKS: &[u32] = &[
    13, 14, 130, 270, 271, 281,
    441, // sigaction, sigprocmask, sigsuspend, pselect6, ppoll, epoll_pwait(2)
];

/// Returns whether code may change which signals its thread blocks, by a system call of one of
/// these numbers or an unknown one. A number is known if the instruction that sets it leads
/// straight to the call, or if its register is only set to constants.
pub fn may_change_masks(function: &FunctionCode) -> bool {
    let survey = Survey::new(function);
    let known = known_calls(function, &survey, constant);
    if known.iter().any(|pair| MASKS.contains(&pair.nr)) {
        return true;
    }
    let at = |pair: &Pair| function.address + pair.syscall as u64;
    let known: Vec<u64> = known.iter().map(at).collect();
    let code: Vec<Instruction> = function.decoder(0).into_iter().collect();
    let calls = code
        .iter()
        .enumerate()
        .filter(|(_, i)| i.code() == Code::Syscall);
    calls
        .filter(|(_, call)| !known.contains(&call.ip()))
        .any(|(index, _)| {
            let straight = straight_number(&code, index, &survey).map(|nr| vec![nr]);
            let all = straight.or_else(|| numbers(&code, index));
            all.is_none_or(|all| all.iter().any(|nr| MASKS.contains(nr)))
        })
}

/// Returns a call's number, if a constant in a register leads straight to it.
fn straight_number(code: &[Instruction], call: usize, survey: &Survey) -> Option<u32> {
    let mut factory = InstructionInfoFactory::new();
    let mut held = Register::RAX;
    for pair in code.get(..=call)?.windows(2).rev() {
        let [instruction, next] = pair else { continue };
        if survey.is_target(next.ip()) {
            return None;
        }
        let is_call = instruction.code() == Code::Syscall;
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::ConditionalBranch => {}
            _ if is_call => {}
            _ => return None,
        }
        if !sets(&mut factory, instruction, &[held]) {
            continue;
        }
        match instruction.code() {
            Code::Mov_r32_imm32 => return Some(instruction.immediate32()),
            Code::Mov_r32_rm32 | Code::Mov_rm32_r32
                if held == Register::RAX && instruction.op1_register() != Register::None =>
            {
                held = instruction.op1_register().full_register();
            }
            _ => return None,
        }
    }
    None
}

/// Returns whether code may give its thread another thread-local block without passing a hook of
/// arch_prctl: by `wrfsbase`, or where no hook fits.
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

/// Returns the possible numbers of a call whose number is copied to %eax from another register: the constants to which
/// the function sets that register. `None` if there may be other numbers.
fn numbers(code: &[Instruction], call: usize) -> Option<Vec<u32>> {
    let mut factory = InstructionInfoFactory::new();
    let before = code.get(..call)?.iter().rev();
    let setter = before
        .take_while(|i| i.flow_control() == FlowControl::Next)
        .find(|i| sets(&mut factory, i, &[Register::RAX]))?;
    let copies = matches!(
        setter.code(),
        Code::Mov_r32_rm32 | Code::Mov_rm32_r32 | Code::Mov_r64_rm64 | Code::Mov_rm64_r64
    );
    let held = setter.op1_register().full_register();
    if !copies || held == Register::None {
        return None;
    }
    let mut numbers = Vec::new();
    for instruction in code {
        if sets(&mut factory, instruction, &[held]) && instruction.mnemonic() != Mnemonic::Pop {
            let is_constant = instruction.code() == Code::Mov_r32_imm32;
            numbers.push(is_constant.then(|| instruction.immediate32())?);
        }
    }
    (!numbers.is_empty()).then_some(numbers)
}

pub(crate) fn movable(function: &FunctionCode, survey: &Survey) -> Vec<u64> {
    let makes_any = function.body().windows(2).any(|pair| pair == [0x0f, 0x05]);
    let known = makes_any.then(|| known_calls(function, survey, constant));
    let moved = known.into_iter().flatten().filter(|pair| !stays(pair.nr));
    moved
        .map(|pair| function.address + pair.syscall as u64)
        .collect()
}

fn pairs(function: &FunctionCode, survey: &Survey, nrs: &[u32]) -> Vec<Pair> {
    let mut known = known_calls(function, survey, number);
    known.retain(|pair| nrs.contains(&pair.nr));
    known
}

/// Returns the calls to which instructions that set the number lead straight.
pub(crate) fn known_calls(
    function: &FunctionCode,
    survey: &Survey,
    number: impl Fn(&Instruction) -> Option<u32>,
) -> Vec<Pair> {
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
            held = Some((nr, start));
        } else if instruction.code() == Code::Syscall {
            let found = held.take();
            pairs.extend(found.map(|(nr, mov)| Pair {
                nr,
                start: mov,
                syscall: start,
            }));
        } else if instruction.flow_control() != FlowControl::Next
            || sets(&mut factory, &instruction, &[Register::RAX])
        {
            held = None;
        }
    }
    pairs
}

fn number(instruction: &Instruction) -> Option<u32> {
    let sets = matches!(
        instruction.code(),
        Code::Mov_r32_imm32 | Code::Mov_rm32_imm32 | Code::Mov_rm64_imm32
    );
    // The kernel looks at %eax only.
    let sets = sets && matches!(instruction.op0_register(), Register::EAX | Register::RAX);
    sets.then(|| instruction.immediate32())
}

fn constant(instruction: &Instruction) -> Option<u32> {
    let is = |at| instruction.op_count() == 2 && instruction.op_register(at) == Register::EAX;
    let clears = instruction.mnemonic() == Mnemonic::Xor && is(0) && is(1);
    number(instruction).or(clears.then_some(0))
}

pub(crate) fn sets(
    factory: &mut InstructionInfoFactory,
    instruction: &Instruction,
    registers: &[Register],
) -> bool {
    use OpAccess::{CondRead, NoMemAccess, None, Read};
    let info = factory.info(instruction);
    info.used_registers().iter().any(|used| {
        let only_read = matches!(used.access(), Read | CondRead | NoMemAccess | None);
        registers.contains(&used.register().full_register()) && !only_read
    })
}

fn site(function: &FunctionCode, survey: &Survey, pair: &Pair) -> Result<SyscallSite, Refusal> {
    let mut shape = shape_in(function, survey, pair.start, Kind::SystemCall)?;
    let want = pair.syscall - pair.start;
    let steps = run(function, survey, pair.start, want)?;
    let syscall = function.address + pair.syscall as u64;
    if steps.last().is_none_or(|last| last.end() != want) {
        return Err(Refusal::SystemCall { address: syscall });
    }
    shape.run = steps;
    shape.after_syscall = Some(syscall + 2);
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

    #[test]
    fn a_call_of_a_known_number_may_be_displaced() {
        let check = |bytes: &[u8], want: &[u64]| {
            let function = FunctionCode {
                address: 0x1000,
                bytes,
                size: bytes.len(),
            };
            let survey = Survey::new(&function);
            assert_eq!(movable(&function, &survey), want, "{bytes:x?}");
        };
        // xor %eax,%eax, or mov $39,%eax, in both of its forms
        check(&[0x31, 0xc0, 0x0f, 0x05, 0xc3], &[0x1002]);
        check(&[0xb8, 0x27, 0, 0, 0, 0x0f, 0x05, 0xc3], &[0x1005]);
        check(&[0x48, 0xc7, 0xc0, 0x27, 0, 0, 0, 0x0f, 0x05], &[0x1007]);
        check(&[0xc7, 0xc0, 0x27, 0, 0, 0, 0x0f, 0x05], &[0x1006]);
        // Another or unknown number: poll, %edi, and a jump to in between.
        check(&[0xb8, 0x07, 0, 0, 0, 0x0f, 0x05], &[]);
        check(&[0x89, 0xf8, 0x0f, 0x05], &[]);
        check(&[0x31, 0xc0, 0x0f, 0x05, 0x74, 0xfc], &[]);
        // The first call's result is not the second's number.
        check(&[0x31, 0xc0, 0x0f, 0x05, 0x0f, 0x05], &[0x1002]);
    }

    #[test]
    fn code_that_may_change_masks() {
        let check = |bytes: &[u8], want: bool| {
            let function = FunctionCode {
                address: 0x1000,
                bytes,
                size: bytes.len(),
            };
            assert_eq!(may_change_masks(&function), want, "{bytes:x?}");
        };
        let call = |number: u8| [0xb8, number, 0, 0, 0, 0x0f, 0x05, 0xc3];
        check(&[0xc3], false);
        check(&call(202), false);
        check(&call(14), true);
        // xor %eax,%eax; syscall: read
        check(&[0x31, 0xc0, 0x0f, 0x05, 0xc3], false);
        // mov %edi,%eax; syscall: the caller chooses
        check(&[0x89, 0xf8, 0x0f, 0x05, 0xc3], true);
        // push %rbx; mov $202,%ebx; mov %ebx,%eax; syscall; pop %rbx
        let held = |number: u8| {
            [
                0x53, 0xbb, number, 0, 0, 0, 0x89, 0xd8, 0x0f, 0x05, 0x5b, 0xc3,
            ]
        };
        check(&held(202), false);
        check(&held(14), true);
        // mov (%rdi),%ebx: the number comes from memory
        check(&[0x8b, 0x1f, 0x89, 0xd8, 0x0f, 0x05, 0xc3], true);
        // Nothing sets it.
        check(&[0x0f, 0x05, 0xc3], true);
    }

    /// Regression: a register that has other values elsewhere made the number unknown, as in liburing. MariaDB's waits
    /// were then counted without their times.
    #[test]
    fn a_constant_that_leads_straight_to_a_call_was_unknown() {
        // mov $11,%edx; mov %edx,%eax; syscall; test %rdi,%rdi; je; mov %edx,%eax; syscall; mov (%rdi),%edx
        let code = |number: u8, jump: u8| {
            let first = [0xba, number, 0, 0, 0, 0x89, 0xd0, 0x0f, 0x05];
            let second = [0x48, 0x85, 0xff, 0x74, jump, 0x89, 0xd0, 0x0f, 0x05];
            [&first[..], &second, &[0x8b, 0x17, 0xc3]].concat()
        };
        let check = |bytes: &[u8], want: bool| {
            let function = FunctionCode {
                address: 0x1000,
                bytes,
                size: bytes.len(),
            };
            assert_eq!(may_change_masks(&function), want, "{bytes:x?}");
        };
        check(&code(11, 4), false);
        check(&code(14, 4), true);
        // The jump leads to the first copy, with any other value.
        check(&code(11, 0xf7), true);
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
        // mov $158,%eax; je to the next; syscall
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

    /// mov %rdi,%rax; mov 8(%rsp),%r9; syscall; ret, as libc's `syscall` ends.
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
        // The last instruction must not set the number, and the call must be the only one.
        assert_eq!(look(&[0x48, 0x89, 0xf8, 0x0f, 0x05, 0xc3]), None);
        assert_eq!(look(&[&bytes[..10], &bytes[3..]].concat()), None);
    }
}
