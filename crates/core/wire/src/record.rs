//! A *site*, a patched place in the code, on the wire and in the agent.

use crate::calls::words;
use crate::{ring, timed_values, values};

/// Words of one [`Site`] on the wire.
pub const SITE_WORDS: usize = 12;
/// Words of one [`Site`] in the agent's table, which begin with the words on the wire.
pub const SLOT_WORDS: usize = 15;
/// The most heads in a *window*, the instructions that a patch overwrites.
pub const MAX_HEADS: usize = 5;

/// A *head*: the first byte of an instruction in the window, and where the instruction's relocated copy is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Offset from the site's first byte.
    pub offset: u8,
    /// Offset in the trampoline, which contains the copies, where a thread that trapped at the head continues.
    pub resume: u16,
    /// Whether this is, instead of a head, a byte inside the first instruction. The byte traps if another tool restores
    /// the site's first byte.
    pub is_guard: bool,
}

/// A site's properties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteFlags(pub u8);

impl SiteFlags {
    /// A byte at a head raises SIGILL.
    pub const NEEDS_SIGILL: SiteFlags = SiteFlags(1);
    /// A system call hook: must be patched first and restored last.
    pub const HOOK: SiteFlags = SiteFlags(2);
    /// A permanent trap.
    pub const TRAP: SiteFlags = SiteFlags(4);
    /// Follows calls to their return.
    pub const CALL: SiteFlags = SiteFlags(8);
    /// Times the followed calls.
    pub const TIMED: SiteFlags = SiteFlags(16);

    /// Stays patched between sessions.
    pub const STAYS: SiteFlags = SiteFlags(32);

    /// Groups hits or calls by an argument's value.
    pub const VALUED: SiteFlags = SiteFlags(64);
    /// Records calls.
    pub const RECORDS: SiteFlags = SiteFlags(128);
    /// Reports a futex call, and counts nothing. The two bits have no other meaning together, because sites that group
    /// by value never record.
    pub const FUTEX: SiteFlags = SiteFlags::RECORDS.with(SiteFlags::VALUED);

    /// Returns whether all bits of `other` are set.
    pub const fn has(self, other: SiteFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the union of both.
    pub const fn with(self, other: SiteFlags) -> SiteFlags {
        SiteFlags(self.0 | other.0)
    }
}

/// A patched site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// The address of its first byte.
    pub address: u64,
    /// The target of the patch's jump.
    pub trampoline: u64,
    /// The address of the *island*, the 5-byte jump to which a 2-byte jump leads, or 0.
    pub island: u64,
    /// The number of the site's first counter. A hook has no counter.
    pub slot: u32,
    /// Number of patched bytes: 1 (trap), 2 (jump to the island), 5 (jump) or 6 (jump whose last byte and the byte
    /// after it, at [`Site::PAIR`], form one trap).
    pub len: u8,
    /// Its properties.
    pub flags: SiteFlags,
    /// The original bytes.
    pub original: [u8; 8],
    /// The bytes while patched.
    pub patched: [u8; 8],
    /// The island's original bytes.
    pub island_original: [u8; 8],
    /// The island's bytes while patched.
    pub island_patched: [u8; 8],
    /// Number of `heads`.
    pub head_count: u8,
    /// Heads in the window, the first at offset 0.
    pub heads: [Head; MAX_HEADS],
    /// The trampoline's length.
    pub code_len: u16,
    /// The unwind information's offset in the trampoline's arena, in [`crate::arena::UNIT`]s.
    pub unwind: u16,
    /// The unwind information's length in units.
    pub unwind_len: u8,
    /// Filter and kind, by which a later tiptoe recognizes a reusable trampoline.
    pub body: u32,
}

impl Site {
    /// Offset of the first of two bytes that trap only together.
    pub const PAIR: usize = 4;

    /// Bytes of an aligned word, which one write changes as a whole for all CPUs.
    pub const WORD: u64 = 8;

    /// Returns whether the patch has two bytes that trap only together.
    pub fn is_paired(&self) -> bool {
        self.len as usize == Self::PAIR + 2
    }

    /// Returns whether the site is a *guard*: this session's hook of a system call that blocks signals. A guard has no
    /// trap byte, because a thread that blocks SIGTRAP dies of a trap.
    pub fn is_guard(&self) -> bool {
        let hook = self.flags.has(SiteFlags::HOOK) && !self.flags.has(SiteFlags::STAYS);
        hook && self.is_quiet()
    }

    /// Returns whether the patch overwrites one instruction. Such a patch needs a trap byte only while it is written
    /// and threads run.
    pub fn is_quiet(&self) -> bool {
        self.len > 1 && self.head_count == 1
    }

    /// Returns whether the patch never needs a trap byte, because it overwrites one instruction in one aligned word.
    pub fn fits_word(&self) -> bool {
        let end = self.address % Self::WORD + u64::from(self.len);
        self.is_quiet() && end <= Self::WORD
    }

    /// Returns how many counters the site has.
    pub fn width(&self) -> u32 {
        match self.flags {
            flags if flags.has(SiteFlags::HOOK) || flags.has(SiteFlags::FUTEX) => 0,
            flags if flags.has(SiteFlags::TIMED.with(SiteFlags::VALUED)) => timed_values::WIDTH,
            flags if flags.has(SiteFlags::TIMED) => words::ALL,
            flags if flags.has(SiteFlags::CALL) => words::UNTIMED,
            flags if flags.has(SiteFlags::VALUED) => values::WIDTH,
            flags if flags.has(SiteFlags::RECORDS) => ring::words::ALL,
            _ => 1,
        }
    }

