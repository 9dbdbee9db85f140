//! Finds the resolvers of indirect functions in a mapped file's tables, as the loader does. The agent must call no
//! other address, even if tiptoe lists one. The tables are read through the kernel, and every number in them is
//! bounded, because the program may have changed them.

use core::ops::Range;

use tiptoe_uprobe::feed::{Line, Lines};
use tiptoe_uprobe::patcher::Text;

use crate::files::{File, ProcFile};

const PAGE: u64 = 4096;
const HEADER: usize = 64;
const SEGMENT: usize = 56;
const ENTRY: usize = 24;
const AT_ONCE: usize = 32;
const MOST: u64 = 1 << 20;
const MOST_SEGMENTS: u64 = 64;
const MOST_TAGS: u64 = 256;

/// The most resolvers of one file to keep. If a file has more, its tables are searched for each address.
const MOST_KEPT: usize = 256;

/// The resolvers of the last address's file. They are kept, because a request lists a file's resolvers together, and
/// searching the tables takes long.
pub struct Resolvers<'t, T> {
    text: &'t T,
    code: Range<u64>,
    tables: Option<Tables>,
    kept: [u64; MOST_KEPT],
    count: usize,
}

impl<'t, T: Text> Resolvers<'t, T> {
    pub fn new(text: &'t T) -> Resolvers<'t, T> {
        Resolvers {
            text,
            code: 0..0,
            tables: None,
            kept: [0; MOST_KEPT],
            count: 0,
        }
    }

    /// Returns whether the loader calls this address to choose a function.
    pub fn contain(&mut self, address: u64) -> bool {
        if !self.code.contains(&address) {
            self.read(address);
        }
        match self.kept.get(..self.count) {
            Some(kept) => kept.contains(&address),
            None => self.tables.as_ref().is_some_and(|tables| {
                let is_it = |resolver| resolver == address;
                tables.any_resolver(self.text, is_it)
            }),
        }
    }

    fn read(&mut self, address: u64) {
        (self.code, self.tables, self.count) = (0..0, None, 0);
        let Some((start, code)) = file_of(address) else {
            return;
        };
        self.code = code;
        self.tables = Tables::read(self.text, start);
        if let Some(tables) = &self.tables {
            let (kept, count) = (&mut self.kept, &mut self.count);
            tables.any_resolver(self.text, |resolver| {
                if let Some(place) = kept.get_mut(*count) {
                    *place = resolver;
                }
                *count += 1;
                // Stops at the first resolver without room, so that the count shows that `kept` is incomplete.
                *count > MOST_KEPT
            });
        }
    }
}

/// Returns the start of the file whose code is at an address, and the mapping of that code.
fn file_of(address: u64) -> Option<(u64, Range<u64>)> {
    let list = File::open(ProcFile::Maps)?;
    let lines = Lines::new(|buffer: &mut [u8]| list.read(buffer));
    let mut first = Line::default();
    for line in lines {
        if line.offset == 0 {
            first = line;
        }
        if (line.start..line.end).contains(&address) {
            let is_code = line.is_executable && line.file.inode != 0 && line.file == first.file;
            return is_code.then_some((first.start, line.start..line.end));
        }
    }
    None
}

#[derive(Default)]
struct Tables {
    bias: u64,
    symbols: u64,
    hash: u64,
    gnu_hash: u64,
    /// The addresses and lengths in bytes of the relocations, and of the linkage table's relocations.
    relocations: [(u64, u64); 2],
}

impl Tables {
    fn read(text: &impl Text, start: u64) -> Option<Tables> {
        let header: [u8; HEADER] = bytes(text, start)?;
        let is_elf = header.starts_with(b"\x7fELF\x02\x01");
        let (offset, count) = (word(&header, 32)?, half(&header, 56)?);
        if !is_elf || usize::from(half(&header, 54)?) != SEGMENT {
            return None;
        }
        let segments = (0..u64::from(count).min(MOST_SEGMENTS)).map_while(|index| {
            bytes::<SEGMENT>(
                text,
                start
                    .checked_add(offset)?
                    .checked_add(index * SEGMENT as u64)?,
            )
        });
        let (mut first, mut dynamic) = (None, None);
        for segment in segments {
            const LOAD: u64 = 1;
            const DYNAMIC: u64 = 2;
            match word(&segment, 0)? & u64::from(u32::MAX) {
                LOAD if word(&segment, 8)? == 0 => first = word(&segment, 16),
                DYNAMIC => dynamic = word(&segment, 16),
                _ => {}
            }
        }
        let bias = start.wrapping_sub(first? & !(PAGE - 1));
        Tables::from_dynamic(text, start, bias, bias.wrapping_add(dynamic?))
    }

