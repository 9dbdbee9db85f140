//! The file in memory: segments, executable ranges, addresses.

use std::ops::Range;

use crate::function::{Function, Kind, Source};

/// A loadable segment (`PT_LOAD`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its link-time address.
    pub address: u64,
    /// Its size in memory.
    pub memory_size: u64,
    /// Its offset in the file.
    pub offset: u64,
    /// Its size in the file; the rest is zeros.
    pub file_size: u64,
    /// Whether it is executable.
    pub is_executable: bool,
    /// Whether it is writable.
    pub is_writable: bool,
}

/// An image's segments and code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The loadable segments, in the program headers' order.
    pub segments: Vec<Segment>,
    /// Link-time addresses of code, ascending: executable sections, or segments if there are no such sections.
    pub executable: Vec<Range<u64>>,
    /// Link-time addresses of procedure linkage tables.
    pub plt: Vec<Range<u64>>,
}

impl Layout {
    /// Translates a link-time address to a file offset, if the file has the address.
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        self.segments.iter().find_map(|s| s.offset_of(address))
    }

    /// Returns whether a loaded file has memory at a link-time address, zeros included.
    pub fn has_memory(&self, address: u64) -> bool {
        let holds = |s: &Segment| {
            address
                .checked_sub(s.address)
                .is_some_and(|within| within < s.memory_size)
        };
        self.segments.iter().any(holds)
    }

    /// Translates a file offset to a link-time address, preferably of code.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let at = |executable| {
            let mut segments = self
                .segments
                .iter()
                .filter(move |s| s.is_executable == executable);
            segments.find_map(|s| s.address_of(offset))
        };
        at(true).or_else(|| at(false))
    }

    /// Returns the executable segment whose bytes in the file include this address.
    pub fn executable_segment(&self, address: u64) -> Option<&Segment> {
        self.segments
            .iter()
            .find(|s| s.is_executable && s.offset_of(address).is_some())
    }

    /// Returns whether an address is in a procedure linkage table.
    pub fn in_plt(&self, address: u64) -> bool {
        self.plt.iter().any(|range| range.contains(&address))
    }

    pub(crate) fn function(&self, address: u64, source: Source) -> Option<Function> {
        Some(Function {
            address,
            offset_in_file: self.executable_segment(address)?.offset_of(address)?,
            size: 0,
            names: Vec::new(),
            is_ifunc: false,
            is_cold: false,
            is_unwinder: false,
            is_outermost: false,
            source,
            kind: match self.in_plt(address) {
                true => Kind::Plt,
                false => Kind::Plain,
            },
        })
    }
}

impl Segment {
    /// Translates as [`Layout::offset_of`], in this segment.
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        let within = address.checked_sub(self.address)?;
        (within < self.file_size).then(|| self.offset.checked_add(within))?
    }

    /// Translates as [`Layout::address_of`], in this segment.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let within = offset.checked_sub(self.offset)?;
        (within < self.file_size).then(|| self.address.checked_add(within))?
    }

    pub(crate) fn file_end(&self) -> u64 {
        self.address.saturating_add(self.file_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        let data = Segment {
            address: 0x3000,
            memory_size: 0x2000,
            offset: 0x1000,
            file_size: 0x800,
            is_executable: false,
            is_writable: true,
        };
        let code = Segment {
            address: 0x1000,
            offset: 0x1000,
            is_executable: true,
            ..data
        };
        Layout {
            segments: vec![data, code],
            ..Layout::default()
        }
    }

    #[test]
    fn translates_both_ways_and_not_beyond_the_file() {
        let layout = layout();
        assert_eq!(layout.offset_of(0x3010), Some(0x1010));
        assert_eq!(layout.offset_of(0x3800), None);
        assert_eq!(layout.offset_of(0xfff), None);
        assert_eq!(layout.address_of(0x1010), Some(0x1010), "code before data");
        assert_eq!(layout.address_of(0x2000), None);
        assert!(layout.executable_segment(0x3010).is_none());
    }
}
