//! Keeps a patched place safe when another tool restores its first byte.
//!
//! Another tool may set a breakpoint on a patched instruction and remove it; a kernel uprobe does so in every process
//! that maps the file. The removal writes the *file's* first byte; our displacement `d0 d1 d2 d3` stays after it. The
//! resulting bytes must trap at once, be the patch, or be the original instruction and a *head*, a byte that traps:
//!
//! | first byte | the displacement | executing it |
//! | --- | --- | --- |
//! | an instruction of one byte | any | the instruction runs; the head at 1 traps |
//! | a short jump, like the patch | any | the patch; while it is written, the original jump |
//! | a 5-byte jump or call, like the patch | the original's `d0 d1 d2` | the patch; in a race, the original |
//! | a system call | the original's `d0` | the call is made; the next head traps |
//! | a prefix | `d0` a trap byte | SIGILL, reported at 0 |
//! | an opcode with invalid operands | such an operand | SIGILL at 0 |
//! | any other, no longer than the patch | its own bytes | the instruction runs; the next head traps |
//! | any other | - | none: the strategy is refused |
//!
//! `int3` must not follow a prefix, because a thread that trapped at the `int3` would continue there without the prefix
//! after the removal.
//!
//! The removal may race with the write of the patch. So the guarding byte (the trap byte or invalid operand,
//! [`Guard::offset`]) must be written first and restored last, like the heads. An original jump or call has no guarding
//! byte, because the patch changes only one byte of its displacement, atomically.
//!
//! The manuals of Intel and AMD list the invalid operands as #UD.

use crate::displacement::{ByteSet, Displacement, is_trap_byte};
use crate::strategy::{CALL, JUMP, SHORT_JUMP, Strategy};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    Free,
    /// The displacement's first three bytes stay. The patch is a call with the same return address.
    Call {
        tail: [u8; 3],
    },
    Prefix,
    /// `d[at]` is one of `bytes`, which makes the instruction invalid.
    Invalid {
        at: usize,
        bytes: ByteSet,
    },
    /// The first instruction stays: its opcode, then `len` bytes of `tail`.
    Keep {
        len: usize,
        tail: [u8; 3],
    },
}

impl Guard {
    pub(crate) fn of(bytes: &[u8; 8], len: usize, strategy: Strategy) -> Option<Guard> {
        let opcode = bytes[0];
        if strategy == Strategy::Trap {
            return Some(Guard::Free);
        }
        let tail = [bytes[1], bytes[2], bytes[3]];
        match (opcode, strategy) {
            _ if len == 1 => return Some(Guard::Free),
            (JUMP, Strategy::Jump) => return Some(Guard::Keep { len: 3, tail }),
            (CALL, Strategy::Jump) => return Some(Guard::Call { tail }),
            (SHORT_JUMP, Strategy::Short) => return Some(Guard::Free),
            (0x0f, _) if bytes[1] == 0x05 => return Some(Guard::Keep { len: 1, tail }),
            _ => {}
        }
        if is_prefix(opcode) {
            return Some(Guard::Prefix);
        }
        let covered = usize::from(strategy.patch_len()) - 1;
        if let Some((at, bytes)) = invalid(opcode).filter(|&(at, _)| at < covered) {
            return Some(Guard::Invalid { at, bytes });
        }
        // The patch must cover the next head, except that a short jump over two bytes does not change it.
        let fits = len <= covered || (strategy == Strategy::Short && len == 2);
        fits.then_some(Guard::Keep { len: len - 1, tail })
    }

    pub(crate) fn is_tight(&self) -> bool {
        matches!(self, Guard::Keep { len: 2.., .. } | Guard::Call { .. })
    }

    pub(crate) fn narrow(&self, allowed: &mut Displacement, traps: ByteSet) {
        let bytes = &mut allowed.0;
        match *self {
            Guard::Free => {}
            Guard::Prefix => bytes[0] = traps,
            Guard::Invalid { at, bytes: invalid } => bytes[at] = invalid,
            Guard::Keep { len, tail } => keep(bytes, &tail[..len]),
            Guard::Call { tail } => keep(bytes, &tail),
        }
    }

    pub(crate) fn offset(&self) -> Option<u8> {
        match *self {
            Guard::Prefix => Some(1),
            Guard::Invalid { at, .. } => Some(at as u8 + 1),
            Guard::Free | Guard::Call { .. } | Guard::Keep { .. } => None,
        }
    }

    pub(crate) fn raises_sigill(&self, patched: &[u8]) -> bool {
        match self {
            Guard::Prefix => is_trap_byte(patched[1]),
            Guard::Invalid { .. } => true,
            Guard::Free | Guard::Call { .. } | Guard::Keep { .. } => false,
        }
    }
}

