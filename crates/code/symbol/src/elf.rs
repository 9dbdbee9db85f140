//! What one ELF file says: header, layout, symbols, unwind section, slots.
//!
//! Everything here is generic over the word size and reads only through
//! bounds-checked accessors. A [`Contents`] borrows the file; what is kept
//! longer is copied out of it by `build`.

use object::Endianness;
use object::elf;
use object::read::elf::{ElfFile, FileHeader, ProgramHeader, SectionHeader as _};
use object::read::{Object, SectionIndex};
use tiptoe_stack::compile::Section;

use crate::debug::DebugLink;
use crate::error::{Error, damaged};
use crate::header::{Class, Header, Machine};
use crate::layout::{Layout, Segment};
use crate::slots::{self, Slots};
use crate::tables::{self, Symbols};
use crate::variable::ThreadSegment;

/// A parsed file, as far as this crate is interested in it.
pub(crate) struct Contents<'d> {
    pub(crate) header: Header,
    pub(crate) layout: Layout,
    pub(crate) symtab: Symbols<'d>,
    pub(crate) dynsym: Symbols<'d>,
    pub(crate) slots: Slots,
    pub(crate) eh_frame: Option<Section<'d>>,
    pub(crate) mini_debug_info: Option<&'d [u8]>,
    pub(crate) thread_segment: Option<ThreadSegment>,
}

/// The file types that hold one file's word size.
pub(crate) trait Elf: FileHeader<Endian = Endianness> {}
impl<E: FileHeader<Endian = Endianness>> Elf for E {}

/// Reads a file of either word size.
pub(crate) fn read(bytes: &[u8]) -> Result<Contents<'_>, Error> {
    let (class, machine) = Header::identify(bytes)?;
    match class {
        Class::Elf32 => contents::<elf::FileHeader32<Endianness>>(bytes, class, machine),
        Class::Elf64 => contents::<elf::FileHeader64<Endianness>>(bytes, class, machine),
    }
}

fn contents<E: Elf>(bytes: &[u8], class: Class, machine: Machine) -> Result<Contents<'_>, Error> {
    let file = ElfFile::<E>::parse(bytes).map_err(damaged("headers"))?;
    let header = header(&file, class, machine);
    let layout = layout(&file);
    Ok(Contents {
        symtab: tables::symbols(&file, file.elf_symbol_table(), bytes),
        dynsym: tables::symbols(&file, file.elf_dynamic_symbol_table(), bytes),
        slots: slots::read(&file, bytes),
        eh_frame: eh_frame(&file, bytes, &layout, &header),
        mini_debug_info: section(&file, bytes, b".gnu_debugdata").map(|(data, _)| data),
        thread_segment: thread_segment(&file),
        header,
        layout,
    })
}

fn header<E: Elf>(file: &ElfFile<'_, E>, class: Class, machine: Machine) -> Header {
    let endian = file.endian();
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(String::from);
    let mut segments = file.elf_program_headers().iter();
    let interpreter = segments.find_map(|s| s.interpreter(endian, file.data()).ok()?);
    let link = file.gnu_debuglink().ok().flatten();
    let (soname, pie) = dynamic(file);
    Header {
        class,
        machine,
        position_independent: file.elf_header().e_type(endian) == elf::ET_DYN,
        program: pie || interpreter.is_some() || file.elf_header().e_type(endian) == elf::ET_EXEC,
        interpreter: interpreter.and_then(text),
        soname,
        build_id: file.build_id().ok().flatten().map(<[u8]>::to_vec),
        debug_link: link.and_then(|(name, crc)| {
            Some(DebugLink {
                name: text(name)?,
                crc,
            })
        }),
    }
}

/// The library's own name, and whether the file is marked as a program.
fn dynamic<E: Elf>(file: &ElfFile<'_, E>) -> (Option<String>, bool) {
    let Ok(table) = file.elf_dynamic_table() else {
        return (None, false);
    };
    let (mut soname, mut pie) = (None, false);
    for entry in table.iter() {
        match entry.tag {
            elf::DT_SONAME => {
                let name = table
                    .string(entry)
                    .ok()
                    .and_then(|name| std::str::from_utf8(name).ok());
                soname = name.map(String::from);
            }
            elf::DT_FLAGS_1 => pie = entry.val & elf::DF_1_PIE.0 != 0,
            _ => {}
        }
    }
    (soname, pie)
}

