//! How the kernel's uprobes run an instruction, or do not, as seen on Linux 6.18.
//!
//! A uprobe runs the instruction under it from a copy, in a single step. A few instructions the kernel emulates
//! itself. It refuses some: with ENOTSUPP where the code is mapped already, and silently where the code is mapped
//! later, and then the probe never counts. Others it runs wrongly, and the program crashes or computes something
//! else. `tests/opcodes.rs` runs all opcodes with and without a probe.

/// Why the kernel cannot probe the instruction that begins with these bytes, in words that follow "the kernel
/// cannot probe". `at_entry`: a function begins here, so that nothing below the stack pointer is in use.
pub fn unprobeable(instruction: &[u8], at_entry: bool) -> Option<&'static str> {
    let Prefixes { all, rest, rex } = Prefixes::of(instruction);
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
        // The kernel takes the byte after the prefix, which is any opcode of another map, for one of the first.
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
        // It does not move the operand of one that is relative to the instruction.
        [0x0f, 0x2b | 0x40..=0x4f | 0x90..=0x9f, ..] if repeat => {
            Some("an instruction with a prefix F2 or F3 that it does not know there")
        }
        _ if !at_entry && nop_len(rest).is_some_and(|len| len + before == 5) => Some(
            "a no-operation of five bytes inside a function: it becomes a call, which writes \
             below the stack",
        ),
        _ => None,
    }
}

/// Bytes of a no-operation, without its prefixes.
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

/// An instruction's prefixes, and what follows them.
struct Prefixes<'a> {
    all: &'a [u8],
    /// The REX prefix, or 0.
    rex: u8,
    rest: &'a [u8],
}

impl<'a> Prefixes<'a> {
    fn of(instruction: &'a [u8]) -> Self {
        let count = instruction
            .iter()
            .take_while(|byte| is_prefix(**byte))
            .count();
        let (all, rest) = instruction.split_at(count);
        match rest {
            [rex, rest @ ..] if is_rex(*rex) => Self {
                all,
                rex: *rex,
                rest,
            },
            _ => Self { all, rex: 0, rest },
        }
    }
}

/// A prefix that all maps of opcodes share.
fn is_prefix(byte: u8) -> bool {
    matches!(
        byte,
        0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
    )
}

fn is_rex(byte: u8) -> bool {
    byte & 0xf0 == 0x40
}

/// How the kernel gets the instruction under a uprobe done: most of what a hit costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Step {
    /// A no-operation of five bytes: newer kernels make it a call, without any trap.
    Nop5,
    /// It does itself what the instruction does.
    Emulated,
    /// The program does it from a copy, and traps again behind it: several times dearer.
    #[default]
    Single,
}

/// How the instruction that begins with these bytes is done.
pub fn step(instruction: &[u8]) -> Step {
    match instruction {
        [0x0f, 0x1f, 0x44, 0, 0, ..] => Step::Nop5,
        [0x90, ..] | [0x66 | 0xf3, 0x90, ..] => Step::Emulated,
        [0x0f, 0x1f, ..] | [0x66, 0x0f, 0x1f, ..] => Step::Emulated,
        // push, of the first eight registers and of the others
        [0x50..=0x57, ..] | [0x41, 0x50..=0x57, ..] => Step::Emulated,
        // call, jmp, and jumps on a condition
        [0xe8 | 0xe9 | 0xeb | 0x70..=0x7f, ..] | [0x0f, 0x80..=0x8f, ..] => Step::Emulated,
        _ => Step::Single,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_and_traps_are_told_from_ordinary_code() {
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

    /// glibc's strchr begins with one, whose opcode the kernel emulated as a jump.
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
            assert_eq!(unprobeable(&padded, false).is_some(), bad, "{bytes:x?}");
            assert_eq!(unprobeable(&padded, true), None, "{bytes:x?}");
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
    fn few_instructions_are_emulated() {
        let check = |bytes: &[u8], want| assert_eq!(step(bytes), want, "{bytes:x?}");
        check(&[0x0f, 0x1f, 0x44, 0, 0], Step::Nop5);
        check(&[0x0f, 0x1f, 0x40, 0], Step::Emulated);
        check(&[0x66, 0x0f, 0x1f, 0x44, 0, 0], Step::Emulated);
        check(&[0x66, 0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], Step::Single);
        check(&[0x66, 0x90], Step::Emulated);
        check(&[0x55, 0x48, 0x89, 0xe5], Step::Emulated); // push %rbp
        check(&[0x41, 0x57], Step::Emulated); // push %r15
        check(&[0x48, 0x50], Step::Single); // push %rax with a prefix for nothing
        check(&[0x6a, 1], Step::Single); // push $1
        check(&[0x0f, 0x84, 0, 0, 0, 0], Step::Emulated); // jz
        check(&[0xf3, 0x0f, 0x1e, 0xfa], Step::Single); // endbr64
        check(&[0x48, 0x83, 0xec, 8], Step::Single); // sub $8,%rsp
        check(&[0xc3], Step::Single);
        check(&[], Step::Single);
    }
}
