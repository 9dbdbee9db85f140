//! The symbol tables: names and their addresses.

use std::ops::Range;

use object::Endianness;
use object::elf;
use object::read::SymbolIndex;
use object::read::elf::{SectionHeader as _, Sym, SymbolTable};

use crate::content::Content;
use crate::dynamic::Dynamic;
use crate::elf_file::{Elf, File, is_code};
use crate::layout::Layout;

const MAX_NAME: usize = 16 << 10;
const MAX_NAMES: usize = 192 << 20;
const MAX_SYMBOLS: usize = 2_000_000;

pub(crate) struct Symbol<'d> {
    /// The name without its version; `None` if the name is empty, too long, or not UTF-8.
    pub(crate) name: Option<&'d str>,
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) is_local: bool,
    pub(crate) is_ifunc: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: Box<str>,
    /// The link-time address, or the offset in a thread's block.
    pub(crate) address: u64,
    pub(crate) is_thread_local: bool,
    pub(crate) size: u64,
}

impl Variable {
    pub(crate) fn addresses(&self) -> Range<u64> {
        match self.is_thread_local {
            true => 0..0,
            false => self.address..self.address.saturating_add(self.size),
        }
    }
}

#[derive(Default)]
pub(crate) struct Symbols<'d> {
    pub(crate) functions: Vec<Symbol<'d>>,
    pub(crate) data: Vec<Variable>,
    pub(crate) was_cut: bool,
}

/// Names with a budget. Without the budget, many symbols with parts of one long name would take more memory than the
/// file.
pub(crate) struct Strings<'d> {
    bytes: &'d [u8],
    budget: usize,
}

impl<'d> Strings<'d> {
    pub(crate) fn of<E: Elf>(
        file: &File<'d, E>,
        table: &SymbolTable<'d, E, &'d Content>,
        bytes: &'d Content,
    ) -> Strings<'d> {
        let section = file.elf_section_table().section(table.string_section());
        let strings = section
            .and_then(|s| s.data(file.endian(), bytes))
            .unwrap_or_default();
        Strings::new(strings)
    }

    pub(crate) fn new(bytes: &'d [u8]) -> Strings<'d> {
        Strings {
            bytes,
            budget: (bytes.len().saturating_mul(4) + (64 << 10)).min(MAX_NAMES),
        }
    }

    pub(crate) fn get(&mut self, offset: u32) -> Option<&'d str> {
        let rest = self.bytes.get(offset as usize..)?;
        let window = &rest[..rest.len().min(MAX_NAME).min(self.budget)];
        let end = window.iter().position(|&byte| byte == 0);
        self.budget -= end.unwrap_or(window.len());
        let name = std::str::from_utf8(&window[..end?]).ok()?;
        let bare = name.find('@').map_or(name, |at| &name[..at]);
        (!bare.is_empty()).then_some(bare)
    }
}

pub(crate) fn symbols<'d, E: Elf>(
    file: &File<'d, E>,
    table: &SymbolTable<'d, E, &'d Content>,
    bytes: &'d Content,
) -> Symbols<'d> {
    let is_in_code = |index, symbol: &E::Sym| {
        let section = table.symbol_section(file.endian(), symbol, index);
        let section = section.ok().flatten();
        section.is_some_and(|section| is_code(file, section))
    };
    let strings = Strings::of(file, table, bytes);
    collect::<E>(table.enumerate(), strings, file.endian(), is_in_code)
}

pub(crate) fn loaded_symbols<'d, E: Elf>(
    loaded: &Dynamic<'d, E>,
    layout: &Layout,
    endian: Endianness,
) -> Symbols<'d> {
    let is_in_code = |_, symbol: &E::Sym| {
        let address = symbol.st_value(endian).into();
        layout.executable_segment(address).is_some()
    };
    let symbols = (0..).map(SymbolIndex).zip(loaded.symbols);
    let strings = Strings::new(loaded.strings);
    collect::<E>(symbols, strings, endian, is_in_code)
}

fn collect<'d, E: Elf>(
    symbols: impl Iterator<Item = (SymbolIndex, &'d E::Sym)>,
    mut strings: Strings<'d>,
    endian: Endianness,
    is_in_code: impl Fn(SymbolIndex, &E::Sym) -> bool,
) -> Symbols<'d> {
    let mut found = Symbols::default();
    for (index, symbol) in symbols {
        if symbol.st_shndx(endian) == elf::SHN_UNDEF {
            continue;
        }
        if found.functions.len() + found.data.len() == MAX_SYMBOLS {
            found.was_cut = true;
            break;
        }
        let named = |strings: &mut Strings<'d>| strings.get(symbol.st_name(endian));
        match symbol.st_type() {
            kind @ (elf::STT_OBJECT | elf::STT_COMMON | elf::STT_TLS) => {
                let address = symbol.st_value(endian).into();
                found.data.extend(named(&mut strings).map(|name| Variable {
                    name: name.into(),
                    address,
                    size: symbol.st_size(endian).into(),
                    is_thread_local: kind == elf::STT_TLS,
                }));
            }
            kind if is_function::<E>(symbol, || is_in_code(index, symbol)) => {
                found.functions.push(Symbol {
                    name: named(&mut strings),
                    address: symbol.st_value(endian).into(),
                    size: symbol.st_size(endian).into(),
                    is_local: symbol.st_bind() == elf::STB_LOCAL,
                    is_ifunc: kind == elf::STT_GNU_IFUNC,
                })
            }
            _ => {}
        }
    }
    found
}

/// A global label in code, as in hand-written assembly, is a function, too.
fn is_function<E: Elf>(symbol: &E::Sym, is_in_code: impl Fn() -> bool) -> bool {
    match symbol.st_type() {
        elf::STT_FUNC | elf::STT_GNU_IFUNC => true,
        elf::STT_NOTYPE => symbol.st_bind() != elf::STB_LOCAL && is_in_code(),
        _ => false,
    }
}