fn layout<E: Elf>(file: &ElfFile<'_, E>) -> Layout {
    let endian = file.endian();
    let loads = file
        .elf_program_headers()
        .iter()
        .filter(|s| s.p_type(endian) == elf::PT_LOAD);
    let segments: Vec<Segment> = loads.map(|s| segment::<E>(s, endian)).collect();
    let (mut executable, mut plt) = (Vec::new(), Vec::new());
    for (_, section) in file.elf_section_table().enumerate() {
        let start: u64 = section.sh_addr(endian).into();
        let end = start.saturating_add(section.sh_size(endian).into());
        let code = section.sh_flags(endian).contains(elf::SHF_EXECINSTR);
        if !code
            || end <= start
            || !segments
                .iter()
                .any(|s| s.executable && s.offset_of(start).is_some())
        {
            continue;
        }
        executable.push(start..end);
        let name = file
            .elf_section_table()
            .section_name(endian, section)
            .unwrap_or_default();
        if name.starts_with(b".plt") || name == b".iplt" {
            plt.push(start..end);
        }
    }
    if executable.is_empty() {
        let code = segments.iter().filter(|s| s.executable);
        executable.extend(code.map(|s| s.address..s.file_end()));
    }
    executable.sort_by_key(|range| range.start);
    Layout {
        segments,
        executable,
        plt,
    }
}

fn thread_segment<E: Elf>(file: &ElfFile<'_, E>) -> Option<ThreadSegment> {
    let endian = file.endian();
    let mut segments = file.elf_program_headers().iter();
    let segment = segments.find(|s| s.p_type(endian) == elf::PT_TLS)?;
    Some(ThreadSegment {
        address: segment.p_vaddr(endian).into(),
        size: segment.p_memsz(endian).into(),
        alignment: segment.p_align(endian).into(),
    })
}

fn segment<E: Elf>(header: &E::ProgramHeader, endian: Endianness) -> Segment {
    let flags = header.p_flags(endian);
    Segment {
        address: header.p_vaddr(endian).into(),
        memory_size: header.p_memsz(endian).into(),
        offset: header.p_offset(endian).into(),
        file_size: header.p_filesz(endian).into(),
        executable: flags.contains(elf::PF_X),
        writable: flags.contains(elf::PF_W),
    }
}

/// A section's bytes and link-time address.
fn section<'d, E: Elf>(
    file: &ElfFile<'d, E>,
    bytes: &'d [u8],
    name: &[u8],
) -> Option<(&'d [u8], u64)> {
    let (_, header) = file
        .elf_section_table()
        .section_by_name(file.endian(), name)?;
    let data = header.data(file.endian(), bytes).ok()?;
    Some((data, header.sh_addr(file.endian()).into()))
}

/// Finds the unwind section by name, or through its index where the file has
/// no section headers.
fn eh_frame<'d, E: Elf>(
    file: &ElfFile<'d, E>,
    bytes: &'d [u8],
    layout: &Layout,
    header: &Header,
) -> Option<Section<'d>> {
    let word = if header.class == Class::Elf64 { 8 } else { 4 };
    let named = section(file, bytes, b".eh_frame").filter(|(data, _)| !data.is_empty());
    let (bytes, address) = named.or_else(|| indexed_eh_frame(file, bytes, layout, word))?;
    Some(Section {
        bytes,
        address,
        word,
        x86_64: header.machine == Machine::X86_64,
    })
}

fn indexed_eh_frame<'d, E: Elf>(
    file: &ElfFile<'d, E>,
    bytes: &'d [u8],
    layout: &Layout,
    word: u8,
) -> Option<(&'d [u8], u64)> {
    let endian = file.endian();
    let mut segments = file.elf_program_headers().iter();
    let index = segments.find(|s| s.p_type(endian) == elf::PT_GNU_EH_FRAME)?;
    let index_address: u64 = index.p_vaddr(endian).into();
    let data = index.data(endian, bytes).ok()?;
    let address = crate::frames::indexed_address(data, index_address, word)?;
    let segment = layout
        .segments
        .iter()
        .find(|s| s.offset_of(address).is_some())?;
    let start = usize::try_from(segment.offset_of(address)?).ok()?;
    let end = usize::try_from(segment.offset.checked_add(segment.file_size)?).ok()?;
    Some((bytes.get(start..end.min(bytes.len()))?, address))
}

/// The build-id of a file; `None` where it has none or is no readable ELF file.
pub(crate) fn build_id(bytes: &[u8]) -> Option<Vec<u8>> {
    let file = object::read::File::parse(bytes).ok()?;
    file.build_id().ok().flatten().map(<[u8]>::to_vec)
}

/// Whether a section (by index) holds code.
pub(crate) fn is_code<E: Elf>(file: &ElfFile<'_, E>, index: SectionIndex) -> bool {
    let section = file.elf_section_table().section(index);
    section.is_ok_and(|s| s.sh_flags(file.endian()).contains(elf::SHF_EXECINSTR))
}
