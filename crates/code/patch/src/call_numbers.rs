//! Finds system calls by the instructions that set %eax.

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register,
};

use crate::decode::{BranchTargets, FunctionCode, branch_targets};

pub(crate) struct NumberedCall {
    pub(crate) nr: u32,
    pub(crate) start: usize,
    pub(crate) syscall: usize,
}

/// Returns whether a call must run at its own address, because
/// - it returns twice, in another program, or never;
/// - the kernel may restart it as `restart_syscall`, which fails after a trap's signal;
/// - another patch may hook it (calls about signals, credentials, mappings, locked memory).
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

/// Returns whether code may change which signals its thread blocks, by one of [`MASKS`] or an unknown call. A call is
/// known if code without branches sets its number to a constant, or copies it from a register set only to constants.
pub fn may_change_masks(function: &FunctionCode) -> bool {
    let targets = branch_targets(function);
    let known = known_calls(function, &targets, constant);
    if known.iter().any(|pair| MASKS.contains(&pair.nr)) {
        return true;
    }
    let at = |pair: &NumberedCall| function.address + pair.syscall as u64;
    let known: Vec<u64> = known.iter().map(at).collect();
    let code: Vec<Instruction> = function.decoder(0).into_iter().collect();
    let calls = code
        .iter()
        .enumerate()
        .filter(|(_, i)| i.code() == Code::Syscall);
    calls
        .filter(|(_, call)| !known.contains(&call.ip()))
        .any(|(index, _)| {
            let straight = straight_number(&code, index, &targets).map(|nr| vec![nr]);
            let all = straight.or_else(|| numbers(&code, index));
            all.is_none_or(|all| all.iter().any(|nr| MASKS.contains(nr)))
        })
}

