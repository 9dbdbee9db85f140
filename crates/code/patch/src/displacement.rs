//! Chooses displacements of jumps that have a trap byte on each *head*, the first byte of an overwritten instruction.
//!
//! A displacement's byte on a head must fault, whatever follows. 19 bytes raise SIGILL and leave the instruction
//! pointer at the byte. Two other bytes trap, but are not used:
//! - `F1` (`int1`) leaves the instruction pointer after the byte, but under KVM on AMD at the byte.
//! - `CC` (`int3`) belongs to the kernel's uprobes. When a uprobe is removed in any process, the kernel writes the file's
//!   byte over a `CC` at that place in all processes with uprobes in that file, even if the `CC` is ours.
//!
//! If an instruction of two or more bytes began at the jump's last byte, the patch may write `FF` after the jump. Then
//! five more values of the last byte fault.

/// Bytes that raise SIGILL, because they begin no instruction in 64-bit mode.
const SIGILL_BYTES: &[u8] = &[
    0x06, 0x07, 0x0e, 0x16, 0x17, 0x1e, 0x1f, 0x27, 0x2f, 0x37, 0x3f, 0x60, 0x61, 0x82, 0x9a, 0xce,
    0xd4, 0xd6, 0xea,
];

/// Bytes that raise SIGILL before [`SECOND`], an operand that they cannot have.
const FIRSTS: &[u8] = &[0x8c, 0x8d, 0x8e, 0xfe, 0xff];

pub(crate) const SECOND: u8 = 0xff;

/// Top bytes of displacements, each a band of 16 MiB, in the order tried. The last five trap only with a second byte. Of
/// the others, the bands below the jump come first. Then come the bands above it, the highest first, because the heap
/// grows up from the program.
pub(crate) const BANDS: [u8; 24] = [
    0xea, 0xd6, 0xd4, 0xce, 0x9a, 0x82, 0x61, 0x60, 0x3f, 0x37, 0x2f, 0x27, 0x1f, 0x1e, 0x17, 0x16,
    0x0e, 0x07, 0x06, 0xff, 0xfe, 0x8e, 0x8d, 0x8c,
];

/// The number of bands below the jump at the start of [`BANDS`].
pub(crate) const BELOW: usize = 6;

const LINE: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteSet([u64; 4]);

impl ByteSet {
    const NONE: ByteSet = ByteSet([0; 4]);
    pub(crate) const ALL: ByteSet = ByteSet([u64::MAX; 4]);
    pub(crate) const TRAPS: ByteSet = ByteSet::NONE.with(SIGILL_BYTES);
    pub(crate) const PAIRS: ByteSet = ByteSet::TRAPS.with(FIRSTS);

    pub(crate) const fn only(byte: u8) -> ByteSet {
        ByteSet::NONE.with(&[byte])
    }

    pub(crate) fn filter(condition: impl Fn(u8) -> bool) -> ByteSet {
        let all = (0..=u8::MAX).filter(|&byte| condition(byte));
        all.fold(ByteSet::NONE, |set, byte| set.with(&[byte]))
    }

    pub(crate) const fn with(mut self, bytes: &[u8]) -> ByteSet {
        let mut i = 0;
        while i < bytes.len() {
            self.0[bytes[i] as usize / 64] |= 1 << (bytes[i] % 64);
            i += 1;
        }
        self
    }