    fn from_dynamic(text: &impl Text, start: u64, bias: u64, dynamic: u64) -> Option<Tables> {
        let mut tables = Tables {
            bias,
            ..Tables::default()
        };
        // glibc's loader replaces addresses of the file by absolute ones; musl's does not.
        let there = |value: u64| {
            if value < start {
                value.wrapping_add(bias)
            } else {
                value
            }
        };
        for index in 0..MOST_TAGS {
            let entry: [u8; 16] = bytes(text, dynamic.checked_add(index * 16)?)?;
            let value = word(&entry, 8)?;
            let [relocations, linkage] = &mut tables.relocations;
            match word(&entry, 0)? {
                0 => return Some(tables),
                2 => linkage.1 = value,
                4 => tables.hash = there(value),
                6 => tables.symbols = there(value),
                7 => relocations.0 = there(value),
                8 => relocations.1 = value,
                23 => linkage.0 = there(value),
                0x6fff_fef5 => tables.gnu_hash = there(value),
                _ => {}
            }
        }
        None
    }

    fn any_resolver(&self, text: &impl Text, mut is_one: impl FnMut(u64) -> bool) -> bool {
        const IFUNC: u8 = 10;
        const IRELATIVE: u32 = 37;
        let mut here =
            |value: Option<u64>| value.is_some_and(|value| is_one(value.wrapping_add(self.bias)));
        let mut is_symbol = |symbol: &[u8]| {
            symbol.get(4).is_some_and(|info| info & 0xf == IFUNC) && here(word(symbol, 8))
        };
        let symbols = self.count_symbols(text).unwrap_or(0);
        if any(text, self.symbols, symbols, &mut is_symbol) {
            return true;
        }
        let mut is_relocation = |relocation: &[u8]| {
            word(relocation, 8).is_some_and(|info| info as u32 == IRELATIVE)
                && here(word(relocation, 16))
        };
        let mut tables = self.relocations.into_iter();
        tables.any(|(at, len)| any(text, at, len / ENTRY as u64, &mut is_relocation))
    }

    fn count_symbols(&self, text: &impl Text) -> Option<u64> {
        if self.hash != 0 {
            let counts: [u8; 8] = bytes(text, self.hash)?;
            return Some((word(&counts, 0)? >> 32).min(MOST));
        }
        let head: [u8; 16] = bytes(text, self.gnu_hash)?;
        let (sizes, filter) = (word(&head, 0)?, word(&head, 8)? & u64::from(u32::MAX));
        let (buckets, first) = ((sizes & u64::from(u32::MAX)).min(MOST), sizes >> 32);
        let bucket = self.gnu_hash.checked_add(16)?.checked_add(filter * 8)?;
        let mut last = 0;
        for index in 0..buckets {
            last = last.max(number(text, bucket.checked_add(index * 4)?)?);
        }
        let chain = bucket.checked_add(buckets * 4)?;
        for symbol in u64::from(last)..MOST {
            let Some(link) = symbol.checked_sub(first) else {
                return Some(first);
            };
            if number(text, chain.checked_add(link * 4)?)? & 1 != 0 {
                return Some(symbol + 1);
            }
        }
        Some(MOST)
    }
}

fn any(text: &impl Text, at: u64, count: u64, is_one: &mut impl FnMut(&[u8]) -> bool) -> bool {
    let mut room = [0; ENTRY * AT_ONCE];
    let (mut next, mut left) = (at, count.min(MOST) as usize);
    while at != 0 && left > 0 {
        let some = left.min(AT_ONCE);
        let Some(entries) = room.get_mut(..some * ENTRY) else {
            return false;
        };
        if !text.read(next, entries) {
            return false;
        }
        if entries.chunks_exact(ENTRY).any(&mut *is_one) {
            return true;
        }
        next = next.saturating_add((some * ENTRY) as u64);
        left -= some;
    }
    false
}

fn bytes<const N: usize>(text: &impl Text, at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    text.read(at, &mut bytes).then_some(bytes)
}

fn number(text: &impl Text, at: u64) -> Option<u32> {
    bytes(text, at).map(u32::from_le_bytes)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
