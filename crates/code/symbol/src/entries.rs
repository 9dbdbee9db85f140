//! Reads the entries of debug information, unit by unit, up to a budget.

use gimli::constants as dw;
use gimli::{
    Abbreviations, Attribute, AttributeSpecification, AttributeValue, DebugAddrBase,
    DebugLocListsBase, DebugRngListsBase, DebugStrOffsetsBase, DwAt, DwTag, Dwarf, EntriesRaw,
    Unit, UnitHeader, UnitOffset,
};
use object::read::{Object as _, ObjectSection as _};

use crate::budget::ReadBudget;
use crate::content::Content;
use crate::debug::DebugSource;
use crate::dwarf::dwarf;
use crate::elf;
use crate::error::BudgetExceeded;
use crate::reader::SectionPart;
use crate::variable::Files;

/// The most bytes of a section read while users wait. A byte of `.debug_info` takes 10 ns to read, and a byte of
/// `.debug_abbrev` takes ten bytes of memory.
const MOST: u64 = 32 << 20;

/// The limit of units times bytes of abbreviation tables. Each unit may have its own table, and tables may overlap.
const MOST_TABLES: u64 = 2 << 30;

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) enum Unread {
    Damaged(#[from] gimli::Error),
    Exceeded(#[from] BudgetExceeded),
}

/// Calls `look` with each unit's entries, up to the unit's first damage. Fails, perhaps after some units, if there is
/// more debug information than can be read while users wait.
pub(crate) fn each_unit(
    bytes: &Content,
    source: &dyn DebugSource,
    mut look: impl FnMut(&mut Entries<'_, '_>) -> Result<(), Unread>,
) -> Result<(), BudgetExceeded> {
    let files = Files::find(bytes, source);
    let described = files.described(bytes);
    let file = elf::parse(described);
    let size = |name: &str| Some(file.as_ref()?.section_by_name(name)?.size());
    let Some(size_of_info) = size(".debug_info") else {
        return Ok(());
    };
    let tables = size(".debug_abbrev").unwrap_or(0).max(1);
    if size_of_info.max(tables) > MOST {
        return Err(BudgetExceeded);
    }
    let budget = ReadBudget::new(size_of_info);
    let dwarf = dwarf(described, 0, None);
    let mut units = dwarf.units();
    for _ in 0..MOST_TABLES / tables {
        let Ok(Some(header)) = units.next() else {
            return Ok(());
        };
        let looked = open(&dwarf, header, &budget).and_then(|unit| match &unit {
            Some(unit) => look(&mut Entries {
                dwarf: &dwarf,
                unit,
                budget: &budget,
                raw: unit.entries_raw(None)?,
                unread: &[],
                attributes: Vec::new(),
            }),
            None => Ok(()),
        });
        if let Err(Unread::Exceeded(error)) = looked {
            return Err(error);
        }
    }
    Err(BudgetExceeded)
}

/// Reads a unit's first entry. [`Dwarf::unit`] would also read names and a line table's header, whose length only the
/// file limits.
pub(crate) fn open<'d>(
    dwarf: &Dwarf<SectionPart<'d>>,
    header: UnitHeader<SectionPart<'d>>,
    budget: &ReadBudget,
) -> Result<Option<Unit<SectionPart<'d>>>, Unread> {
    let abbreviations = dwarf.abbreviations(&header)?;
    let Some(attributes) = first_attributes(&header, &abbreviations, budget)? else {
        return Ok(None);
    };
    let mut unit = Unit {
        header,
        abbreviations,
        name: None,
        comp_dir: None,
        low_pc: 0,
        str_offsets_base: DebugStrOffsetsBase(0),
        addr_base: DebugAddrBase(0),
        loclists_base: DebugLocListsBase(0),
        rnglists_base: DebugRngListsBase(0),
        line_program: None,
        dwo_id: None,
    };
    let mut low = None;
    for attribute in &attributes {
        match (attribute.name(), attribute.value()) {
            (dw::DW_AT_low_pc, value) => low = Some(value),
            (_, AttributeValue::DebugAddrBase(base)) => unit.addr_base = base,
            (_, AttributeValue::DebugRngListsBase(base)) => unit.rnglists_base = base,
            (_, AttributeValue::DebugStrOffsetsBase(base)) => unit.str_offsets_base = base,
            _ => {}
        }
    }
    // The low address may be an index into `.debug_addr`, so that section's base must be known first.
    if let Some(low) = low {
        unit.low_pc = dwarf.attr_address(&unit, low)?.unwrap_or(0);
    }
    Ok(Some(unit))
}

