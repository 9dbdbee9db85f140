//! An ELF file of either word size.

use object::Endianness;
use object::elf;
use object::read::SectionIndex;
use object::read::elf::{ElfFile, FileHeader, SectionHeader as _};

use crate::content::Content;

pub(crate) trait Elf: FileHeader<Endian = Endianness> {}
impl<E: FileHeader<Endian = Endianness>> Elf for E {}

pub(crate) type File<'d, E> = ElfFile<'d, E, &'d Content>;

pub(crate) fn is_code<E: Elf>(file: &File<'_, E>, index: SectionIndex) -> bool {
    let section = file.elf_section_table().section(index);
    section.is_ok_and(|s| s.sh_flags(file.endian()).contains(elf::SHF_EXECINSTR))
}
