//! Finds the inlined functions and the source line of an instruction. addr2line reads the debug information, which
//! may be hostile, so a [`ReadBudget`] limits its reads. Attributes without bytes and deeply nested inlined functions
//! cost time and stack but no reads. So their numbers are checked before addr2line starts.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use addr2line::Context;
use gimli::constants as dw;
use gimli::{DebugAbbrevOffset, DebugAranges, Dwarf, Reader as _, Section as _, UnitHeader};

use crate::budget::ReadBudget;
use crate::content::Content;
use crate::debug::DebugSource;
use crate::demangle::shown;
use crate::dwarf::dwarf;
use crate::entries::{Unread, open};
use crate::error::BudgetExceeded;
use crate::image::Image;
use crate::reader::{Section, SectionPart};
use crate::variable::{Files, MAX_UNITS};

/// An instruction in more nested inlined functions gets no origin.
const MOST: usize = 32;
/// Lookups fail if more inlined functions are nested.
const MOST_NESTED: usize = 512;
/// The most attributes of an entry; compilers write fewer than 40.
const MOST_ATTRIBUTES: usize = 256;
/// The first number of the sections of a shared (supplementary) file.
const SHARED: u16 = 1 << 10;
/// The number of the empty section that replaces `.debug_aranges`.
const NO_ARANGES: u16 = 1 << 11;

/// The source of an instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The functions inlined there, innermost first.
    pub inlined: Vec<String>,
    /// The source file, without folders, and the line.
    pub line: Option<(String, u32)>,
}

/// An image's debug information, for lookups of instructions.
pub struct Origins<'d> {
    /// `None` if the debug information is missing or damaged.
    debug: Option<DebugData<'d>>,
    budget: Rc<ReadBudget>,
    is_exceeded: Cell<bool>,
}

struct DebugData<'d> {
    context: Context<SectionPart<'d>>,
    dwarf: Arc<Dwarf<SectionPart<'d>>>,
    units: Vec<UnitExtent<'d>>,
    /// Indexes of checked units, which addr2line may read.
    checked: RefCell<HashSet<usize>>,
}

struct UnitExtent<'d> {
    header: UnitHeader<SectionPart<'d>>,
    /// The unit's addresses; empty if the unit does not state any.
    ranges: Vec<Range<u64>>,
}

impl Image {
    /// Passes the image's origins to `ask`; `bytes` must be the image's content. Decoded data is kept until `ask`
    /// returns.
    pub fn origins<R>(
        &self,
        bytes: &Content,
        source: &dyn DebugSource,
        ask: impl FnOnce(&Origins<'_>) -> R,
    ) -> R {
        let files = Files::find(bytes, source);
        let budget = Rc::new(ReadBudget::new(0));
        let mut dwarf = dwarf(files.described(bytes), 0, Some(&budget));
        if let Some(shared) = files.shared() {
            dwarf.set_sup(crate::dwarf::dwarf(shared, SHARED, Some(&budget)));
        }
        budget.refill();
        let debug = DebugData::read(dwarf, &budget);
        let is_exceeded = Cell::new(budget.is_exceeded());
        ask(&Origins {
            debug,
            budget,
            is_exceeded,
        })
    }
}

impl Origins<'_> {
    /// Returns an instruction's origin by link-time address, empty if unknown. Fails if this lookup or an earlier
    /// lookup took too many reads.
    pub fn of(&self, address: u64) -> Result<Origin, BudgetExceeded> {
        // Later lookups must fail, because addr2line would answer from the part of a unit that it has read.
        if self.is_exceeded.get() {
            return Err(BudgetExceeded);
        }
        self.budget.refill();
        let origin = self.debug.as_ref().and_then(|debug| {
            debug.check_units_at(address, &self.budget)?;
            debug.find(address)
        });
        self.is_exceeded.set(self.budget.is_exceeded());
        match self.is_exceeded.get() {
            true => Err(BudgetExceeded),
            false => Ok(origin.unwrap_or_default()),
        }
    }
}

