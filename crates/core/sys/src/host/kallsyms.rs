//! The kernel's symbols, from `/proc/kallsyms`.

use std::prelude::rust_2024::*;

use super::error::{Result, read_text};

/// Functions and data of the kernel, its modules and BPF programs.
#[derive(Clone, Debug, Default)]
pub struct KernelSymbols {
    /// Ascending by address.
    symbols: Vec<(u64, Box<str>)>,
}

/// A symbol, and an offset from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SymbolOffset<'a> {
    /// The name; in a module `name [module]`.
    pub name: &'a str,
    /// The offset in bytes.
    pub offset: u64,
}

impl KernelSymbols {
    /// Reads all symbols, which takes 100 ms.
    pub fn read() -> Result<Self> {
        Ok(Self::parse(&read_text("/proc/kallsyms")?))
    }

    /// Parses a list of symbols.
    pub fn parse(text: &str) -> Self {
        let mut symbols: Vec<(u64, Box<str>)> = text.lines().filter_map(symbol).collect();
        symbols.sort_by_key(|(address, _)| *address);
        Self { symbols }
    }

    /// Returns whether addresses are hidden (`kernel.kptr_restrict`, or a missing right).
    pub fn is_hidden(&self) -> bool {
        self.symbols.is_empty()
    }

    /// Returns the last symbol at or before an address.
    pub fn find(&self, address: u64) -> Option<SymbolOffset<'_>> {
        let count = self.symbols.partition_point(|(start, _)| *start <= address);
        let start = self.symbols.get(count.checked_sub(1)?)?.0;
        // If an address has several names, the kernel uses the first.
        let first = self.symbols.partition_point(|(at, _)| *at < start);
        let (start, name) = &self.symbols[first];
        Some(SymbolOffset {
            name,
            offset: address - start,
        })
    }

    /// Returns a symbol's address.
    pub fn address_of(&self, name: &str) -> Option<u64> {
        let mut symbols = self.symbols.iter();
        let (address, _) = symbols.find(|(_, symbol)| **symbol == *name)?;
        Some(*address)
    }
}

fn symbol(line: &str) -> Option<(u64, Box<str>)> {
    let (address, rest) = line.split_once(' ')?;
    let (_, name) = rest.split_once(' ')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let name: Box<str> = match name.split_once('\t') {
        None => name.into(),
        Some((name, module)) => std::format!("{name} {module}").into(),
    };
    (address != 0).then_some((address, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_symbol_before_it() {
        let symbols = KernelSymbols::parse(
            "ffffffff81000100 T down_read\nffffffff81000100 t alias\nffffffff81000000 T _text\n\
             ffffffffc0000000 t f\t[kvm]\n",
        );
        let check = |address, name, offset| {
            assert_eq!(symbols.find(address), Some(SymbolOffset { name, offset }));
        };
        check(0xffff_ffff_8100_0001, "_text", 1);
        check(0xffff_ffff_8100_0100, "down_read", 0);
        check(0xffff_ffff_c000_0010, "f [kvm]", 0x10);
        assert_eq!(symbols.find(0xffff_ffff_8000_0000), None);
        assert_eq!(symbols.address_of("_text"), Some(0xffff_ffff_8100_0000));
        assert_eq!(symbols.address_of("text"), None);
    }

    #[test]
    fn hidden_addresses_are_no_symbols() {
        let symbols = KernelSymbols::parse("0000000000000000 T _text\n0000000000000000 T f\n");
        assert!(symbols.is_hidden());
        assert_eq!(symbols.find(1), None);
    }
}
