//! How the kernel's uprobes run an instruction, or do not, as seen on Linux 6.18.
//!
//! A uprobe runs the instruction under it from a copy, in a single step, but for a few
//! whose work the kernel does itself. Some it refuses, with ENOTSUPP where the code is mapped already, and without a word
//! where it is mapped later: then the probe counts nothing for ever. Two it runs
//! wrongly, and the program crashes.

/// What keeps the kernel from probing the instruction that begins with these bytes, in
/// words that stand behind "the kernel cannot probe".
pub fn unprobeable(instruction: &[u8]) -> Option<&'static str> {
    let mut rest = instruction;
    while let [first, more @ ..] = rest {
        match first {
            0xf0 => return Some("an instruction with a LOCK prefix"),
            0x26 | 0x2e | 0x36 | 0x3e => {
                return Some("an instruction with a prefix for the segment ES, CS, SS or DS");
            }
            0x64..=0x67 | 0xf2 | 0xf3 => rest = more,
            _ => break,
        }
    }
    match rest {
        [0x9c, ..] => Some("pushf: the program would see the flag of a single step"),
        [0xcc..=0xce, ..] => Some("an interrupt instruction"),
        [0x0f, 0x05 | 0x34, ..] => Some("a system call instruction"),
        _ => None,
    }
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
        let check = |bytes: &[u8], bad| assert_eq!(unprobeable(bytes).is_some(), bad, "{bytes:x?}");
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
