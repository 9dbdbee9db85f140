//! Instructions that the kernel's uprobes do not run, as seen on Linux 6.18.
//!
//! A uprobe runs the instruction under it from a copy, in a single step. Some it
//! refuses, with ENOTSUPP where the code is mapped already, and without a word
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
}