fn straight_number(code: &[Instruction], call: usize, targets: &BranchTargets) -> Option<u32> {
    let mut factory = InstructionInfoFactory::new();
    let mut held = Register::RAX;
    for pair in code.get(..=call)?.windows(2).rev() {
        let [instruction, next] = pair else { continue };
        if targets.contains(next.ip()) {
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

/// Returns the possible numbers of a call whose number is copied to %eax.
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

pub(crate) fn movable(function: &FunctionCode, targets: &BranchTargets) -> Vec<u64> {
    let makes_any = function.body().windows(2).any(|pair| pair == [0x0f, 0x05]);
    let known = makes_any.then(|| known_calls(function, targets, constant));
    let moved = known.into_iter().flatten().filter(|pair| !stays(pair.nr));
    moved
        .map(|pair| function.address + pair.syscall as u64)
        .collect()
}

pub(crate) fn known_calls(
    function: &FunctionCode,
    targets: &BranchTargets,
    number: impl Fn(&Instruction) -> Option<u32>,
) -> Vec<NumberedCall> {
    let mut factory = InstructionInfoFactory::new();
    let mut instruction = Instruction::default();
    let mut decoder = function.decoder(0);
    let mut pairs = Vec::new();
    let mut held: Option<(u32, usize)> = None;
    while decoder.can_decode() {
        let start = decoder.position();
        decoder.decode_out(&mut instruction);
        if targets.contains(instruction.ip()) {
            held = None;
        }
        if let Some(nr) = number(&instruction) {
            held = Some((nr, start));
        } else if instruction.code() == Code::Syscall {
            let found = held.take();
            pairs.extend(found.map(|(nr, mov)| NumberedCall {
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

pub(crate) fn number(instruction: &Instruction) -> Option<u32> {
    let sets = matches!(
        instruction.code(),
        Code::Mov_r32_imm32 | Code::Mov_rm32_imm32 | Code::Mov_rm64_imm32
    );
    // The kernel ignores the upper half.
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
    let used = factory.info(instruction).used_registers();
    used.iter()
        .any(|used| registers.contains(&used.register().full_register()) && writes(used.access()))
}

pub(crate) fn writes(access: OpAccess) -> bool {
    use OpAccess::{CondRead, NoMemAccess, None, Read};
    !matches!(access, CondRead | NoMemAccess | None | Read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_of_a_known_number_may_be_displaced() {
        let check = |bytes: &[u8], want: &[u64]| {
            let function = FunctionCode {
                address: 0x1000,
                bytes,
                size: bytes.len(),
            };
            let targets = branch_targets(&function);
            assert_eq!(movable(&function, &targets), want, "{bytes:x?}");
        };
        // xor %eax,%eax, or mov $39,%eax, in its three forms
        check(&[0x31, 0xc0, 0x0f, 0x05, 0xc3], &[0x1002]);
        check(&[0xb8, 0x27, 0, 0, 0, 0x0f, 0x05, 0xc3], &[0x1005]);
        check(&[0x48, 0xc7, 0xc0, 0x27, 0, 0, 0, 0x0f, 0x05], &[0x1007]);
        check(&[0xc7, 0xc0, 0x27, 0, 0, 0, 0x0f, 0x05], &[0x1006]);
        // `poll`, which must stay; an unknown number; a jump to the `syscall`.
        check(&[0xb8, 0x07, 0, 0, 0, 0x0f, 0x05], &[]);
        check(&[0x89, 0xf8, 0x0f, 0x05], &[]);
        check(&[0x31, 0xc0, 0x0f, 0x05, 0x74, 0xfc], &[]);
        // The first call's result is not the second's number.
        check(&[0x31, 0xc0, 0x0f, 0x05, 0x0f, 0x05], &[0x1002]);
    }

    fn check_masks(bytes: &[u8], want: bool) {
        let function = FunctionCode {
            address: 0x1000,
            bytes,
            size: bytes.len(),
        };
        assert_eq!(may_change_masks(&function), want, "{bytes:x?}");
    }

    #[test]
    fn code_that_may_change_masks() {
        let call = |number: u8| [0xb8, number, 0, 0, 0, 0x0f, 0x05, 0xc3];
        check_masks(&[0xc3], false);
        check_masks(&call(202), false);
        check_masks(&call(14), true);
        // xor %eax,%eax; syscall: read
        check_masks(&[0x31, 0xc0, 0x0f, 0x05, 0xc3], false);
        // mov %edi,%eax; syscall
        check_masks(&[0x89, 0xf8, 0x0f, 0x05, 0xc3], true);
        // push %rbx; mov $202,%ebx; mov %ebx,%eax; syscall; pop %rbx
        let held = |number: u8| {
            [
                0x53, 0xbb, number, 0, 0, 0, 0x89, 0xd8, 0x0f, 0x05, 0x5b, 0xc3,
            ]
        };
        check_masks(&held(202), false);
        check_masks(&held(14), true);
        // mov (%rdi),%ebx
        check_masks(&[0x8b, 0x1f, 0x89, 0xd8, 0x0f, 0x05, 0xc3], true);
        // Nothing sets %eax.
        check_masks(&[0x0f, 0x05, 0xc3], true);
    }

    #[test]
    fn a_constant_that_leads_straight_to_a_call_was_unknown() {
        // mov $11,%edx; mov %edx,%eax; syscall; test %rdi,%rdi; je; mov %edx,%eax; syscall; mov (%rdi),%edx
        let code = |number: u8, jump: u8| {
            let first = [0xba, number, 0, 0, 0, 0x89, 0xd0, 0x0f, 0x05];
            let second = [0x48, 0x85, 0xff, 0x74, jump, 0x89, 0xd0, 0x0f, 0x05];
            [&first[..], &second, &[0x8b, 0x17, 0xc3]].concat()
        };
        check_masks(&code(11, 4), false);
        check_masks(&code(14, 4), true);
        // The jump leads to the first copy, where the register may then have any value.
        check_masks(&code(11, 0xf7), true);
    }
}