impl<'d> DebugData<'d> {
    fn read(mut dwarf: Dwarf<SectionPart<'d>>, budget: &ReadBudget) -> Option<DebugData<'d>> {
        // Without `.debug_aranges`, addr2line finds units by their own ranges, as `check_units_at` does.
        // `.debug_aranges` may contradict those ranges.
        dwarf.debug_aranges = DebugAranges::from(SectionPart::all(Section::default(), NO_ARANGES));
        check_tables(&dwarf, budget)?;
        if let Some(shared) = dwarf.sup() {
            check_tables(shared, budget)?;
        }
        let mut units = Vec::new();
        let mut headers = dwarf.units();
        while let Some(header) = headers.next().ok()? {
            let ranges = ranges(&dwarf, &header, budget).unwrap_or_default();
            units.push(UnitExtent { header, ranges });
        }
        #[expect(clippy::arc_with_non_send_sync, reason = "addr2line takes an Arc")]
        let dwarf = Arc::new(dwarf);
        Some(DebugData {
            context: Context::from_arc_dwarf(Arc::clone(&dwarf)).ok()?,
            dwarf,
            units,
            checked: RefCell::default(),
        })
    }

    fn check_units_at(&self, address: u64, budget: &ReadBudget) -> Option<()> {
        for (index, unit) in self.units.iter().enumerate() {
            let is_there = |range: &Range<u64>| range.contains(&address);
            let may_describe = unit.ranges.is_empty() || unit.ranges.iter().any(is_there);
            if may_describe && self.checked.borrow_mut().insert(index) {
                // Damage is ignored, because addr2line stops at the same damage.
                let _ = check_entries(&self.dwarf, &unit.header, budget);
            }
        }
        (!budget.is_exceeded()).then_some(())
    }

    fn find(&self, address: u64) -> Option<Origin> {
        let frames = self.context.find_frames(address);
        let mut frames = frames.skip_all_loads().ok()?;
        let mut origin = Origin::default();
        let mut names = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            if names.is_empty() {
                origin.line = frame.location.and_then(|location| {
                    let file = location.file?.rsplit('/').next()?;
                    Some((file.to_owned(), location.line?))
                });
            }
            let name = frame
                .function
                .and_then(|f| Some(f.raw_name().ok()?.into_owned()));
            names.push(name.unwrap_or_default());
            if names.len() > MOST {
                return None;
            }
        }
        // The last name is that of the function itself.
        names.pop();
        origin.inlined = names.iter().map(|name| shown(name).into_owned()).collect();
        Some(origin)
    }
}

fn ranges<'d>(
    dwarf: &Dwarf<SectionPart<'d>>,
    header: &UnitHeader<SectionPart<'d>>,
    budget: &ReadBudget,
) -> Result<Vec<Range<u64>>, Unread> {
    let mut ranges = Vec::new();
    if let Some(unit) = open(dwarf, header.clone(), budget)? {
        let mut all = dwarf.unit_ranges(&unit)?;
        while let Some(range) = all.next()? {
            ranges.push(range.begin..range.end);
        }
    }
    Ok(ranges)
}

fn check_tables(dwarf: &Dwarf<SectionPart<'_>>, budget: &ReadBudget) -> Option<()> {
    let mut tables = HashSet::new();
    let mut headers = dwarf.units();
    let mut count = 0;
    while let Ok(Some(header)) = headers.next() {
        // addr2line keeps data for each unit, so the number of units is limited.
        count += 1;
        if count > MAX_UNITS {
            budget.exhaust();
            return None;
        }
        let at = header.debug_abbrev_offset();
        if tables.insert(at.0) {
            let _ = check_table(dwarf, at, budget);
        }
    }
    (!budget.is_exceeded()).then_some(())
}

fn check_table(
    dwarf: &Dwarf<SectionPart<'_>>,
    at: DebugAbbrevOffset<usize>,
    budget: &ReadBudget,
) -> gimli::Result<()> {
    let mut table = dwarf.debug_abbrev.reader().clone();
    table.skip(at.0)?;
    while table.read_uleb128()? != 0 {
        let _tag = table.read_uleb128()?;
        let _has_children = table.read_u8()?;
        for count in 0.. {
            let (name, form) = (table.read_uleb128()?, table.read_uleb128()?);
            if (name, form) == (0, 0) {
                break;
            }
            if form == u64::from(dw::DW_FORM_implicit_const.0) {
                let _value = table.read_sleb128()?;
            }
            if count == MOST_ATTRIBUTES {
                budget.exhaust();
                return Ok(());
            }
        }
    }
    Ok(())
}

fn check_entries(
    dwarf: &Dwarf<SectionPart<'_>>,
    header: &UnitHeader<SectionPart<'_>>,
    budget: &ReadBudget,
) -> Result<(), Unread> {
    let abbreviations = dwarf.abbreviations(header)?;
    let mut entries = header.entries_raw(&abbreviations, None)?;
    let mut open: Vec<isize> = Vec::new();
    while !entries.is_empty() {
        let depth = entries.next_depth();
        let Some(abbreviation) = entries.read_abbreviation()? else {
            continue;
        };
        budget.pay_entry(abbreviation.attributes().len())?;
        while open.last().is_some_and(|outer| *outer >= depth) {
            open.pop();
        }
        if abbreviation.tag() == dw::DW_TAG_inlined_subroutine {
            open.push(depth);
            if open.len() > MOST_NESTED {
                budget.exhaust();
                return Ok(());
            }
        }
        entries.skip_attributes(abbreviation.attributes())?;
    }
    Ok(())
}
