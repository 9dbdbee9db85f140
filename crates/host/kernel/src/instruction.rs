//! How the kernel runs a probed instruction, or fails to, as seen on Linux 6.18.
//!
//! The kernel emulates a few instructions, and single-steps a copy of the others. It refuses some: with ENOTSUPP if
//! their code is mapped already, otherwise silently, so that the probe never counts. It runs some wrongly, so that
//! the program crashes or miscomputes (`tests/opcodes.rs`).
//!
//! The kernel replaces one form of no-operation with a call, which needs no trap: up to Linux 7.1 the form of five
//! bytes, from 7.2 on that of ten. [`optimised`] tries the running kernel, because distributions backport changes.

use std::sync::OnceLock;

use tiptoe_sys::host::Process;
use tiptoe_sys::host::procfs::path_of;

use crate::{KernelProbe, UprobeSet};

/// Returns why the kernel cannot probe this instruction, as a continuation of "the kernel cannot probe". `at_entry`: a
/// function begins here, so nothing below the stack pointer is in use.
pub fn unprobeable(instruction: &[u8], at_entry: bool) -> Option<&'static str> {
    unprobeable_with(instruction, at_entry, optimised)
}

/// `optimised` is slow, so it is called only if the answer depends on it.
fn unprobeable_with(
    instruction: &[u8],
    at_entry: bool,
    optimised: impl Fn() -> ReplacedNop,
) -> Option<&'static str> {
    if instruction.starts_with(&NOP10) && optimised() == ReplacedNop::Nop10 {
        return None;
    }
    let prefixes = instruction.iter().take_while(|byte| is_prefix(**byte));
    let (all, rest) = instruction.split_at(prefixes.count());
    let (rex, rest) = match rest {
        [rex, rest @ ..] if is_rex(*rex) => (*rex, rest),
        _ => (0, rest),
    };
    let has = |wanted: &[u8]| all.iter().any(|prefix| wanted.contains(prefix));
    if has(&[0xf0]) {
        return Some("an instruction with a LOCK prefix");
    }
    if has(&[0x26, 0x2e, 0x36, 0x3e]) {
        return Some("an instruction with a prefix for the segment ES, CS, SS or DS");
    }
    let before = instruction.len() - rest.len();
    let (data16, repeat) = (has(&[0x66]), has(&[0xf2, 0xf3]));
    match rest {
        [first, ..] if rex != 0 && (is_prefix(*first) || is_rex(*first)) => {
            Some("an instruction with a REX prefix that another prefix follows")
        }
        [0x9c, ..] => Some("pushf: the program would see the flag of a single step"),
        [0xcc..=0xce, ..] => Some("an interrupt instruction"),
        [0x0f, 0x05 | 0x34, ..] => Some("a system call instruction"),
        // The kernel does not know these prefixes, and takes the opcode for another instruction's.
        [0xc4 | 0xc5, ..] => {
            Some("an instruction with a VEX prefix, which it takes for another one")
        }
        [0x62, ..] => Some("an instruction with an EVEX prefix, which it takes for another one"),
        [0xd5, ..] => Some("an instruction with a REX2 prefix, which it takes for another one"),
        [0x8f, operand, ..] if operand & 0x38 != 0 => {
            Some("an instruction with an XOP prefix, which it takes for another one")
        }
        [0x70..=0x7f | 0xe8 | 0xe9 | 0xeb, ..] | [0x0f, 0x80..=0x8f, ..] if data16 => {
            Some("a branch with an operand-size prefix")
        }
        [0xa4..=0xa7 | 0xaa..=0xaf, ..] if repeat => {
            Some("a repeated string instruction: each repetition would count")
        }
        [0x90, ..] if rex & 1 != 0 => {
            Some("an exchange with r8, which it takes for a no-operation")
        }
        [0x0f, 0x78 | 0x79, ..] => Some("an instruction of SSE4a"),
        // With such a prefix the kernel does not adjust an operand relative to %rip, so a copy would access other
        // memory.
        [0x0f, 0x2b | 0x40..=0x4f | 0x90..=0x9f, ..] if repeat => {
            Some("an instruction with a prefix F2 or F3 that it does not know there")
        }
        _ if !at_entry
            && nop_len(rest).is_some_and(|len| len + before == 5)
            && optimised() == ReplacedNop::Nop5 =>
        {
            Some(
                "a no-operation of five bytes inside a function: it becomes a call, which writes \
                 below the stack",
            )
        }
        _ => None,
    }
}

fn nop_len(instruction: &[u8]) -> Option<usize> {
    match *instruction {
        [0x90, ..] => Some(1),
        [0x0f, 0x1f, operand, scaled, ..] => {
            let (form, base) = (operand >> 6, operand & 7);
            let has_scaled = form != 3 && base == 4;
            let distance = match form {
                0 if base == 5 || has_scaled && scaled & 7 == 5 => 4,
                0 | 3 => 0,
                1 => 1,
                _ => 4,
            };
            Some(3 + usize::from(has_scaled) + distance)
        }
        _ => None,
    }
}

