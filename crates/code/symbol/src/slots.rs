//! Slots: words that the loader fills with an imported function's address, or with a number that leads to
//! thread-local variables.

use object::elf;
use object::read::elf::{Rela, SectionHeader as _, Sym};
use object::{Endianness, Object};

use crate::content::Content;
use crate::dynamic::Dynamic;
use crate::elf_file::{Elf, File};
use crate::tables::Strings;

/// The most relocations read. Without a limit, overlapping sections could multiply them.
const MAX_RELOCATIONS: usize = 4_000_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slots {
    /// Pairs of an imported name and its slot.
    imported: Vec<(Box<str>, u64)>,
    /// The word in which the loader stores the image's number among images with thread-local variables.
    pub(crate) module_number: Option<u64>,
    /// A word, and an offset in the image's thread-local block. The loader stores in the word the offset's distance
    /// from the thread pointer.
    pub(crate) thread_offset: Option<(u64, u64)>,
}

impl Slots {
    pub(crate) fn imports(&self) -> impl Iterator<Item = (&str, u64)> {
        let imported = self.imported.iter();
        imported.map(|(name, slot)| (&**name, *slot))
    }
}

pub(crate) fn read<'d, E: Elf>(
    file: &File<'d, E>,
    loaded: Option<&Dynamic<'d, E>>,
    bytes: &'d Content,
) -> Slots {
    let mut slots = Slots::default();
    if !file.is_64() {
        return slots;
    }
    let endian = file.endian();
    let symbols = loaded.map_or(file.elf_dynamic_symbol_table().symbols(), |l| l.symbols);
    let strings = || Strings::of(file, file.elf_dynamic_symbol_table(), bytes);
    let mut names: Names<'_, E> = Names {
        symbols,
        strings: loaded.map_or_else(strings, |loaded| Strings::new(loaded.strings)),
        endian,
    };
    let mut left = MAX_RELOCATIONS;
    let sections = file.elf_section_table().iter();
    let sections = sections.filter_map(|section| Some(section.rela(endian, bytes).ok()??.0));
    let loaded = loaded
        .into_iter()
        .flat_map(|l| l.relocations.iter().copied());
    for relocations in sections.chain(loaded) {
        for relocation in &relocations[..relocations.len().min(left)] {
            slots.add(relocation, &mut names);
        }
        left = left.saturating_sub(relocations.len());
    }
    slots.imported.sort_unstable();
    slots
}

struct Names<'d, E: Elf> {
    symbols: &'d [E::Sym],
    strings: Strings<'d>,
    endian: Endianness,
}

impl<'d, E: Elf> Names<'d, E> {
    fn symbol(&self, relocation: &E::Rela) -> Option<&'d E::Sym> {
        let index = relocation.r_sym(self.endian, false) as usize;
        self.symbols.get(index).filter(|_| index != 0)
    }
}

impl Slots {
    fn add<E: Elf>(&mut self, relocation: &E::Rela, names: &mut Names<'_, E>) {
        let endian = names.endian;
        let slot = relocation.r_offset(endian).into();
        let addend: i64 = relocation.r_addend(endian).into();
        match relocation.r_type(endian, false) {
            elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT => {
                let Some(symbol) = names.symbol(relocation) else {
                    return;
                };
                let name = names.strings.get(symbol.st_name(endian));
                self.imported
                    .extend(name.map(|name| (Box::from(name), slot)));
            }
            elf::R_X86_64_DTPMOD64 => {
                let own = thread_local(names, relocation);
                self.module_number = self.module_number.or(own.map(|_| slot));
            }
            elf::R_X86_64_TPOFF64 => {
                let own = thread_local(names, relocation);
                let place = own.map(|at| at.wrapping_add_signed(addend));
                self.thread_offset = self.thread_offset.or(place.map(|place| (slot, place)));
            }
            _ => {}
        }
    }
}

/// Returns the thread-local offset of a relocation's symbol, 0 without a symbol; `None` if another image defines the
/// symbol.
fn thread_local<E: Elf>(names: &Names<'_, E>, relocation: &E::Rela) -> Option<u64> {
    let endian = names.endian;
    if relocation.r_sym(endian, false) == 0 {
        return Some(0);
    }
    let symbol = names.symbol(relocation)?;
    let own = symbol.st_shndx(endian) != elf::SHN_UNDEF;
    own.then(|| symbol.st_value(endian).into())
}
