//! Reads the target's mapped files: functions, and the code in which no thread may be borrowed (to load tiptoe's
//! library).
//!
//! The target chose the files, so the bytes may be hostile: any sum may overflow, and names may share bytes. This
//! file must make no system call, so that the fuzz target `inject_image` can include it.

use std::ops::Range;

use framehop::{ExplicitModuleSectionInfo, Module};
use object::read::elf::{
    Dyn as _, ElfFile64, FileHeader as _, ProgramHeader as _, SectionHeader as _, Sym as _,
};
use object::{Endianness, ReadRef, SectionIndex, elf};

/// Longer names are not read. Otherwise a file whose names share bytes could need far more memory than its size.
const LONGEST_NAME: usize = 64;

pub(super) struct MappedFile {
    /// What to add to an address in the file to get the address in the target.
    pub bias: u64,
    /// The addresses from the file's first mapping to the end of the last.
    pub span: Range<u64>,
    /// The unwind tables' addresses in the file, and their bytes. The file's index of the tables is not used, because
    /// its numbers may be hostile and the unwinder would not check them.
    pub eh_frame: Option<(Range<u64>, Vec<u8>)>,
    /// Each function's start, end and name, sorted. A name that is too long is empty.
    functions: Vec<(u64, u64, String)>,
    unsafe_code: Vec<Range<u64>>,
    /// The loader's state, with its locks; `None` for other files.
    state: Option<Range<u64>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Loader,
    Libc,
    Program,
    Library,
}

impl MappedFile {
    /// Reads a file whose mappings are in `span`. A text mapping at `start` begins at `offset` in the file. Returns
    /// `None` if the file has no executable segment at that offset.
    pub(super) fn read<'d, R: ReadRef<'d>>(
        bytes: R,
        start: u64,
        offset: u64,
        span: Range<u64>,
        role: Role,
    ) -> Option<Self> {
        let bias = bias(bytes, start, offset)?;
        let file = ElfFile64::parse(bytes).ok()?;
        let functions = functions(&file, bytes);
        let unsafe_code = unsafe_code(&functions, role);
        Some(Self {
            bias,
            span,
            eh_frame: section(&file, bytes, b".eh_frame"),
            functions,
            unsafe_code,
            state: state(&file, bytes).filter(|_| role == Role::Loader),
        })
    }

    pub(super) fn state(&self) -> Option<Range<u64>> {
        let state = self.state.as_ref()?;
        let start = state.start.wrapping_add(self.bias);
        Some(start..start.checked_add(state.end - state.start)?)
    }

    pub(super) fn function(&self, name: &str) -> Option<u64> {
        let found = self
            .functions
            .iter()
            .find(|(_, _, function)| function == name)?;
        Some(found.0.wrapping_add(self.bias))
    }

    pub(super) fn module(&self) -> Module<Vec<u8>> {
        let (eh_frame_svma, eh_frame) = self.eh_frame.clone().unzip();
        let sections = ExplicitModuleSectionInfo {
            eh_frame_svma,
            eh_frame,
            ..Default::default()
        };
        Module::new(String::new(), self.span.clone(), self.bias, sections)
    }

    pub(super) fn is_unsafe(&self, address: u64) -> bool {
        let address = address.wrapping_sub(self.bias);
        self.unsafe_code
            .iter()
            .any(|range| range.contains(&address))
    }
}

fn bias<'d, R: ReadRef<'d>>(bytes: R, start: u64, offset: u64) -> Option<u64> {
    segments(bytes)?.into_iter().find_map(|segment| {
        let skipped = offset.checked_sub(segment.file.start & !0xfff)?;
        (segment.is_executable && offset < segment.file.end).then(|| {
            start
                .wrapping_sub(skipped)
                .wrapping_sub(segment.address & !0xfff)
        })
    })
}

pub(super) struct LoadedSegment {
    pub file: Range<u64>,
    pub address: u64,
    pub is_executable: bool,
}