fn is_prefix(byte: u8) -> bool {
    matches!(
        byte,
        0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
    )
}

fn is_rex(byte: u8) -> bool {
    byte & 0xf0 == 0x40
}

/// How an instruction runs under a uprobe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Step {
    /// A no-operation that the kernel may [replace with a call](ReplacedNop).
    Nop,
    /// The kernel emulates the instruction.
    Emulated,
    /// The kernel single-steps a copy. Single-stepping needs a second trap, and costs several times more.
    #[default]
    Single,
}

/// Returns how an instruction runs.
pub fn step(instruction: &[u8]) -> Step {
    step_with(instruction, optimised)
}

fn step_with(instruction: &[u8], optimised: impl Fn() -> ReplacedNop) -> Step {
    let of_nop = |kind| match optimised() == kind {
        true => Step::Nop,
        false => Step::Emulated,
    };
    match instruction {
        _ if instruction.starts_with(&NOP5) => of_nop(ReplacedNop::Nop5),
        _ if instruction.starts_with(&NOP10) => of_nop(ReplacedNop::Nop10),
        [0x90, ..] | [0x66 | 0xf3, 0x90, ..] => Step::Emulated,
        [0x0f, 0x1f, ..] | [0x66, 0x0f, 0x1f, ..] => Step::Emulated,
        // push
        [0x50..=0x57, ..] | [0x41, 0x50..=0x57, ..] => Step::Emulated,
        // call, jmp, jcc
        [0xe8 | 0xe9 | 0xeb | 0x70..=0x7f, ..] | [0x0f, 0x80..=0x8f, ..] => Step::Emulated,
        _ => Step::Single,
    }
}

/// `nopl 0(%rax,%rax,1)`.
const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];
/// `cs nopw 0(%rax,%rax,1)`, as headers for static probes write it.
const NOP10: [u8; 10] = [0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];

/// The no-operation that becomes a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplacedNop {
    /// The no-operation of five bytes. The kernel refuses that of ten bytes for its prefix.
    Nop5,
    /// The no-operation of ten bytes. The call that replaces it spares the red zone below the stack, so it is safe
    /// inside a function.
    Nop10,
}

/// Returns which no-operation becomes a call. The first use arms a uprobe in this process, for milliseconds. Without
/// permission for that, returns [`ReplacedNop::Nop5`], with which [`unprobeable`] refuses more instructions.
pub fn optimised() -> ReplacedNop {
    static OPTIMISED: OnceLock<ReplacedNop> = OnceLock::new();
    *OPTIMISED.get_or_init(|| match takes_nop10() {
        Some(true) => ReplacedNop::Nop10,
        _ => ReplacedNop::Nop5,
    })
}

fn takes_nop10() -> Option<bool> {
    let this = Process::current();
    let maps = this.maps().ok()?;
    let at = TRIED.as_ptr() as u64;
    let text = maps.iter().find(|mapping| mapping.contains(at))?;
    let file = this.open_mapped(text).ok()?;
    let probe = KernelProbe {
        path: path_of(&file),
        offset: text.file_offset(at)?,
    };
    let set = UprobeSet::open(this, &[probe]).ok()?;
    Some(set.refused().is_empty())
}

