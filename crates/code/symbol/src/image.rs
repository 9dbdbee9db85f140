use std::ops::Range;
use std::path::PathBuf;

use crate::content::Content;
use crate::debug::{self, DebugSource};
use crate::demangle::{squeeze, variable_name};
use crate::elf;
use crate::error::Error;
use crate::frames::{described, frames};
use crate::function::{Function, Source};
use crate::header::Header;
use crate::layout::Layout;
use crate::merge::merge;
use crate::slots::Slots;
use crate::tables::Variable;
use crate::thread_segment::ThreadSegment;
use crate::xz;

const MAX_MINI_DEBUG_INFO: usize = 64 << 20;

/// A program or shared library, with its functions. Borrows nothing.
#[derive(Clone, Debug)]
pub struct Image {
    header: Header,
    layout: Layout,
    pub(crate) functions: Vec<Function>,
    /// Pairs of a function's index and the index of one of its names, ordered by name.
    pub(crate) by_name: Vec<(u32, u32)>,
    pub(crate) data: Vec<Variable>,
    pub(crate) slots: Slots,
    pub(crate) thread_segment: Option<ThreadSegment>,
    has_symbols: bool,
    is_cut: bool,
    described: Vec<Range<u64>>,
}

impl Image {
    /// Reads a file: its dynamic table, its unwind information, and one symbol table. The symbol table is the file's
    /// own, or else a separate debug file's, or else MiniDebugInfo's.
    pub fn parse(content: &Content, debug: &dyn DebugSource) -> Result<Image, Error> {
        let contents = elf::read(content)?;
        let own = !contents.symtab.functions.is_empty();
        let (separate, refused) = match own {
            true => (None, false),
            false => debug_file(&contents.header, debug),
        };
        let packed = contents
            .mini_debug_info
            .filter(|_| !own && separate.is_none());
        let mini = packed.and_then(|packed| xz::unpack(packed, MAX_MINI_DEBUG_INFO));
        let mini = mini.map(Content::from);
        let (source, other) = match (&separate, &mini) {
            (Some((_, content)), _) => (Source::DebugFile, Some(content)),
            (None, Some(content)) => (Source::MiniDebugInfo, Some(content)),
            (None, None) => (Source::Symtab, None),
        };
        let other = other.and_then(|content| elf::read(content).ok());
        let other = other.map(|contents| contents.symtab).unwrap_or_default();
        let has_symbols = own || !other.functions.is_empty();
        let is_exceeded = separate.iter().any(|(_, content)| content.is_exceeded());
        let tables = [
            (Source::Symtab, contents.symtab),
            (Source::Dynsym, contents.dynsym),
            (source, other),
        ];
        let is_cut = tables.iter().any(|(_, table)| table.was_cut);
        let (mut symbols, mut data) = (Vec::new(), Vec::new());
        for (source, table) in tables {
            symbols.extend(table.functions.into_iter().map(|symbol| (source, symbol)));
            data.extend(table.data);
        }
        let place = |v: &Variable| (v.address, v.is_thread_local);
        // Of several versions of a variable the largest is kept.
        data.sort_unstable_by(|v, next| {
            let order = (&v.name, place(v), next.size);
            order.cmp(&(&next.name, place(next), v.size))
        });
        data.dedup_by(|next, v| next.name == v.name && place(next) == place(v));
        let frames = contents
            .eh_frame
            .map(|section| frames(&section))
            .unwrap_or_default();
        let layout = contents.layout;
        let functions = merge(symbols, &frames, &layout, content.size());
        Ok(Image {
            by_name: by_name(&functions),
            functions,
            data,
            has_symbols,
            is_cut: is_cut || refused || is_exceeded || content.is_exceeded(),
            described: described(&frames, &layout.executable),
            header: contents.header,
            layout,
            slots: contents.slots,
            thread_segment: contents.thread_segment,
        })
    }

