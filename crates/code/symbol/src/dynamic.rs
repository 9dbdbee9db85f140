//! Reads the loader's tables (`PT_DYNAMIC`) of a file without section headers (`sstrip`, packers). The bytes may be
//! hostile, so each table is cut at its segment's end, and the hash table is used only to count the symbols.

use object::Endianness;
use object::elf;
use object::read::elf::{Dyn as _, ProgramHeader as _};
use object::read::{Object as _, ReadRef as _};

use crate::content::Content;
use crate::elf_file::{Elf, File};
use crate::layout::Layout;

const MOST_SYMBOLS: usize = 2_000_000;

pub(crate) struct Dynamic<'d, E: Elf> {
    /// The symbols, including the empty first symbol.
    pub(crate) symbols: &'d [E::Sym],
    pub(crate) strings: &'d [u8],
    pub(crate) relocations: Vec<&'d [E::Rela]>,
    entries: &'d [E::Dyn],
    endian: Endianness,
}

impl<'d, E: Elf> Dynamic<'d, E> {
    pub(crate) fn read(
        file: &File<'d, E>,
        layout: &Layout,
        bytes: &'d Content,
    ) -> Option<Dynamic<'d, E>> {
        if !file.elf_section_table().is_empty() {
            return None;
        }
        let endian = file.endian();
        let mut segments = file.elf_program_headers().iter();
        let entries = segments.find_map(|segment| segment.dynamic(endian, bytes).ok()?)?;
        let mut found = Dynamic {
            symbols: &[],
            strings: &[],
            relocations: Vec::new(),
            entries,
            endian,
        };
        let file_bytes = FileBytes { layout, bytes };
        let size = found.value(elf::DT_STRSZ).unwrap_or(u64::MAX);
        found.strings = found
            .value(elf::DT_STRTAB)
            .and_then(|at| file_bytes.bytes(at, size))
            .unwrap_or_default();
        found.symbols = found.find_symbols(&file_bytes).unwrap_or_default();
        let has_addends = file.is_64();
        for (table, size) in [
            (elf::DT_RELA, elf::DT_RELASZ),
            (elf::DT_JMPREL, elf::DT_PLTRELSZ),
        ] {
            let (table, size) = (found.value(table), found.value(size));
            let read = table
                .zip(size)
                .filter(|_| has_addends)
                .and_then(|(at, size)| {
                    file_bytes.table::<E::Rela>(at, size / size_of::<E::Rela>() as u64)
                });
            found.relocations.extend(read);
        }
        Some(found)
    }

    pub(crate) fn value(&self, tag: elf::DynamicTag) -> Option<u64> {
        let entries = self.entries.iter();
        let mut entries = entries.take_while(|entry| entry.d_tag(self.endian) != elf::DT_NULL);
        let entry = entries.find(|entry| entry.d_tag(self.endian) == tag)?;
        Some(entry.d_val(self.endian).into())
    }

    pub(crate) fn text(&self, at: u64) -> Option<&'d str> {
        let rest = self.strings.get(usize::try_from(at).ok()?..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(&rest[..end]).ok()
    }

    fn find_symbols(&self, file_bytes: &FileBytes<'_, 'd>) -> Option<&'d [E::Sym]> {
        let at = self.value(elf::DT_SYMTAB)?;
        let hashed = self
            .value(elf::DT_HASH)
            .and_then(|at| self.count(file_bytes, at));
        let gnu = || {
            let at = self.value(elf::DT_GNU_HASH)?;
            self.count_gnu(file_bytes, at)
        };
        // Linkers put the names after the symbols, so the distance between the tables bounds the number of symbols.
        let between = || {
            let size = self.value(elf::DT_STRTAB)?.checked_sub(at)?;
            Some(size / size_of::<E::Sym>() as u64)
        };
        file_bytes.table(at, hashed.or_else(gnu).or_else(between)?)
    }

    /// The hash table has a chain entry for each symbol.
    fn count(&self, file_bytes: &FileBytes<'_, 'd>, at: u64) -> Option<u64> {
        let [_, chains] = file_bytes.words(at, 2)?.first_chunk()?;
        Some(u64::from(chains.get(self.endian)))
    }

    fn count_gnu(&self, file_bytes: &FileBytes<'_, 'd>, at: u64) -> Option<u64> {
        let head = file_bytes.words(at, 4)?.first_chunk::<4>()?;
        let [buckets, first, bloom, _] =
            head.each_ref().map(|word| u64::from(word.get(self.endian)));
        let word = if size_of::<E::Sym>() == 24 { 8 } else { 4 };
        let at = at.checked_add(16)?.checked_add(bloom * word)?;
        let starts = file_bytes.words(at, buckets)?;
        let last = starts
            .iter()
            .map(|start| u64::from(start.get(self.endian)))
            .max()?;
        let chains = at.checked_add(buckets * 4)?;
        let Some(after_first) = last.checked_sub(first) else {
            // No symbol is hashed, so `first` is the number of symbols, unless GNU ld wrote 1 there.
            return Some(first).filter(|first| *first > 1);
        };
        let chain = file_bytes.words(chains.checked_add(after_first * 4)?, MOST_SYMBOLS as u64)?;
        let end = chain
            .iter()
            .position(|hash| hash.get(self.endian) & 1 == 1)?;
        Some(last + end as u64 + 1)
    }
}

pub(crate) struct FileBytes<'l, 'd> {
    pub(crate) layout: &'l Layout,
    pub(crate) bytes: &'d Content,
}

impl<'d> FileBytes<'_, 'd> {
    /// Returns `most` bytes, or fewer at the end of the segment or the file.
    pub(crate) fn bytes(&self, address: u64, most: u64) -> Option<&'d [u8]> {
        let (start, room) = self.room(address)?;
        self.bytes.get(start..start + room.min(most))
    }

    fn table<T: object::pod::Pod>(&self, address: u64, most: u64) -> Option<&'d [T]> {
        let (start, room) = self.room(address)?;
        let count = (room / size_of::<T>() as u64)
            .min(most)
            .min(MOST_SYMBOLS as u64);
        self.bytes
            .read_slice_at(start, usize::try_from(count).ok()?)
            .ok()
    }

    fn words(&self, address: u64, most: u64) -> Option<&'d [object::U32<Endianness>]> {
        self.table(address, most)
    }

    /// Returns an address's offset in the file, and how many bytes the segment has from that offset on.
    fn room(&self, address: u64) -> Option<(u64, u64)> {
        let mut segments = self.layout.segments.iter();
        let (segment, start) = segments.find_map(|segment| {
            let start = segment.offset_of(address)?;
            Some((segment, start))
        })?;
        let end = segment
            .offset
            .checked_add(segment.file_size)?
            .min(self.bytes.size());
        Some((start, end.checked_sub(start)?))
    }
}