/// The place of [`takes_nop10`]'s uprobe. The kernel accepts uprobes in constants, too.
static TRIED: [u8; 10] = NOP10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_and_traps_are_separated_from_ordinary_code() {
        let check =
            |bytes: &[u8], bad| assert_eq!(unprobeable(bytes, true).is_some(), bad, "{bytes:x?}");
        check(&[0xf0, 0x48, 0x83, 0x0c, 0x24, 0], true); // lock orq $0,(%rsp)
        check(&[0x66, 0xf0, 0x83, 0x0c, 0x24, 0], true);
        check(&[0x3e, 0xff, 0xe7], true); // notrack jmp *%rdi
        check(&[0x2e, 0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], true);
        check(&[0x66, 0x9c], true);
        check(&[0x0f, 0x05], true);
        check(&[0xcd, 0x80], true);
        check(&[0xcc], true);
        check(&[0xf3, 0x0f, 0x1e, 0xfa], false); // endbr64
        check(&[0x64, 0x48, 0x8b, 4, 0x25, 0, 0, 0, 0], false); // mov %fs:0,%rax
        check(&[0x55], false);
        check(&[0x9d], false);
        check(&[0x0f, 0x0b], false);
        check(&[], false);
        check(&[0x48, 0x0f, 0x05], true); // syscall with a REX prefix
        check(&[0x48, 0x66, 0x9c], true);
        check(&[0x66, 0xe8, 0, 0, 0, 0], true);
        check(&[0x66, 0x90], false);
        check(&[0x41, 0x90], true); // xchg %rax,%r8
        check(&[0xf3, 0x48, 0xab], true); // rep stosq
        check(&[0xaa], false);
        check(&[0xf3, 0x0f, 0x44, 0x05, 0, 0, 0, 0], true);
        check(&[0xf2, 0x0f, 0x10, 0x05, 0, 0, 0, 0], false); // movsd 0(%rip),%xmm0
    }

    #[test]
    fn prefixes_of_other_maps_are_refused() {
        let check = |bytes: &[u8], bad| {
            assert_eq!(unprobeable(bytes, true).is_some(), bad, "{bytes:x?}");
        };
        check(&[0xc5, 0xf9, 0x6e, 0xc6], true); // vmovd %esi,%xmm0
        check(&[0x65, 0xc4, 0xe2, 0x7d, 0x78, 0xc0], true); // vpbroadcastb %xmm0,%ymm0
        check(&[0x62, 0xe2, 0x7d, 0x28, 0x7a, 0xc6], true); // vpbroadcastb %esi,%ymm16
        check(&[0xd5, 0x10, 0x74, 0], true);
        check(&[0x8f, 0xe8, 0x78, 0xc2, 0xc1, 0], true); // of XOP
        check(&[0x8f, 0xc0], false); // pop %rax
        check(&[0x41, 0x8f, 0x00], false); // pop (%r8)
    }

    #[test]
    fn a_no_operation_of_five_bytes_is_for_entries() {
        let check = |bytes: &[u8], bad| {
            let padded = [bytes, &[0; 8]].concat();
            let of = |at_entry, kind| unprobeable_with(&padded, at_entry, || kind);
            assert_eq!(of(false, ReplacedNop::Nop5).is_some(), bad, "{bytes:x?}");
            assert_eq!(of(false, ReplacedNop::Nop10), None, "{bytes:x?}");
            assert_eq!(of(true, ReplacedNop::Nop5), None, "{bytes:x?}");
        };
        check(&[0x0f, 0x1f, 0x44, 0, 0], true);
        check(&[0x66, 0x0f, 0x1f, 0x40, 0], true);
        check(&[0x66, 0x66, 0x66, 0x66, 0x90], true);
        check(&[0x0f, 0x1f, 0x40, 0], false);
        check(&[0x66, 0x0f, 0x1f, 0x44, 0, 0], false);
        check(&[0x0f, 0x1f, 0x05, 0, 0, 0, 0], false);
        check(&[0x90], false);
    }

    #[test]
    fn the_no_operation_of_ten_bytes_is_probed_where_the_kernel_takes_it() {
        let refused = |bytes: &[u8], kind| unprobeable_with(bytes, false, || kind).is_some();
        assert!(refused(&NOP10, ReplacedNop::Nop5) && !refused(&NOP10, ReplacedNop::Nop10));
        let other = [0x2e, 0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];
        assert!(refused(&other, ReplacedNop::Nop10) && refused(&NOP10[..9], ReplacedNop::Nop10));
        for (kind, five, ten) in [
            (ReplacedNop::Nop5, Step::Nop, Step::Emulated),
            (ReplacedNop::Nop10, Step::Emulated, Step::Nop),
        ] {
            assert_eq!(step_with(&NOP5, || kind), five);
            assert_eq!(step_with(&NOP10, || kind), ten);
        }
    }

    #[test]
    fn the_kernel_is_asked_which_no_operation_it_takes() {
        match takes_nop10() {
            Some(taken) => assert_eq!(optimised() == ReplacedNop::Nop10, taken),
            None => crate::skipped::skipped("uprobes", "they are not permitted"),
        }
    }

    #[test]
    fn few_instructions_are_emulated() {
        let check = |bytes: &[u8], want| {
            assert_eq!(step_with(bytes, || ReplacedNop::Nop5), want, "{bytes:x?}");
        };
        check(&NOP5, Step::Nop);
        check(&[0x0f, 0x1f, 0x40, 0], Step::Emulated);
        check(&[0x66, 0x0f, 0x1f, 0x44, 0, 0], Step::Emulated);
        check(&[0x66, 0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], Step::Single);
        check(&[0x66, 0x90], Step::Emulated);
        check(&[0x55, 0x48, 0x89, 0xe5], Step::Emulated); // push %rbp
        check(&[0x41, 0x57], Step::Emulated); // push %r15
        check(&[0x48, 0x50], Step::Single); // push %rax with a prefix without effect
        check(&[0x6a, 1], Step::Single); // push $1
        check(&[0x0f, 0x84, 0, 0, 0, 0], Step::Emulated); // jz
        check(&[0xf3, 0x0f, 0x1e, 0xfa], Step::Single); // endbr64
        check(&[0x48, 0x83, 0xec, 8], Step::Single); // sub $8,%rsp
        check(&[0xc3], Step::Single);
        check(&[], Step::Single);
    }
}
