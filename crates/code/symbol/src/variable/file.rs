//! The units of one file, and the defaults in each unit's first entry. A table of abbreviations is cut where the next
//! table begins; otherwise overlapping tables would be read over and over.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use gimli::constants as dw;
use gimli::{
    Abbreviations, Attribute, AttributeValue, DebugAbbrev, DebugAbbrevOffset, DebugInfo,
    DebugTypes, EndianSlice, Format, LittleEndian, UnitHeader, UnitType,
};

use super::sections::Sections;
use crate::budget::ReadBudget;
use crate::entries::first_attributes;

pub(super) type Slice<'d> = EndianSlice<'d, LittleEndian>;
pub(super) type Value<'d> = AttributeValue<Slice<'d>>;

pub(crate) const MAX_UNITS: usize = 500_000;

/// Kept tables are dropped once they have more than this many bytes in the file. In memory they are ten times as
/// long.
const MOST_KEPT: usize = 4 << 20;
/// How often kept tables are dropped. Afterwards all tables are kept; otherwise units that alternate between tables
/// would read them over and over.
const MOST_DROPS: u32 = 1 << 10;

/// The entries of one compiler run, or a part that several runs share.
pub(super) struct Unit<'d> {
    pub(super) header: UnitHeader<Slice<'d>>,
    pub(super) root: OnceCell<Option<RootEntry<'d>>>,
}

pub(super) struct RootEntry<'d> {
    pub(super) name: Option<Value<'d>>,
    pub(super) string_offsets: Option<usize>,
    pub(super) addresses: Option<usize>,
    pub(super) is_skeleton: bool,
}

/// The units of a file; those of `.debug_types` are last.
pub(super) struct FileUnits<'d> {
    pub(super) sections: &'d Sections<'d>,
    pub(super) units: Vec<Unit<'d>>,
    pub(super) in_info: usize,
    /// Where tables start, ascending.
    tables: Vec<usize>,
    abbreviations: RefCell<HashMap<usize, Option<Rc<Abbreviations>>>>,
    /// The bytes of kept tables, and how often tables may still be dropped.
    kept: Cell<(usize, u32)>,
}

impl<'d> FileUnits<'d> {
    pub(super) fn new(sections: &'d Sections<'d>) -> FileUnits<'d> {
        let mut info = DebugInfo::new(&sections.info, LittleEndian).units();
        let mut types = DebugTypes::new(&sections.types, LittleEndian).units();
        let info = std::iter::from_fn(|| info.next().ok()?).take(MAX_UNITS);
        let types = std::iter::from_fn(|| types.next().ok()?);
        let mut headers: Vec<UnitHeader<Slice<'d>>> = info.collect();
        let in_info = headers.len();
        headers.extend(types.take(MAX_UNITS - in_info));
        let table = |header: &UnitHeader<Slice>| header.debug_abbrev_offset().0;
        let mut tables: Vec<usize> = headers.iter().map(table).collect();
        tables.sort_unstable();
        tables.dedup();
        let unit = |header| Unit {
            header,
            root: OnceCell::new(),
        };
        FileUnits {
            sections,
            units: headers.into_iter().map(unit).collect(),
            in_info,
            tables,
            abbreviations: RefCell::default(),
            kept: Cell::new((0, MOST_DROPS)),
        }
    }

    pub(super) fn root(
        &self,
        header: &UnitHeader<Slice<'d>>,
        budget: &ReadBudget,
    ) -> Option<RootEntry<'d>> {
        let abbreviations = self.abbreviations(header.debug_abbrev_offset().0)?;
        let attributes = first_attributes(header, &abbreviations, budget).ok()??;
        let value = |name| {
            let mut attributes = attributes.iter();
            attributes
                .find(|a: &&Attribute<_>| a.name() == name)
                .map(Attribute::value)
        };
        let base = |name| {
            value(name).and_then(|value| match value {
                AttributeValue::DebugStrOffsetsBase(base) => Some(base.0),
                AttributeValue::DebugAddrBase(base) => Some(base.0),
                AttributeValue::SecOffset(base) => Some(base),
                _ => None,
            })
        };
        let is_skeleton = matches!(header.type_(), UnitType::Skeleton(_))
            || value(dw::DW_AT_GNU_dwo_name).is_some();
        Some(RootEntry {
            name: value(dw::DW_AT_name),
            string_offsets: base(dw::DW_AT_str_offsets_base),
            addresses: base(dw::DW_AT_addr_base).or_else(|| base(dw::DW_AT_GNU_addr_base)),
            is_skeleton,
        })
    }

    pub(super) fn abbreviations(&self, start: usize) -> Option<Rc<Abbreviations>> {
        if let Some(known) = self.abbreviations.borrow().get(&start) {
            return known.clone();
        }
        let next = self
            .tables
            .get(self.tables.partition_point(|&table| table <= start));
        let end = next.map_or(self.sections.abbrev.len(), |&next| next);
        let section = self
            .sections
            .abbrev
            .get(start..end.min(self.sections.abbrev.len()));
        let read = section.and_then(|section| {
            let section = DebugAbbrev::new(section, LittleEndian);
            section
                .abbreviations(DebugAbbrevOffset(0))
                .ok()
                .map(Rc::new)
        });
        let mut tables = self.abbreviations.borrow_mut();
        let (mut bytes, mut drops) = self.kept.get();
        bytes += section.map_or(0, <[u8]>::len);
        if bytes > MOST_KEPT && drops > 0 {
            tables.clear();
            (bytes, drops) = (0, drops - 1);
        }
        self.kept.set((bytes, drops));
        tables.insert(start, read.clone());
        read
    }
}

pub(super) fn slice(bytes: &[u8]) -> Slice<'_> {
    EndianSlice::new(bytes, LittleEndian)
}

/// Returns a header's length, which is the default base in `.debug_str_offsets` and `.debug_addr`.
pub(super) fn header_length(format: Format) -> usize {
    match format {
        Format::Dwarf32 => 8,
        Format::Dwarf64 => 16,
    }
}