pub(super) fn segments<'d, R: ReadRef<'d>>(bytes: R) -> Option<Vec<LoadedSegment>> {
    let header = object::elf::FileHeader64::<object::Endianness>::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let load = header.program_headers(endian, bytes).ok()?.iter();
    let load = load.filter(|segment| segment.p_type(endian) == object::elf::PT_LOAD);
    let segment = |header: &object::elf::ProgramHeader64<_>| {
        let offset = header.p_offset(endian);
        LoadedSegment {
            file: offset..offset.saturating_add(header.p_filesz(endian)),
            address: header.p_vaddr(endian),
            is_executable: header.p_flags(endian).0 & object::elf::PF_X.0 != 0,
        }
    };
    Some(load.map(segment).collect())
}

/// Returns the libraries that a file needs, which stay mapped as long as the file.
pub(super) fn needed<'d, R: ReadRef<'d>>(bytes: R) -> Option<Vec<String>> {
    let file = Elf::parse(bytes).ok()?;
    let endian = file.endian();
    let dynamic = file.elf_section_table().dynamic(endian, bytes).ok()?;
    let (entries, names) = dynamic?;
    let names = strings(&file, bytes, names)?;
    let needed = entries
        .iter()
        .filter(|entry| entry.tag(endian) == elf::DT_NEEDED);
    let needed = needed.filter_map(|entry| name_at(names, entry.d_val(endian)));
    Some(
        needed
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect(),
    )
}

type Elf<'d, R> = ElfFile64<'d, Endianness, R>;

fn strings<'d, R: ReadRef<'d>>(file: &Elf<'d, R>, bytes: R, at: SectionIndex) -> Option<&'d [u8]> {
    let section = file.elf_section_table().section(at).ok()?;
    section.data(file.endian(), bytes).ok()
}

fn name_at(strings: &[u8], offset: u64) -> Option<&[u8]> {
    let rest = strings.get(usize::try_from(offset).ok()?..)?;
    let end = rest.iter().take(LONGEST_NAME).position(|byte| *byte == 0);
    rest.get(..end?)
}

fn section<'d, R: ReadRef<'d>>(
    file: &Elf<'d, R>,
    bytes: R,
    name: &[u8],
) -> Option<(Range<u64>, Vec<u8>)> {
    let endian = file.endian();
    let names = file.elf_header().shstrndx(endian, bytes).ok()?;
    let names = strings(file, bytes, SectionIndex(names as usize))?;
    let mut sections = file.elf_section_table().iter();
    let section = sections.find(|s| name_at(names, s.sh_name(endian).into()) == Some(name))?;
    let start = section.sh_addr(endian);
    let end = start.checked_add(section.sh_size(endian))?;
    let bytes = section.data(endian, bytes).ok()?.to_vec();
    Some((start..end, bytes))
}

fn functions<'d, R: ReadRef<'d>>(file: &Elf<'d, R>, bytes: R) -> Vec<(u64, u64, String)> {
    let (endian, table) = (file.endian(), file.elf_dynamic_symbol_table());
    let names = strings(file, bytes, table.string_section()).unwrap_or_default();
    let is_function = |symbol: &&elf::Sym64<Endianness>| {
        symbol.st_shndx(endian) != elf::SHN_UNDEF
            && matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC)
    };
    let mut functions: Vec<_> = table
        .iter()
        .filter(is_function)
        .filter_map(|symbol| {
            let start = symbol.st_value(endian);
            let name = name_at(names, symbol.st_name(endian).into()).unwrap_or_default();
            let name = String::from_utf8_lossy(name).into_owned();
            Some((start, start.checked_add(symbol.st_size(endian))?, name))
        })
        .collect();
    functions.sort_unstable();
    functions
}

fn state<'d, R: ReadRef<'d>>(file: &Elf<'d, R>, bytes: R) -> Option<Range<u64>> {
    /// The state has 2 to 5 KB; a hostile file may claim more.
    const MOST: u64 = 64 << 10;
    let (endian, table) = (file.endian(), file.elf_dynamic_symbol_table());
    let names = strings(file, bytes, table.string_section())?;
    let is_state = |symbol: &&elf::Sym64<Endianness>| {
        symbol.st_type() == elf::STT_OBJECT
            && name_at(names, symbol.st_name(endian).into()) == Some(b"_rtld_global")
    };
    let symbol = table.iter().find(is_state)?;
    let start = symbol.st_value(endian);
    let size = symbol.st_size(endian).min(MOST);
    Some(start..start.checked_add(size)?)
}