fn keep(bytes: &mut [ByteSet; 4], tail: &[u8]) {
    let pairs = bytes.iter_mut().zip(tail);
    pairs.for_each(|(set, &byte)| *set = ByteSet::only(byte));
}

fn is_prefix(byte: u8) -> bool {
    matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf2 | 0xf3)
}

fn invalid(opcode: u8) -> Option<(usize, ByteSet)> {
    let operand = |wanted: &dyn Fn(u8) -> bool| ByteSet::filter(|b| wanted(b >> 3 & 7));
    let set = match opcode {
        // ud2, ud1, ud0
        0x0f => ByteSet::only(0x0b).with(&[0xb9, 0xff]),
        // EVEX with map 0, which does not exist
        0x62 => ByteSet::filter(|b| b & 7 == 0),
        // segment registers that do not exist
        0x8c => operand(&|reg| reg >= 6),
        0x8e => operand(&|reg| reg == 1 || reg >= 6),
        // lea with a register operand
        0x8d => ByteSet::filter(|b| b >= 0xc0),
        // VEX with map 0, which does not exist
        0xc4 => ByteSet::filter(|b| b & 0x1f == 0),
        // mov $imm: between mov (0) and xabort, xbegin (7)
        0xc6 | 0xc7 => operand(&|reg| (1..7).contains(&reg)),
        0xfe => operand(&|reg| reg >= 2),
        0xff => operand(&|reg| reg == 7),
        // two-byte VEX: ud2 and ud0 have no such form
        0xc5 => return Some((1, ByteSet::only(0x0b).with(&[0xff]))),
        _ => return None,
    };
    Some((0, set))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(bytes: &[u8], strategy: Strategy) -> Option<Guard> {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        Guard::of(&padded, bytes.len(), strategy)
    }

    #[test]
    fn each_first_instruction_has_its_guard() {
        use Strategy::{Jump, Short, Trap};
        let keep = |len, tail| Some(Guard::Keep { len, tail });
        let check = |bytes: &[u8], strategy, want| {
            assert_eq!(guard(bytes, strategy), want, "{bytes:x?} {strategy:?}");
        };
        check(&[0x55], Jump, Some(Guard::Free));
        check(&[0xe9, 1, 2, 3, 4], Jump, keep(3, [1, 2, 3]));
        check(&[0xeb, 9], Short, Some(Guard::Free));
        check(&[0x41, 0x57], Jump, Some(Guard::Prefix));
        check(&[0x48, 0x8d, 0x44, 0x7f, 1], Short, Some(Guard::Prefix));
        check(&[0x31, 0xc0], Jump, keep(1, [0xc0, 0, 0]));
        check(&[0x31, 0xc0], Short, keep(1, [0xc0, 0, 0]));
        check(&[0x8b, 0x47, 0x10], Jump, keep(2, [0x47, 0x10, 0]));
        check(&[0x8b, 0x47, 0x10], Short, None);
        check(&[0x8b, 0x44, 0x24, 8], Jump, keep(3, [0x44, 0x24, 8]));
        check(&[0xb8, 1, 0, 0, 0], Jump, None);
        let tail = [1, 0, 0];
        check(&[0xe8, 1, 0, 0, 0], Jump, Some(Guard::Call { tail }));
        check(&[0xe8, 1, 0, 0, 0], Short, None);
        check(&[0xb8, 1, 0, 0, 0], Trap, Some(Guard::Free));
        check(&[0xc5, 0xf8, 0x77], Short, None);
    }

    #[test]
    fn the_byte_that_guards_is_in_the_patch() {
        let check = |bytes: &[u8], want| {
            let guard = guard(bytes, Strategy::Jump).expect("guarded");
            assert_eq!(guard.offset(), want, "{bytes:x?}");
        };
        check(&[0x41, 0x57], Some(1));
        check(&[0x8d, 0x47, 1], Some(1));
        check(&[0xc5, 0xf8, 0x77], Some(2));
        check(&[0x31, 0xc0], None);
        check(&[0xe8, 1, 0, 0, 0], None);
        check(&[0x55], None);
    }

    #[test]
    fn keeping_three_bytes_is_tight() {
        let tight = |bytes: &[u8]| guard(bytes, Strategy::Jump).expect("guarded").is_tight();
        assert!(!tight(&[0x31, 0xc0]) && tight(&[0x8b, 0x47, 0x10]) && !tight(&[0x8d, 0x47, 1]));
    }
}
