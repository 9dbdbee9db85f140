//! Finds where each function was inlined: places that its probe misses.

use std::collections::HashMap;

use gimli::constants as dw;
use gimli::{
    Attribute, AttributeValue, DebugAddrBase, DebugLocListsBase, DebugRngListsBase,
    DebugStrOffsetsBase, Dwarf, Reader, Unit, UnitHeader,
};
use object::read::{Object as _, ObjectSection as _};

use crate::budget::ReadBudget;
use crate::content::Content;
use crate::debug::DebugSource;
use crate::demangle::demangle;
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

/// The most functions that are kept of those into which one was inlined.
const MOST_NAMED: usize = 8;

/// Where the compiler inlined a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InlinedPlaces {
    /// The number of places.
    pub count: u32,
    /// The link-time addresses of the first functions that contain the places.
    pub within: Vec<u64>,
}

/// The entry to which a function's copies refer: whether it is in the shared file, and its offset.
type AbstractOrigin = (bool, usize);

impl Image {
    /// Returns the places where each function was inlined, by the function's link-time address. Empty without debug
    /// information, or with too much.
    pub fn inlined_places(
        &self,
        bytes: &Content,
        source: &dyn DebugSource,
    ) -> HashMap<u64, InlinedPlaces> {
        InlineSearch::run(bytes, source, None).of_functions()
    }

    /// Returns the places where functions of this name, which have no code of their own, were inlined. `None` if there is
    /// no such place, without debug information, or with too much.
    pub fn inlined_everywhere(
        &self,
        name: &str,
        bytes: &Content,
        source: &dyn DebugSource,
    ) -> Option<InlinedPlaces> {
        InlineSearch::run(bytes, source, Some(name)).of_named()
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
            (_, AttributeValue::DebugStrOffsetsBase(base)) => unit.str_offsets_base = base,
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
struct InlineSearch<'n> {
    own: HashMap<AbstractOrigin, u64>,
    inlined: HashMap<AbstractOrigin, InlinedPlaces>,
    /// The name to look for, and the entries that have it.
    name: Option<&'n str>,
    named: Vec<AbstractOrigin>,
}

impl InlineSearch<'_> {
    fn run<'n>(
        bytes: &Content,
        source: &dyn DebugSource,
        name: Option<&'n str>,
    ) -> InlineSearch<'n> {
        let mut search = InlineSearch {
            name,
            ..InlineSearch::default()
        };
        each_unit(bytes, source, |dwarf, unit, budget| {
            search.look_through(dwarf, unit, budget)
        });
        search
    }

    fn look_through<'d>(
        &mut self,
        dwarf: &Dwarf<SectionPart<'d>>,
        unit: &Unit<SectionPart<'d>>,
        budget: &ReadBudget,
    ) -> Result<(), gimli::Error> {
        let mut entries = unit.entries_raw(None)?;
        let mut attributes: Vec<Attribute<SectionPart<'d>>> = Vec::new();
        let mut enclosing = None;
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
                    self.inlined.entry(origin).or_default().add(enclosing);
                }
                continue;
            }
            let itself = || Some((false, offset.to_debug_info_offset(&unit.header)?.0));
            enclosing = start(dwarf, unit, budget, value)?;
            let Some(origin) = origin.or_else(itself) else {
                continue;
            };
            match enclosing {
                Some(start) => drop(self.own.insert(origin, start)),
                None if self.is_named(dwarf, unit, budget, value) => self.named.push(origin),
                None => {}
            }
        }
        Ok(())
    }

    /// Returns whether a function's entry has the name: as the source has it, or its linker name, demangled or not.
    fn is_named<'d>(
        &self,
        dwarf: &Dwarf<SectionPart<'d>>,
        unit: &Unit<SectionPart<'d>>,
        budget: &ReadBudget,
        value: impl Fn(gimli::DwAt) -> Option<AttributeValue<SectionPart<'d>>>,
    ) -> bool {
        let Some(wanted) = self.name else {
            return false;
        };
        let names = [dw::DW_AT_name, dw::DW_AT_linkage_name].into_iter();
        let mut names = names.filter_map(|name| {
            let text = dwarf.attr_string(unit, value(name)?).ok()?;
            budget.pay_bytes(text.len())?;
            Some(text.to_string_lossy().ok()?.into_owned())
        });
        names.any(|name| name == wanted || demangle(&name).is_some_and(|it| it.bare == wanted))
    }

    fn of_functions(mut self) -> HashMap<u64, InlinedPlaces> {
        let places = |(origin, start)| Some((start, self.inlined.remove(&origin)?));
        self.own.into_iter().filter_map(places).collect()
    }

    fn of_named(mut self) -> Option<InlinedPlaces> {
        let named = self.named.iter();
        let without_code = named.filter(|origin| !self.own.contains_key(origin));
        let places = without_code.filter_map(|origin| self.inlined.remove(origin));
        places.reduce(|mut all, more| {
            all.count = all.count.saturating_add(more.count);
            let within = more.within.into_iter();
            let new: Vec<u64> = within.filter(|start| !all.within.contains(start)).collect();
            all.within.extend(new);
            all.within.truncate(MOST_NAMED);
            all
        })
    }
}

impl InlinedPlaces {
    /// Adds a place inside the function that starts there.
    fn add(&mut self, function: Option<u64>) {
        self.count = self.count.saturating_add(1);
        let new = function.filter(|start| !self.within.contains(start));
        let has_room = self.within.len() < MOST_NAMED;
        self.within.extend(new.filter(|_| has_room));
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