    /// Returns the file's properties.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the file's segments.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns all functions, ascending by address, each address once.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// Returns the disjoint, ascending link-time ranges of code with unwind information, or of all code if most has
    /// none. Code outside these ranges may belong to a runtime that walks its own stacks.
    pub fn described(&self) -> &[Range<u64>] {
        &self.described
    }

    /// Returns whether local functions have no names.
    pub fn is_stripped(&self) -> bool {
        !self.has_symbols
    }

    /// Returns whether something may be missing, because a file exceeds a limit.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns the smallest variable at a link-time address, and the offset into the variable. The name is mangled:
    /// see [`variable_name`](crate::variable_name).
    pub fn variable_at(&self, address: u64) -> Option<(&str, u64)> {
        let here = self
            .data
            .iter()
            .filter(|v| v.addresses().contains(&address));
        let found = here.min_by_key(|v| v.size)?;
        Some((&found.name, address - found.address))
    }

    /// Returns the link-time addresses of variables with this linker's or demangled name. Static variables may share
    /// a name.
    pub fn variables_named(&self, name: &str) -> Vec<u64> {
        let has_place = |v: &&Variable| !v.addresses().is_empty();
        let named = self.data_with_symbol(name).filter(has_place);
        let named: Vec<u64> = named.map(|v| v.address).collect();
        if !named.is_empty() {
            return named;
        }
        let wanted = squeeze(name);
        // A mangled name contains the last word of `name`.
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let word = wanted.rsplit(|c| !is_word(c)).next().unwrap_or_default();
        let may_be = |v: &&Variable| v.name.contains(word);
        let is_it = |v: &&Variable| {
            let found = variable_name(&v.name);
            found.is_some_and(|found| squeeze(&found) == wanted)
        };
        let all = self.data.iter().filter(has_place).filter(may_be);
        all.filter(is_it).map(|v| v.address).collect()
    }

    pub(crate) fn data_with_symbol(&self, name: &str) -> impl Iterator<Item = &Variable> {
        let first = self.data.partition_point(|v| *v.name < *name);
        self.data[first..]
            .iter()
            .take_while(move |v| *v.name == *name)
    }

    /// Returns each imported function's name, and the address of the word through which it is called.
    pub fn imports(&self) -> impl Iterator<Item = (&str, u64)> {
        self.slots.imports()
    }
}

fn by_name(functions: &[Function]) -> Vec<(u32, u32)> {
    let names_of = |(at, function): (usize, &Function)| {
        (0..function.names.len()).map(move |name| (at as u32, name as u32))
    };
    let mut index: Vec<(u32, u32)> = functions.iter().enumerate().flat_map(names_of).collect();
    index.sort_by_key(|&(at, name)| &functions[at as usize].names[name as usize]);
    index
}

/// Finds an image's separate debug file by build-id, or else by `.gnu_debuglink`. A linked file must have the build-id
/// or the link's check sum. Also returns whether a file was refused for its size.
pub(crate) fn debug_file(
    header: &Header,
    source: &dyn DebugSource,
) -> (Option<(PathBuf, Content)>, bool) {
    let mut refused = false;
    let build_id = header.build_id.as_deref();
    let same_id =
        |content: &Content| build_id.is_some() && elf::build_id(content).as_deref() == build_id;
    let by_id = debug::by_build_id(source, build_id.unwrap_or_default());
    let found = by_id.into_iter().find_map(|path| {
        let content = source.read(&path)?;
        same_id(&content).then_some((path, content))
    });
    let found = found.or_else(|| {
        let link = header.debug_link.as_ref()?;
        let own = source.image_path();
        let others = debug::by_link(source, link).into_iter();
        // The program itself has the build-id and may have the link's name, so the program must be excluded.
        let mut others = others.filter(|path| Some(&**path) != own);
        others.find_map(|path| {
            let content = source.read(&path)?;
            if !elf::has_debug(&content) {
                return None;
            }
            let same = same_id(&content) || debug::crc32(&content) == Some(link.crc);
            refused |= !same && content.is_exceeded();
            same.then_some((path, content))
        })
    });
    (found, refused)
}
