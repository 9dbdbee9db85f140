//! Reads one ELF file: header, layout, symbols, unwind section, and slots (words that the loader fills).
//!
//! A [`Contents`] borrows the file; an `Image` copies what it keeps.

use object::Endianness;
use object::elf;
use object::read::Object;
use object::read::elf::{ProgramHeader, SectionHeader as _};
use tiptoe_stack::compile::Section;

use crate::content::Content;
use crate::debug::DebugLink;
use crate::dynamic::{Dynamic, FileBytes};
use crate::elf_file::{Elf, File};
use crate::error::Error;
use crate::header::{Class, Header, Machine};
use crate::layout::{Layout, Segment};
use crate::slots::{self, Slots};
use crate::tables::{self, Symbols};
use crate::thread_segment::ThreadSegment;

/// The most segments, executable sections and bytes of `.eh_frame` that are kept; linkers make fewer.
const MAX_SEGMENTS: usize = 256;
const MAX_SECTIONS: usize = 4096;
const MAX_EH_FRAME: usize = 64 << 20;

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

/// A file with more headers is refused, because comparing each section with each segment would take too long.
const MOST_SEGMENTS: usize = 1 << 10;
const MOST_SECTIONS: usize = 1 << 12;
/// The limit of sections times bytes of names. A lookup of a section compares the names of all sections, which may
/// overlap. Without the limit a small file could take hours.
const MOST_COMPARED: u64 = 2 << 30;

pub(crate) fn parse(bytes: &Content) -> Option<object::read::File<'_, &Content>> {
    let (class, _) = Header::identify(bytes.get(0..20).unwrap_or_default()).ok()?;
    let is_bounded = match class {
        Class::Elf32 => is_bounded::<elf::FileHeader32<Endianness>>(bytes),
        Class::Elf64 => is_bounded::<elf::FileHeader64<Endianness>>(bytes),
    };
    is_bounded.then(|| object::read::File::parse(bytes).ok())?
}

pub(crate) fn read(bytes: &Content) -> Result<Contents<'_>, Error> {
    let (class, machine) = Header::identify(bytes.get(0..20).unwrap_or_default())?;
    match class {
        Class::Elf32 => contents::<elf::FileHeader32<Endianness>>(bytes, class, machine),
        Class::Elf64 => contents::<elf::FileHeader64<Endianness>>(bytes, class, machine),
    }
}

fn contents<E: Elf>(
    bytes: &Content,
    class: Class,
    machine: Machine,
) -> Result<Contents<'_>, Error> {
    let file = open::<E>(bytes)?;
    let layout = layout(&file);
    let loaded = Dynamic::read(&file, &layout, bytes);
    let header = header(&file, loaded.as_ref(), class, machine);
    let dynsym = match &loaded {
        Some(loaded) => tables::loaded_symbols(loaded, &layout, file.endian()),
        None => tables::symbols(&file, file.elf_dynamic_symbol_table(), bytes),
    };
    Ok(Contents {
        symtab: tables::symbols(&file, file.elf_symbol_table(), bytes),
        dynsym,
        slots: slots::read(&file, loaded.as_ref(), bytes),
        eh_frame: eh_frame(&file, bytes, &layout, class, machine),
        mini_debug_info: section(&file, bytes, b".gnu_debugdata").map(|(data, _)| data),
        thread_segment: thread_segment(&file),
        header,
        layout,
    })
}

fn open<E: Elf>(bytes: &Content) -> Result<File<'_, E>, Error> {
    match is_bounded::<E>(bytes) {
        true => File::<E>::parse(bytes).map_err(Error::BadHeaders),
        false => Err(Error::TooManyHeaders),
    }
}

fn is_bounded<E: Elf>(bytes: &Content) -> bool {
    let counts = || {
        let header = E::parse(bytes).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, bytes).ok()?.len();
        let sections = header.section_headers(endian, bytes).ok()?;
        let names = header.section_strings_index(endian, bytes).ok();
        let names = names.and_then(|names| sections.get(names.0));
        let names: u64 = names.map_or(0, |names| names.sh_size(endian).into());
        Some((segments, sections.len(), names))
    };
    counts().is_some_and(|(segments, sections, names)| {
        let compared = names.saturating_mul(sections as u64);
        segments <= MOST_SEGMENTS && sections <= MOST_SECTIONS && compared <= MOST_COMPARED
    })
}

fn header<E: Elf>(
    file: &File<'_, E>,
    loaded: Option<&Dynamic<'_, E>>,
    class: Class,
    machine: Machine,
) -> Header {
    let endian = file.endian();
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(String::from);
    let mut segments = file.elf_program_headers().iter();
    let interpreter = segments.find_map(|s| s.interpreter(endian, file.data()).ok()?);
    let link = file.gnu_debuglink().ok().flatten();
    let table = file.elf_dynamic_table().unwrap_or_default();
    let value = |tag| match loaded {
        Some(loaded) => loaded.value(tag),
        None => Some(table.iter().find(|entry| entry.tag == tag)?.val),
    };
    let soname = value(elf::DT_SONAME).and_then(|at| match loaded {
        Some(loaded) => loaded.text(at),
        None => std::str::from_utf8(table.strings().get(u32::try_from(at).ok()?).ok()?).ok(),
    });
    let pie = value(elf::DT_FLAGS_1).is_some_and(|flags| flags & elf::DF_1_PIE.0 != 0);
    Header {
        class,
        machine,
        position_independent: file.elf_header().e_type(endian) == elf::ET_DYN,
        program: pie || interpreter.is_some() || file.elf_header().e_type(endian) == elf::ET_EXEC,
        interpreter: interpreter.and_then(text),
        soname: soname.map(String::from),
        build_id: file.build_id().ok().flatten().map(<[u8]>::to_vec),
        debug_link: link.and_then(|(name, crc)| {
            Some(DebugLink {
                name: text(name)?,
                crc,
            })
        }),
    }
}

