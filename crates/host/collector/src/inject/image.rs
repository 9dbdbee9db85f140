//! The files mapped into the target: where their functions are, and which of them are no place
//! to borrow a thread from.

use std::ops::Range;

use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{ObjectSection as _, ObjectSymbol as _, ReadCache};

use super::process::{Mapping, Process};

/// One mapped file.
pub(super) struct Image {
    /// What has to be added to an address in the file.
    pub bias: u64,
    /// The addresses that the file's mappings cover.
    pub span: Range<u64>,
    /// Unwind tables: their address in the file, and their bytes.
    pub eh_frame: Option<(Range<u64>, Vec<u8>)>,
    pub eh_frame_hdr: Option<(Range<u64>, Vec<u8>)>,
    /// Dynamic functions by address in the file: start, end, name.
    functions: Vec<(u64, u64, String)>,
    /// Addresses in the file between which no thread may be borrowed.
    unsafe_code: Vec<Range<u64>>,
}

/// What a file is to the program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The dynamic loader.
    Loader,
    /// The C library.
    Libc,
    /// The program itself.
    Program,
    /// Any other library.
    Library,
}

impl Image {
    /// Reads the file behind `text` and its neighbours; `None` where it cannot be read.
    pub(super) fn read(
        process: &Process,
        mappings: &[Mapping],
        text: &Mapping,
        role: Role,
    ) -> Option<Self> {
        let cache = ReadCache::new(process.open_file(text).ok()?);
        let bias = bias(&cache, text)?;
        let file = object::File::parse(&cache).ok()?;
        let ours = || mappings.iter().filter(|mapping| mapping.same_file(text));
        let span = ours().map(|m| m.start).min()?..ours().map(|m| m.end).max()?;
        let functions = functions(&file);
        let unsafe_code = unsafe_code(&functions, role);
        Some(Self {
            bias,
            span,
            eh_frame: section(&file, ".eh_frame"),
            eh_frame_hdr: section(&file, ".eh_frame_hdr"),
            functions,
            unsafe_code,
        })
    }

    /// Where the program finds a dynamic function.
    pub(super) fn function(&self, name: &str) -> Option<u64> {
        let found = self
            .functions
            .iter()
            .find(|(_, _, function)| function == name)?;
        Some(found.0.wrapping_add(self.bias))
    }

    /// Whether a thread whose stack shows this address may not be borrowed.
    pub(super) fn is_unsafe(&self, address: u64) -> bool {
        let address = address.wrapping_sub(self.bias);
        self.unsafe_code
            .iter()
            .any(|range| range.contains(&address))
    }
}

/// The load bias: a text mapping's address less that of the segment that it shows.
fn bias(cache: &ReadCache<std::fs::File>, text: &Mapping) -> Option<u64> {
    segments(cache)?.into_iter().find_map(|segment| {
        let page = segment.offset & !0xfff;
        let skipped = text.offset.checked_sub(page)?;
        (segment.executable && text.offset < segment.offset + segment.file_size).then(|| {
            text.start
                .wrapping_sub(skipped)
                .wrapping_sub(segment.address & !0xfff)
        })
    })
}

/// A PT_LOAD header.
pub(super) struct Segment {
    pub offset: u64,
    pub address: u64,
    pub file_size: u64,
    pub executable: bool,
}

/// The loadable segments of a 64-bit x86 file.
pub(super) fn segments(cache: &ReadCache<std::fs::File>) -> Option<Vec<Segment>> {
    let header = object::elf::FileHeader64::<object::Endianness>::parse(cache).ok()?;
    let endian = header.endian().ok()?;
    let load = header.program_headers(endian, cache).ok()?.iter();
    let load = load.filter(|segment| segment.p_type(endian) == object::elf::PT_LOAD);
    let segment = |header: &object::elf::ProgramHeader64<_>| Segment {
        offset: header.p_offset(endian),
        address: header.p_vaddr(endian),
        file_size: header.p_filesz(endian),
        executable: header.p_flags(endian).0 & object::elf::PF_X.0 != 0,
    };
    Some(load.map(segment).collect())
}

/// The names of the libraries that a file needs: they stay as long as it does.
pub(super) fn needed(process: &Process, text: &Mapping) -> Vec<String> {
    let needed = || {
        let cache = ReadCache::new(process.open_file(text).ok()?);
        let file = object::read::elf::ElfFile64::<object::Endianness, _>::parse(&cache).ok()?;
        let table = file.elf_dynamic_table().ok()?;
        let needed = table
            .iter()
            .filter(|entry| entry.tag == object::elf::DT_NEEDED);
        let names = needed.filter_map(|entry| table.string(entry).ok());
        Some(
            names
                .map(|name| String::from_utf8_lossy(name).into_owned())
                .collect(),
        )
    };
    needed().unwrap_or_default()
}

fn section<'a>(file: &impl object::Object<'a>, name: &str) -> Option<(Range<u64>, Vec<u8>)> {
    let section = file.section_by_name(name)?;
    let bytes = section.uncompressed_data().ok()?.into_owned();
    Some((section.address()..section.address() + section.size(), bytes))
}

fn functions<'a>(file: &impl object::Object<'a>) -> Vec<(u64, u64, String)> {
    let mut functions: Vec<_> = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition() && symbol.kind() == object::SymbolKind::Text)
        .filter_map(|symbol| {
            let end = symbol.address().checked_add(symbol.size())?;
            Some((symbol.address(), end, symbol.name().ok()?.to_owned()))
        })
        .collect();
    functions.sort_unstable();
    functions
}

/// Code whose locks `dlopen` needs: the loader, the allocator and fork.
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

/// From the end of the last other function to the start of the next: the allocator's own
/// functions without names lie in between.
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