/// Returns the code that may hold locks which `dlopen` needs: the loader, the allocator and fork.
fn unsafe_code(functions: &[(u64, u64, String)], role: Role) -> Vec<Range<u64>> {
    let allocator = functions.iter().any(|(_, _, name)| name == "malloc");
    if role == Role::Loader || (role == Role::Library && allocator) {
        let everything = 0..u64::MAX;
        return vec![everything];
    }
    let mut ranges = Vec::new();
    for (index, (start, end, name)) in functions.iter().enumerate() {
        if is_loader_or_fork(name) {
            ranges.push(*start..*end);
        } else if is_allocator(name) {
            ranges.push(neighbourhood(functions, index));
        }
    }
    ranges
}

/// Returns the range between the nearest functions that are not the allocator's. The range includes the allocator's
/// nameless functions.
fn neighbourhood(functions: &[(u64, u64, String)], index: usize) -> Range<u64> {
    let other = |(_, _, name): &&(u64, u64, String)| !is_allocator(name);
    let below = functions[..index]
        .iter()
        .rev()
        .find(other)
        .map_or(0, |(_, end, _)| *end);
    let above = functions[index..]
        .iter()
        .find(other)
        .map_or(u64::MAX, |(start, _, _)| *start);
    below..above
}

fn is_allocator(name: &str) -> bool {
    matches!(
        name.trim_start_matches("__libc_").trim_start_matches("__"),
        "malloc"
            | "free"
            | "calloc"
            | "realloc"
            | "reallocarray"
            | "memalign"
            | "aligned_alloc"
            | "posix_memalign"
            | "valloc"
            | "pvalloc"
            | "cfree"
            | "mallinfo"
            | "mallinfo2"
            | "mallopt"
            | "malloc_info"
            | "malloc_stats"
            | "malloc_trim"
            | "malloc_usable_size"
    )
}

fn is_loader_or_fork(name: &str) -> bool {
    let name = name.trim_start_matches("__libc_").trim_start_matches('_');
    name.starts_with("dl_")
        || matches!(
            name,
            "dlopen"
                | "dlopen_mode"
                | "dlclose"
                | "dlsym"
                | "dlvsym"
                | "dlmopen"
                | "dladdr"
                | "dladdr1"
                | "dlinfo"
                | "dlerror"
                | "fork"
                | "Fork"
                | "vfork"
                | "clone"
                | "clone3"
                | "posix_spawn"
                | "posix_spawnp"
                | "pthread_create"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    struct Bounded<'d>(&'d [u8]);

    impl<'d> ReadRef<'d> for Bounded<'d> {
        fn len(self) -> Result<u64, ()> {
            ReadRef::len(self.0)
        }

        fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'d [u8], ()> {
            ReadRef::read_bytes_at(self.0, offset, size)
        }

        fn read_bytes_at_until(self, _: Range<u64>, _: u8) -> Result<&'d [u8], ()> {
            panic!("the file says how much is read");
        }
    }

    /// Regression: 40,000 symbols shared one name of a megabyte, which took 340 MB of memory.
    #[test]
    fn names_are_not_read_to_their_ends() {
        let libc = std::fs::read("/lib/x86_64-linux-gnu/libc.so.6").expect("this system's libc");
        let text = segments(&*libc).expect("segments").into_iter();
        let text = text
            .filter(|segment| segment.is_executable)
            .map(|segment| segment.file.start);
        let text = text.min().expect("code");
        let bytes = Bounded(&libc);
        let image = MappedFile::read(bytes, text, text, 0..1 << 30, Role::Libc).expect("an image");
        assert!(image.function("dlopen").is_some() && image.eh_frame.is_some());
        assert_eq!(
            needed(bytes).as_deref(),
            Some(&["ld-linux-x86-64.so.2".to_owned()][..])
        );
        assert_eq!(name_at(&[b'a'; 1 << 20], 7), None);
        assert_eq!(name_at(b"one\0two\0", 4), Some(&b"two"[..]));
    }
}