fn layout<E: Elf>(file: &File<'_, E>) -> Layout {
    let endian = file.endian();
    let loads = file
        .elf_program_headers()
        .iter()
        .filter(|s| s.p_type(endian) == elf::PT_LOAD);
    let loads = loads.take(MAX_SEGMENTS);
    let segments: Vec<Segment> = loads.map(|s| segment::<E>(s, endian)).collect();
    let (mut executable, mut plt) = (Vec::new(), Vec::new());
    for (_, section) in file.elf_section_table().enumerate() {
        let start: u64 = section.sh_addr(endian).into();
        let end = start.saturating_add(section.sh_size(endian).into());
        let code = section.sh_flags(endian).contains(elf::SHF_EXECINSTR);
        if !code
            || executable.len() == MAX_SECTIONS
            || end <= start
            || !segments
                .iter()
                .any(|s| s.is_executable && s.offset_of(start).is_some())
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
        let code = segments.iter().filter(|s| s.is_executable);
        executable.extend(code.map(|s| s.address..s.file_end()));
    }
    executable.sort_by_key(|range| range.start);
    Layout {
        segments,
        executable,
        plt,
    }
}

fn thread_segment<E: Elf>(file: &File<'_, E>) -> Option<ThreadSegment> {
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
        is_executable: flags.contains(elf::PF_X),
        is_writable: flags.contains(elf::PF_W),
    }
}

fn section<'d, E: Elf>(
    file: &File<'d, E>,
    bytes: &'d Content,
    name: &[u8],
) -> Option<(&'d [u8], u64)> {
    let (_, header) = file
        .elf_section_table()
        .section_by_name(file.endian(), name)?;
    let data = header.data(file.endian(), bytes).ok()?;
    Some((data, header.sh_addr(file.endian()).into()))
}

pub(crate) fn read_eh_frame(bytes: &Content) -> Option<Section<'_>> {
    let (class, machine) = Header::identify(bytes.get(0..20)?).ok()?;
    match class {
        Class::Elf32 => eh_frame_of::<elf::FileHeader32<Endianness>>(bytes, class, machine),
        Class::Elf64 => eh_frame_of::<elf::FileHeader64<Endianness>>(bytes, class, machine),
    }
}

fn eh_frame_of<E: Elf>(bytes: &Content, class: Class, machine: Machine) -> Option<Section<'_>> {
    let file = open::<E>(bytes).ok()?;
    eh_frame(&file, bytes, &layout(&file), class, machine)
}

fn eh_frame<'d, E: Elf>(
    file: &File<'d, E>,
    bytes: &'d Content,
    layout: &Layout,
    class: Class,
    machine: Machine,
) -> Option<Section<'d>> {
    let word = class.word();
    let named = section(file, bytes, b".eh_frame").filter(|(data, _)| !data.is_empty());
    let (data, address) = named.or_else(|| indexed_eh_frame(file, bytes, layout, word))?;
    if data.len() > MAX_EH_FRAME {
        bytes.leave_out();
        return None;
    }
    Some(Section {
        bytes: data,
        address,
        word,
        x86_64: machine == Machine::X86_64,
    })
}

fn indexed_eh_frame<'d, E: Elf>(
    file: &File<'d, E>,
    bytes: &'d Content,
    layout: &Layout,
    word: u8,
) -> Option<(&'d [u8], u64)> {
    let endian = file.endian();
    let mut segments = file.elf_program_headers().iter();
    let index = segments.find(|s| s.p_type(endian) == elf::PT_GNU_EH_FRAME)?;
    let index_address: u64 = index.p_vaddr(endian).into();
    let data = index.data(endian, bytes).ok()?;
    let address = crate::frames::indexed_address(data, index_address, word)?;
    let file_bytes = FileBytes { layout, bytes };
    Some((file_bytes.bytes(address, u64::MAX)?, address))
}

pub(crate) fn build_id(bytes: &Content) -> Option<Vec<u8>> {
    let file = parse(bytes)?;
    file.build_id().ok().flatten().map(<[u8]>::to_vec)
}

pub(crate) fn has_debug(bytes: &Content) -> bool {
    let Some(file) = parse(bytes) else {
        return false;
    };
    let has_section = |name| file.section_by_name(name).is_some();
    file.symbols().next().is_some() || has_section(".debug_info") || has_section(".zdebug_info")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(sections: u16, names: u64) -> Content {
        let mut file = vec![0; 64 * (1 + usize::from(sections))];
        file[..20].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0");
        file[40] = 64; // offset of section headers
        file[58] = 64; // length of a section header
        file[60..62].copy_from_slice(&sections.to_le_bytes());
        file[62] = 1; // index of the names' section
        file[64 + 64 + 4] = 3;
        file[64 + 64 + 32..][..8].copy_from_slice(&names.to_le_bytes());
        file.resize(file.len() + names as usize, b'a');
        file.into()
    }

    #[test]
    fn a_file_with_more_sections_and_names_than_a_program_has_is_refused() {
        assert!(read(&file(30, 1 << 20)).is_ok());
        assert!(parse(&file(30, 1 << 20)).is_some());
        for (sections, names) in [(60_000, 1 << 10), (4_000, 1 << 20)] {
            let file = file(sections, names);
            assert!(matches!(read(&file), Err(Error::TooManyHeaders)));
            assert!(parse(&file).is_none());
        }
    }
}