    pub(crate) fn and(self, other: ByteSet) -> ByteSet {
        ByteSet(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    pub(crate) const fn contains(self, byte: u8) -> bool {
        self.0[byte as usize / 64] >> (byte % 64) & 1 == 1
    }

    fn at_or_after(self, byte: u8) -> Option<u8> {
        let first = byte as usize / 64;
        (first..4).find_map(|word| {
            let below = if word == first {
                (1 << (byte % 64)) - 1
            } else {
                0
            };
            let left = self.0[word] & !below;
            (left != 0).then(|| (word * 64) as u8 + left.trailing_zeros() as u8)
        })
    }
}

/// Returns whether `byte` always traps.
pub fn is_trap_byte(byte: u8) -> bool {
    ByteSet::TRAPS.contains(byte)
}

pub(crate) fn needs_second(byte: u8) -> bool {
    FIRSTS.contains(&byte)
}

/// Returns whether an instruction that began with `original` and now begins with `now` is an inner head of a patch, not
/// its beginning (`int3`, a jump or a call).
pub fn is_head_patched(now: [u8; 2], original: [u8; 2]) -> bool {
    const FIRSTS_OF_PATCHES: [u8; 4] = [0xcc, 0xe8, 0xe9, 0xeb];
    let [first, second] = now;
    let pair = needs_second(first) && second == SECOND && original[1] != SECOND;
    pair || first != original[0] && !FIRSTS_OF_PATCHES.contains(&first)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Displacement(pub(crate) [ByteSet; 4]);

impl Displacement {
    /// Returns the displacements of a `jmp rel32` with `traps` on the heads (1 to 4).
    pub(crate) fn over(heads: &[u8], traps: ByteSet) -> Displacement {
        let mut bytes = [ByteSet::ALL; 4];
        for &head in heads {
            bytes[usize::from(head) - 1] = traps;
        }
        Displacement(bytes)
    }

    /// Keeps only the displacements from `origin` to places where `len` bytes touch no more cache lines than `len` bytes
    /// must. If there are none, keeps all.
    pub(crate) fn on_few_lines(mut self, origin: u64, len: u64) -> Displacement {
        let fits = |byte: u8| {
            let start = origin.wrapping_add(byte.into()) % LINE;
            start + len <= len.next_multiple_of(LINE).max(LINE)
        };
        // 256 is a multiple of [`LINE`], so the lowest byte of a displacement decides.
        let few = self.0[0].and(ByteSet::filter(fits));
        if few != ByteSet::NONE {
            self.0[0] = few;
        }
        self
    }

    pub(crate) fn at_or_after(&self, from: u32) -> Option<u32> {
        let mut value = from;
        'carried: loop {
            for byte in (0..4).rev() {
                let shift = 8 * byte as u32;
                let have = (value >> shift) as u8;
                match self.0[byte].at_or_after(have) {
                    Some(same) if same == have => {}
                    Some(larger) => value = ((value >> shift) + u32::from(larger - have)) << shift,
                    None => {
                        let above = u64::from(value >> shift) / 256 + 1;
                        value = u32::try_from(above << (shift + 8)).ok()?;
                        continue 'carried;
                    }
                }
            }
            return Some(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: tiptoe requested a uprobe inside another tiptoe's jump.
    #[test]
    fn inner_heads_are_known_by_their_bytes() {
        let pushes = [0x55, 0x48];
        assert!(is_head_patched([0x06, 0x48], pushes));
        assert!(is_head_patched([0xff, 0xff], [0xff, 0x25]));
        let others = [[0x55, 0x48], [0xcc, 0x48], [0xe9, 0x12], [0xeb, 0x12]];
        assert!(others.iter().all(|now| !is_head_patched(*now, pushes)));
        assert!(!is_head_patched([0xff, 0xff], [0xff, 0xff]));
    }

    #[test]
    fn bands_are_the_trap_bytes() {
        let traps = |&b: &u8| is_trap_byte(b) || needs_second(b);
        assert!(BANDS.iter().all(traps));
        assert_eq!((0..=255).filter(traps).count(), BANDS.len());
        assert!(is_trap_byte(0x06) && !is_trap_byte(0x90));
        assert!(!is_trap_byte(0xcc), "the kernel's own");
        assert!(!is_trap_byte(0xf1), "reported at different places");
    }

    #[test]
    fn the_next_displacement_is_the_least() {
        let check = |heads: &[u8], from, want| {
            assert_eq!(
                Displacement::over(heads, ByteSet::TRAPS).at_or_after(from),
                want
            );
        };
        check(&[], 0x1234_5678, Some(0x1234_5678));
        check(&[1], 0x0000_0008, Some(0x0000_000e));
        check(&[1], 0x0000_00f2, Some(0x0000_0106));
        check(&[4], 0x0800_0001, Some(0x0e00_0000));
        check(&[4], 0xf200_0000, None);
        check(&[1, 4], 0xeaff_fff2, None);
        check(&[1, 2, 3, 4], 0, Some(0x0606_0606));
        check(&[2, 4], 0xceff_ea01, Some(0xceff_ea01));
        check(&[2, 4], 0xccff_f200, Some(0xce00_0600));
    }

    #[test]
    fn hot_bytes_touch_as_few_lines_as_they_can() {
        let check = |heads: &[u8], origin, len, want: &[u8]| {
            let all = Displacement::over(heads, ByteSet::TRAPS);
            let few = all.on_few_lines(origin, len);
            let lowest = (0..64).filter(|byte| few.0[0].contains(*byte));
            assert_eq!(lowest.collect::<Vec<_>>(), want, "{origin:#x}, {len}");
            assert_eq!(few.0[1..], all.0[1..]);
        };
        check(&[], 0x1010, 60, &[0x30, 0x31, 0x32, 0x33, 0x34]);
        check(&[], 0x1010, 124, &[0x30, 0x31, 0x32, 0x33, 0x34]);
        check(&[], 0x1010, 0, &Vec::from_iter(0..64));
        check(&[1], 0x1010, 48, &[0x37, 0x3f]);
        check(&[1], 0x1015, 36, &[0x06, 0x07, 0x2f, 0x37, 0x3f]);
        // No trap byte lets 60 bytes fit in one line.
        let traps = [
            0x06, 0x07, 0x0e, 0x16, 0x17, 0x1e, 0x1f, 0x27, 0x2f, 0x37, 0x3f,
        ];
        check(&[1], 0x1010, 60, &traps);
    }

    #[test]
    fn the_next_displacement_agrees_with_a_plain_search() {
        for heads in [&[1][..], &[2], &[1, 2], &[3], &[1, 3]] {
            let allowed = Displacement::over(heads, ByteSet::TRAPS);
            let fine = |d: &u32| (0..4).all(|i| allowed.0[i].contains((d >> (8 * i)) as u8));
            for from in (0xcef0_0000..0xcef2_0000).step_by(9973) {
                let slow = (from..).find(fine);
                assert_eq!(allowed.at_or_after(from), slow, "{heads:?} from {from:#x}");
            }
        }
    }
}
