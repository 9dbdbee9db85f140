//! Counts how often each function was inlined: places that its probe misses.

use std::collections::HashMap;

use gimli::constants as dw;
use gimli::{
    Attribute, AttributeValue, DebugAddrBase, DebugLocListsBase, DebugRngListsBase,
    DebugStrOffsetsBase, Dwarf, Unit, UnitHeader,
};
use object::read::{Object as _, ObjectSection as _};

use crate::budget::ReadBudget;
use crate::content::Content;
use crate::debug::DebugSource;
use crate::elf;
use crate::image::Image;
use crate::inline::dwarf;
use crate::reader::SectionPart;
use crate::variable::Files;

/// The longest debug information searched, at 10 ns a byte, while users wait; and the longest tables of abbreviations,
/// which take ten times as much memory.
const MOST: u64 = 32 << 20;

/// The most units times the bytes of all abbreviation tables, because each unit may have its own, and all may
/// overlap.
const MOST_TABLES: u64 = 2 << 30;

/// The entry to which a function's copies refer: whether it is in the shared file, and its offset.
type AbstractOrigin = (bool, usize);

impl Image {
    /// Returns in how many places each function was inlined, by its link-time address. Empty without debug
    /// information, or with too much.
    pub fn inlined_places(&self, bytes: &Content, source: &dyn DebugSource) -> HashMap<u64, u32> {
        let mut found = InlineCounts::default();
        each_unit(bytes, source, |dwarf, unit, budget| {
            found.look_through(dwarf, unit, budget)
        });
        found.places()
    }
}

/// Calls `look` with each unit of a file's debug information; with none if there is too much. Damage ends its unit.
/// `look` must pay for each entry that it reads, and reads no more once the budget is exceeded.
pub(crate) fn each_unit(
    bytes: &Content,
    source: &dyn DebugSource,
    mut look: impl for<'d> FnMut(
        &Dwarf<SectionPart<'d>>,
        &Unit<SectionPart<'d>>,
        &ReadBudget,
    ) -> Result<(), gimli::Error>,
) {
    let files = Files::find(bytes, source);
    let described = files.described(bytes);
    let file = elf::parse(described);
    let size = |name: &str| Some(file.as_ref()?.section_by_name(name)?.size());
    let tables = size(".debug_abbrev").unwrap_or(0).max(1);
    let size_of_info = size(".debug_info").filter(|size| (*size).max(tables) <= MOST);
    let Some(size_of_info) = size_of_info else {
        return;
    };
    let budget = ReadBudget::new(size_of_info);
    let dwarf = dwarf(described, 0, None);
    let mut units = dwarf.units();
    for _ in 0..MOST_TABLES / tables {
        let Ok(Some(header)) = units.next() else {
            break;
        };
        if let Ok(Some(unit)) = open(&dwarf, header, &budget) {
            let _ = look(&dwarf, &unit, &budget);
        }
        if budget.is_exceeded() {
            break;
        }
    }
}

/// Reads a unit's first entry; returns `None` once the budget is exceeded. [`Dwarf::unit`] must not be used, because it
/// also reads the unit's names and the header of its line table, which are as long as the file says.
pub(crate) fn open<'d>(
    dwarf: &Dwarf<SectionPart<'d>>,
    header: UnitHeader<SectionPart<'d>>,
    budget: &ReadBudget,
) -> Result<Option<Unit<SectionPart<'d>>>, gimli::Error> {
    let abbreviations = dwarf.abbreviations(&header)?;
    let mut attributes = Vec::new();
    {
        let mut entries = header.entries_raw(&abbreviations, None)?;
        let Some(first) = entries.read_abbreviation()? else {
            return Ok(None);
        };
        if budget.pay_entry(first.attributes().len()).is_none() {
            return Ok(None);
        }
        entries.read_attributes(first.attributes(), &mut attributes)?;
    }
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
            _ => {}
        }
    }
    // The low address may be an index, so it must be decoded after the base is known.
    if let Some(low) = low {
        unit.low_pc = dwarf.attr_address(&unit, low)?.unwrap_or(0);
    }
    Ok(Some(unit))
}

#[derive(Default)]
struct InlineCounts {
    own: HashMap<AbstractOrigin, u64>,
    inlined: HashMap<AbstractOrigin, u32>,
}

impl InlineCounts {
    fn look_through<'d>(
        &mut self,
        dwarf: &Dwarf<SectionPart<'d>>,
        unit: &Unit<SectionPart<'d>>,
        budget: &ReadBudget,
    ) -> Result<(), gimli::Error> {
        let mut entries = unit.entries_raw(None)?;
        let mut attributes: Vec<Attribute<SectionPart<'d>>> = Vec::new();
        while !entries.is_empty() {
            let offset = entries.next_offset();
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            if budget.pay_entry(abbreviation.attributes().len()).is_none() {
                return Ok(());
            }
            let tag = abbreviation.tag();
            if !matches!(tag, dw::DW_TAG_subprogram | dw::DW_TAG_inlined_subroutine) {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            entries.read_attributes(abbreviation.attributes(), &mut attributes)?;
            let value = |name| {
                let found = attributes.iter().find(|attribute| attribute.name() == name);
                found.map(Attribute::value)
            };
            let origin = value(dw::DW_AT_abstract_origin).and_then(|at| referred(unit, &at));
            if tag == dw::DW_TAG_inlined_subroutine {
                if let Some(origin) = origin {
                    *self.inlined.entry(origin).or_default() += 1;
                }
                continue;
            }
            let itself = || Some((false, offset.to_debug_info_offset(&unit.header)?.0));
            if let (Some(origin), Some(start)) =
                (origin.or_else(itself), start(dwarf, unit, budget, value)?)
            {
                self.own.insert(origin, start);
            }
        }
        Ok(())
    }

    fn places(self) -> HashMap<u64, u32> {
        let count = |(origin, start)| Some((start, *self.inlined.get(&origin)?));
        self.own.into_iter().filter_map(count).collect()
    }
}

fn referred<'d>(
    unit: &Unit<SectionPart<'d>>,
    value: &AttributeValue<SectionPart<'d>>,
) -> Option<AbstractOrigin> {
    match value {
        AttributeValue::UnitRef(at) => Some((false, at.to_debug_info_offset(&unit.header)?.0)),
        AttributeValue::DebugInfoRef(at) => Some((false, at.0)),
        AttributeValue::DebugInfoRefSup(at) => Some((true, at.0)),
        _ => None,
    }
}

/// Returns where a function's own code starts, if it has any.
pub(crate) fn start<'d>(
    dwarf: &Dwarf<SectionPart<'d>>,
    unit: &Unit<SectionPart<'d>>,
    budget: &ReadBudget,
    value: impl Fn(gimli::DwAt) -> Option<AttributeValue<SectionPart<'d>>>,
) -> Result<Option<u64>, gimli::Error> {
    for name in [dw::DW_AT_entry_pc, dw::DW_AT_low_pc] {
        if let Some(value) = value(name) {
            return dwarf.attr_address(unit, value);
        }
    }
    let Some(ranges) = value(dw::DW_AT_ranges) else {
        return Ok(None);
    };
    let Some(mut ranges) = dwarf.attr_ranges(unit, ranges)? else {
        return Ok(None);
    };
    // Many functions may refer to one list, and any number of its entries may be empty.
    while budget.pay(1).is_some()
        && let Some(raw) = ranges.next_raw()?
    {
        if let Some(range) = ranges.convert_raw(raw)? {
            return Ok(Some(range.begin));
        }
    }
    Ok(None)
}