    /// Returns the slots of the counters of hits, or of followed calls' entries.
    pub fn entries(&self) -> impl Iterator<Item = u32> {
        let timed_values = self.width() == timed_values::WIDTH;
        let sets = if timed_values { timed_values::SETS } else { 1 };
        let slot = self.slot;
        (0..sets).map(move |number| timed_values::set(slot, number))
    }

    /// Returns the used heads.
    pub fn heads(&self) -> &[Head] {
        self.heads.get(..self.head_count as usize).unwrap_or(&[])
    }

    /// Encodes a site.
    pub fn encode(&self) -> [u64; SITE_WORDS] {
        let mut words = [0; SITE_WORDS];
        words[0] = self.address;
        words[1] = self.trampoline;
        words[2] = self.island;
        words[3] = self.slot as u64
            | (self.len as u64) << 32
            | (self.flags.0 as u64) << 40
            | (self.head_count as u64) << 48
            | (self.unwind_len as u64) << 56;
        words[4] = u64::from_le_bytes(self.original);
        words[5] = u64::from_le_bytes(self.patched);
        words[6] = u64::from_le_bytes(self.island_original);
        words[7] = u64::from_le_bytes(self.island_patched);
        words[11] = self.code_len as u64 | (self.body as u64) << 16 | (self.unwind as u64) << 48;
        for (index, head) in self.heads.iter().enumerate() {
            let bits =
                head.offset as u64 | (head.resume as u64) << 8 | u64::from(head.is_guard) << 24;
            if let Some(word) = words.get_mut(8 + index / 2) {
                *word |= bits << (32 * (index % 2));
            }
        }
        words
    }

    /// Decodes a site; `None` if a length or a head is impossible.
    pub fn decode(words: [u64; SITE_WORDS]) -> Option<Site> {
        let mut site = Site {
            address: words[0],
            trampoline: words[1],
            island: words[2],
            slot: words[3] as u32,
            len: (words[3] >> 32) as u8,
            flags: SiteFlags((words[3] >> 40) as u8),
            head_count: (words[3] >> 48) as u8,
            original: words[4].to_le_bytes(),
            patched: words[5].to_le_bytes(),
            island_original: words[6].to_le_bytes(),
            island_patched: words[7].to_le_bytes(),
            heads: [Head::default(); MAX_HEADS],
            code_len: words[11] as u16,
            unwind: (words[11] >> 48) as u16,
            unwind_len: (words[3] >> 56) as u8,
            body: (words[11] >> 16) as u32,
        };
        for (index, head) in site.heads.iter_mut().enumerate() {
            let bits = words.get(8 + index / 2).copied().unwrap_or(0) >> (32 * (index % 2));
            *head = Head {
                offset: bits as u8,
                resume: (bits >> 8) as u16,
                is_guard: bits >> 24 & 1 == 1,
            };
        }
        site.is_sound().then_some(site)
    }

    fn is_sound(&self) -> bool {
        let pair = |head: &Head| head.offset as usize == Self::PAIR;
        (matches!(self.len, 1 | 2 | 5) || self.is_paired() && self.heads().iter().any(pair))
            && (1..=MAX_HEADS).contains(&(self.head_count as usize))
            && self.heads().first().is_some_and(|head| head.offset == 0)
            && self.heads().iter().all(|head| head.offset < self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site() -> Site {
        let mut heads = [Head::default(); MAX_HEADS];
        heads[1] = Head {
            offset: 1,
            resume: 40,
            is_guard: true,
        };
        heads[2] = Head {
            offset: 4,
            resume: 0xffff,
            is_guard: false,
        };
        Site {
            address: 0x5555_0000_1234,
            trampoline: 0x5554_0000_0010,
            island: 7,
            slot: 99,
            len: 5,
            flags: SiteFlags::HOOK.with(SiteFlags::NEEDS_SIGILL),
            original: [1, 2, 3, 4, 5, 6, 7, 8],
            patched: [9; 8],
            island_original: [10; 8],
            island_patched: [11; 8],
            head_count: 3,
            heads,
            code_len: 77,
            unwind: 0xeff,
            unwind_len: 200,
            body: 0xdead_beef,
        }
    }

    #[test]
    fn decoding_gives_back_what_was_encoded() {
        for len in [5, 6] {
            let site = Site { len, ..site() };
            assert_eq!(Site::decode(site.encode()), Some(site));
        }
    }

    #[test]
    fn entries_are_in_as_many_counters_as_there_are_sets() {
        let with = |flags| Site { flags, ..site() };
        let plain = with(SiteFlags::TIMED);
        assert!(plain.entries().eq([99]));
        let valued = with(SiteFlags::TIMED.with(SiteFlags::VALUED));
        assert_eq!(valued.entries().count(), usize::from(timed_values::SETS));
        assert!(valued.entries().all(|slot| slot < 99 + valued.width()));
    }

    #[test]
    fn impossible_records_are_refused() {
        for broken in [
            Site { len: 3, ..site() },
            Site {
                head_count: 0,
                ..site()
            },
            Site {
                head_count: 6,
                ..site()
            },
            Site { len: 2, ..site() },
            Site {
                len: 6,
                head_count: 2,
                ..site()
            },
        ] {
            assert_eq!(Site::decode(broken.encode()), None, "{broken:?}");
        }
    }
}