pub(crate) fn first_attributes<R: gimli::Reader<Offset = usize>>(
    header: &UnitHeader<R>,
    abbreviations: &Abbreviations,
    budget: &ReadBudget,
) -> Result<Option<Vec<Attribute<R>>>, Unread> {
    let mut entries = header.entries_raw(abbreviations, None)?;
    let Some(first) = entries.read_abbreviation()? else {
        return Ok(None);
    };
    budget.pay_entry(first.attributes().len())?;
    let mut attributes = Vec::new();
    entries.read_attributes(first.attributes(), &mut attributes)?;
    Ok(Some(attributes))
}

pub(crate) struct Entries<'a, 'd> {
    pub(crate) dwarf: &'a Dwarf<SectionPart<'d>>,
    pub(crate) unit: &'a Unit<SectionPart<'d>>,
    pub(crate) budget: &'a ReadBudget,
    raw: EntriesRaw<'a, SectionPart<'d>>,
    /// The last entry's attributes, if they are not read yet.
    unread: &'a [AttributeSpecification],
    attributes: Vec<Attribute<SectionPart<'d>>>,
}

pub(crate) struct Entry {
    pub(crate) offset: UnitOffset,
    pub(crate) depth: isize,
    pub(crate) tag: DwTag,
}

impl<'d> Entries<'_, 'd> {
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, Unread> {
        self.raw.skip_attributes(std::mem::take(&mut self.unread))?;
        while !self.raw.is_empty() {
            let (offset, depth) = (self.raw.next_offset(), self.raw.next_depth());
            let Some(kind) = self.raw.read_abbreviation()? else {
                continue;
            };
            self.unread = kind.attributes();
            self.budget.pay_entry(self.unread.len())?;
            let tag = kind.tag();
            return Ok(Some(Entry { offset, depth, tag }));
        }
        Ok(None)
    }

    pub(crate) fn read(&mut self) -> Result<(), Unread> {
        let unread = std::mem::take(&mut self.unread);
        Ok(self.raw.read_attributes(unread, &mut self.attributes)?)
    }

    pub(crate) fn value(&self, name: DwAt) -> Option<AttributeValue<SectionPart<'d>>> {
        let mut attributes = self.attributes.iter();
        let found = attributes.find(|attribute| attribute.name() == name);
        found.map(Attribute::value)
    }

    /// Returns where the code of the last entry's function starts; `None` if the function has no code of its own.
    pub(crate) fn start(&self) -> Result<Option<u64>, Unread> {
        for name in [dw::DW_AT_entry_pc, dw::DW_AT_low_pc] {
            if let Some(value) = self.value(name) {
                return Ok(self.dwarf.attr_address(self.unit, value)?);
            }
        }
        let Some(ranges) = self.value(dw::DW_AT_ranges) else {
            return Ok(None);
        };
        let Some(mut ranges) = self.dwarf.attr_ranges(self.unit, ranges)? else {
            return Ok(None);
        };
        // Each step pays from the budget, because many functions may share a list with any number of empty entries.
        loop {
            self.budget.pay(1)?;
            let Some(raw) = ranges.next_raw()? else {
                return Ok(None);
            };
            if let Some(range) = ranges.convert_raw(raw)? {
                return Ok(Some(range.begin));
            }
        }
    }
}
