//! What keeps a site safe when somebody else puts its first byte back.
//!
//! A breakpoint of another tool (a uprobe of the kernel is one for every user of
//! the file) that is set on a patched instruction and taken off again leaves the
//! *file's* first byte in front of our displacement `d0 d1 d2 d3`. What stands there
//! then must trap at once, or be the original instruction and then a head, which
//! traps. By that instruction:
//!
//! | first byte | the displacement | executing it |
//! | --- | --- | --- |
//! | an instruction of one byte | any | it runs; the head at 1 traps |
//! | a short jump, as the patch is | any | is one of the two |
//! | a jump of five bytes | its own but for `d3` | is one of the two |
//! | a direct call: the patch is a call, too | its own but for `d3` | is one of the two |
//! | a system call | its own but for `d1` on | it is made; the head behind it traps |
//! | a prefix | `d0` a trap byte | SIGILL, reported at 0 |
//! | an opcode with invalid operands | such an operand | SIGILL at 0 |
//! | any other, short enough | its own bytes | it runs; the head behind it traps |
//! | any other | - | no guard: the strategy is not offered |
//!
//! Behind a prefix an `int3` would not do, were it one of ours: where the kernel has uprobes
//! in a process and finds that the `int3` a thread met is gone, it has the thread run what
//! stands there now, which is an instruction without its prefix.
//!
//! The foreign one may go at any moment, while the patch is being written or taken
//! away, too. So the trap byte or the operand that guards is written first, with the
//! heads, and put back last ([`Guard::offset`]). The patch's own opcode (a jump or a
//! call to begin with) has no such byte; there a single byte of the displacement
//! changes, which is either the one or the other at each moment.
//!
//! The invalid operands are those that the manuals of both makers list as #UD, and
//! `tests/guard.rs` runs every one of them.

use crate::displacement::{ByteSet, Displacement, is_trap_byte};
use crate::shape::{CALL, JUMP, SHORT_JUMP, Strategy};

/// What the displacement must be, the trap bytes on heads aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// Anything.
    Free,
    /// The first three bytes as they were; the patch has the opcode of a call, and
    /// the trampoline finds the return address pushed.
    Call { held: [u8; 3] },
    /// A trap byte behind the prefix.
    Prefix,
    /// One of `bytes` at `d[at]`, which makes the instruction invalid.
    Invalid { at: usize, bytes: ByteSet },
    /// The first instruction as it was: the first `len` bytes of `held`.
    Keep { len: usize, held: [u8; 3] },
}

impl Guard {
    /// The guard of a site whose first instruction is the first `len` of `bytes`.
    pub(crate) fn of(bytes: &[u8; 8], len: usize, strategy: Strategy) -> Option<Guard> {
        let opcode = bytes[0];
        if strategy == Strategy::Trap {
            return Some(Guard::Free);
        }
        let held = [bytes[1], bytes[2], bytes[3]];
        match (opcode, strategy) {
            _ if len == 1 => return Some(Guard::Free),
            (JUMP, Strategy::Jump) => return Some(Guard::Keep { len: 3, held }),
            (CALL, Strategy::Jump) => return Some(Guard::Call { held }),
            (SHORT_JUMP, Strategy::Short) => return Some(Guard::Free),
            // A system call, which runs.
            (0x0f, _) if bytes[1] == 0x05 => return Some(Guard::Keep { len: 1, held }),
            _ => {}
        }
        if is_prefix(opcode) {
            return Some(Guard::Prefix);
        }
        let covered = usize::from(strategy.patch_len()) - 1;
        if let Some((at, bytes)) = invalid(opcode).filter(|&(at, _)| at < covered) {
            return Some(Guard::Invalid { at, bytes });
        }
        // The next head has to be covered too, but for a jump of two bytes: behind
        // that all is as it was.
        let fits = len <= covered || (strategy == Strategy::Short && len == 2);
        fits.then_some(Guard::Keep { len: len - 1, held })
    }

    /// Whether there are so few displacements that each needs an arena of its own.
    pub(crate) fn is_tight(&self) -> bool {
        matches!(self, Guard::Keep { len: 2.., .. } | Guard::Call { .. })
    }

    /// Narrows the displacements; `traps` are the trap bytes that will do.
    pub(crate) fn narrow(&self, allowed: &mut Displacement, traps: ByteSet) {
        let bytes = &mut allowed.0;
        match *self {
            Guard::Free => {}
            Guard::Prefix => bytes[0] = traps,
            Guard::Invalid { at, bytes: invalid } => bytes[at] = invalid,
            Guard::Keep { len, held } => keep(bytes, &held[..len]),
            Guard::Call { held } => keep(bytes, &held),
        }
    }

    /// Where the byte is that traps in front of whatever follows it: as long as it is
    /// seen, the bytes behind it do not matter, so it is treated as a head is, which
    /// is written before the others and put back after them.
    pub(crate) fn offset(&self) -> Option<u8> {
        match *self {
            Guard::Prefix => Some(1),
            Guard::Invalid { at, .. } => Some(at as u8 + 1),
            Guard::Free | Guard::Call { .. } | Guard::Keep { .. } => None,
        }
    }

    /// Whether `patched`, its first byte put back, raises SIGILL at the site.
    pub(crate) fn raises_sigill(&self, patched: &[u8]) -> bool {
        match self {
            Guard::Prefix => is_trap_byte(patched[1]),
            Guard::Invalid { .. } => true,
            Guard::Free | Guard::Call { .. } | Guard::Keep { .. } => false,
        }
    }
}

fn keep(bytes: &mut [ByteSet; 4], held: &[u8]) {
    let pairs = bytes.iter_mut().zip(held);
    pairs.for_each(|(set, &byte)| *set = ByteSet::only(byte));
}

/// REX, operand and address size, repeat and segment prefixes.
fn is_prefix(byte: u8) -> bool {
    matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf2 | 0xf3)
}

/// For an opcode the index of a byte behind it, and what makes it invalid there.
fn invalid(opcode: u8) -> Option<(usize, ByteSet)> {
    let operand = |wanted: &dyn Fn(u8) -> bool| ByteSet::filter(|b| wanted(b >> 3 & 7));
    let set = match opcode {
        // ud2, ud1, ud0
        0x0f => ByteSet::only(0x0b).with(&[0xb9, 0xff]),
        // bound no longer, but EVEX: map 0
        0x62 => ByteSet::filter(|b| b & 7 == 0),
        // segment registers that are none
        0x8c => operand(&|reg| reg >= 6),
        0x8e => operand(&|reg| reg == 1 || reg >= 6),
        // lea of a register
        0x8d => ByteSet::filter(|b| b >= 0xc0),
        // VEX: map 0
        0xc4 => ByteSet::filter(|b| b & 0x1f == 0),
        // mov $imm: the operands between mov (0) and xabort, xbegin (7)
        0xc6 | 0xc7 => operand(&|reg| (1..7).contains(&reg)),
        0xfe => operand(&|reg| reg >= 2),
        0xff => operand(&|reg| reg == 7),
        // VEX, two bytes: ud2 and ud0 have no such form
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
        let keep = |len, held| Some(Guard::Keep { len, held });
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
        let held = [1, 0, 0];
        check(&[0xe8, 1, 0, 0, 0], Jump, Some(Guard::Call { held }));
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
