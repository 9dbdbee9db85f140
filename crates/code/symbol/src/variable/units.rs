//! The entries of debug information, and their references to each other. The bytes may be hostile, so a
//! [`ReadBudget`] pays for each entry.

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use gimli::constants as dw;
use gimli::{
    Abbreviations, Attribute, AttributeValue, DebugAddr, DebugAddrBase, DebugAddrIndex,
    DebugStrOffsets, DebugStrOffsetsBase, DwAt, DwTag, UnitOffset, UnitType,
};

use super::file::{FileUnits, RootEntry, Slice, Unit, Value, header_length, slice};
use super::sections::Sections;
use crate::budget::ReadBudget;
use crate::error::BudgetExceeded;
use crate::error::variable_error::{Damage, VariableError};
use crate::reader::Section;

const MAX_NAME: usize = 4 << 10;

impl From<BudgetExceeded> for VariableError {
    fn from(_: BudgetExceeded) -> VariableError {
        let what = Damage::Circle;
        VariableError::Damaged { what }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Die {
    pub(super) file: usize,
    pub(super) unit: usize,
    pub(super) offset: usize,
}

#[derive(Clone, Debug)]
pub(super) struct UnitEntry<'d> {
    pub(super) die: Die,
    pub(super) tag: DwTag,
    pub(super) attributes: Vec<Attribute<Slice<'d>>>,
}

impl<'d> UnitEntry<'d> {
    pub(super) fn at(die: Die) -> UnitEntry<'d> {
        UnitEntry {
            die,
            tag: DwTag(0),
            attributes: Vec::new(),
        }
    }

    pub(super) fn attribute(&self, name: DwAt) -> Option<Value<'d>> {
        let mut attributes = self.attributes.iter();
        attributes.find(|a| a.name() == name).map(Attribute::value)
    }

    pub(super) fn has(&self, name: DwAt) -> bool {
        match self.attribute(name) {
            Some(AttributeValue::Flag(set)) => set,
            found => found.is_some(),
        }
    }

    /// Reinterprets 64 unsigned bits as signed.
    pub(super) fn number(&self, name: DwAt) -> Option<i64> {
        let value = self.attribute(name)?;
        let unsigned = value.udata_value().map(u64::cast_signed);
        unsigned.or_else(|| value.sdata_value())
    }

    pub(super) fn unsigned(&self, name: DwAt) -> Option<u64> {
        self.attribute(name)?.udata_value()
    }
}

pub(super) struct Units<'d> {
    files: Vec<FileUnits<'d>>,
    pub(super) budget: ReadBudget,
    signatures: OnceCell<HashMap<u64, Die>>,
    pub(super) definitions: RefCell<HashMap<Die, Option<Die>>>,
}

impl<'d> Units<'d> {
    pub(super) fn new(own: &'d Sections<'d>, shared: Option<&'d Sections<'d>>) -> Units<'d> {
        let files = [Some(own), shared].into_iter().flatten();
        let bytes = |of: &Sections| of.info.len() + of.types.len();
        let all: usize = files.clone().map(bytes).sum();
        Units {
            files: files.map(FileUnits::new).collect(),
            budget: ReadBudget::new(all as u64),
            signatures: OnceCell::new(),
            definitions: RefCell::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.iter().all(|file| file.units.is_empty())
    }

    /// Returns all units, each by its entry at offset 0.
    pub(super) fn all(&self) -> impl Iterator<Item = Die> {
        let offset = 0;
        let files = self.files.iter().enumerate();
        let units = move |(file, of): (usize, &FileUnits<'d>)| {
            (0..of.units.len()).map(move |unit| Die { file, unit, offset })
        };
        files.flat_map(units)
    }

    /// Returns the number of stubs for `.dwo` files.
    pub(super) fn skeletons(&self) -> usize {
        let is_skeleton = |die: &Die| self.root(*die).is_some_and(|root| root.is_skeleton);
        self.all().filter(is_skeleton).count()
    }

    pub(super) fn unit(&self, die: Die) -> Option<&Unit<'d>> {
        self.files.get(die.file)?.units.get(die.unit)
    }

    pub(super) fn source_file(&self, die: Die) -> Option<String> {
        self.owned(die, self.root(die)?.name?)
    }

    pub(super) fn entry(&self, die: Die) -> Result<UnitEntry<'d>, VariableError> {
        let mut found = None;
        self.walk(die, |entry, depth| {
            found = (depth == 0).then_some(entry);
            Ok(false)
        })?;
        let what = Damage::Reference;
        found.ok_or(VariableError::Damaged { what })
    }

    pub(super) fn children(&self, die: Die) -> Result<Vec<UnitEntry<'d>>, VariableError> {
        let mut found = Vec::new();
        self.walk(die, |entry, depth| {
            if depth == 1 {
                found.push(entry);
            }
            Ok(true)
        })?;
        Ok(found)
    }

    /// Passes an entry and its descendants to `show`, until `show` returns `false`. Grandchildren and their
    /// descendants come without attributes.
    fn walk(
        &self,
        die: Die,
        mut show: impl FnMut(UnitEntry<'d>, usize) -> Result<bool, VariableError>,
    ) -> Result<(), VariableError> {
        let Some((unit, abbreviations)) = self.unit(die).zip(self.abbreviations(die)?) else {
            return Ok(());
        };
        let start = UnitOffset(die.offset);
        let Ok(mut raw) = unit.header.entries_raw(&abbreviations, Some(start)) else {
            return Ok(());
        };
        while !raw.is_empty() {
            let depth = usize::try_from(raw.next_depth()).unwrap_or(0);
            let offset = raw.next_offset().0;
            let Ok(abbreviation) = raw.read_abbreviation() else {
                return Ok(());
            };
            if let Some(abbreviation) = abbreviation {
                let specifications = abbreviation.attributes();
                self.budget.pay_entry(specifications.len())?;
                let mut attributes = Vec::new();
                let read = match depth {
                    0 | 1 => raw.read_attributes(specifications, &mut attributes),
                    _ => raw.skip_attributes(specifications),
                };
                let end = match read {
                    Ok(()) => raw.next_offset().0,
                    // A failed read may have searched for a text's end up to the unit's end.
                    Err(_) => unit.header.length_including_self(),
                };
                self.budget.pay_bytes(end.saturating_sub(offset))?;
                if read.is_err() {
                    return Ok(());
                }
                let entry = UnitEntry {
                    die: Die { offset, ..die },
                    tag: abbreviation.tag(),
                    attributes,
                };
                if !show(entry, depth)? {
                    return Ok(());
                }
            }
            if raw.next_depth() <= 0 {
                return Ok(());
            }
        }
        Ok(())
    }

    pub(super) fn strings(&self) -> impl Iterator<Item = &Section<'d>> {
        self.files.iter().map(|file| &file.sections.strings)
    }

    /// Returns a unit's abbreviations; `None` if the unit is damaged. Fails once the budget is exceeded.
    pub(super) fn abbreviations(
        &self,
        die: Die,
    ) -> Result<Option<Rc<Abbreviations>>, VariableError> {
        if self.root(die).is_none() {
            self.budget.pay(1)?;
            return Ok(None);
        }
        let table = || {
            let start = self.unit(die)?.header.debug_abbrev_offset();
            self.files.get(die.file)?.abbreviations(start.0)
        };
        Ok(table())
    }

    pub(super) fn follow(&self, from: Die, value: Value<'d>) -> Option<Die> {
        match value {
            AttributeValue::UnitRef(offset) => Some(Die {
                offset: offset.0,
                ..from
            }),
            AttributeValue::DebugInfoRef(offset) => self.at(from.file, offset.0),
            AttributeValue::DebugInfoRefSup(offset) => self.at(1, offset.0),
            AttributeValue::DebugTypesRef(signature) => self.signed(signature.0),
            _ => None,
        }
    }

    fn at(&self, file: usize, offset: usize) -> Option<Die> {
        let of = self.files.get(file)?;
        let start = |unit: &Unit| {
            unit.header
                .debug_info_offset()
                .map_or(usize::MAX, |at| at.0)
        };
        let unit = of.units[..of.in_info].partition_point(|unit| start(unit) <= offset);
        let unit = unit.checked_sub(1)?;
        let offset = offset - start(&of.units[unit]);
        Some(Die { file, unit, offset })
    }

    fn signed(&self, signature: u64) -> Option<Die> {
        let types = self.signatures.get_or_init(|| {
            let signed = |die: Die| {
                let UnitType::Type {
                    type_signature,
                    type_offset,
                } = self.unit(die)?.header.type_()
                else {
                    return None;
                };
                let offset = type_offset.0;
                Some((type_signature.0, Die { offset, ..die }))
            };
            self.all().filter_map(signed).collect()
        });
        types.get(&signature).copied()
    }

    pub(super) fn is(&self, die: Die, name: Value<'d>, wanted: &str) -> bool {
        let most = wanted.len() + 1;
        let text = self.text(die, name, most);
        let text = text.unwrap_or_default();
        text.get(..wanted.len()) == Some(wanted.as_bytes())
            && matches!(text.get(wanted.len()), None | Some(0))
    }

    pub(super) fn name(&self, entry: &UnitEntry<'d>) -> Option<String> {
        self.owned(entry.die, entry.attribute(dw::DW_AT_name)?)
    }

    fn owned(&self, die: Die, name: Value<'d>) -> Option<String> {
        let text = self.text(die, name, MAX_NAME)?;
        let end = text.iter().position(|&byte| byte == 0);
        let text = &text[..end.unwrap_or(text.len())];
        // A name is paid for each time, because many entries may share it.
        self.budget.pay(text.len() / 4).ok()?;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// Returns at most `most` bytes, some maybe after the text's final zero.
    fn text(&self, die: Die, value: Value<'d>, most: usize) -> Option<Cow<'d, [u8]>> {
        let of = self.files.get(die.file)?;
        let cut = |text: &'d [u8]| Cow::Borrowed(&text[..text.len().min(most)]);
        let strings = |file: usize, at: usize| {
            let strings = &self.files.get(file)?.sections.strings;
            strings.string(at, most).map(Cow::Owned)
        };
        match value {
            AttributeValue::String(text) => Some(cut(text.slice())),
            AttributeValue::DebugStrRef(offset) => strings(die.file, offset.0),
            AttributeValue::DebugStrRefSup(offset) => strings(1, offset.0),
            AttributeValue::DebugLineStrRef(offset) => {
                of.sections.line_strings.get(offset.0..).map(cut)
            }
            AttributeValue::DebugStrOffsetsIndex(index) => {
                let base = self.root(die)?.string_offsets;
                let format = self.unit(die)?.header.format();
                let base = DebugStrOffsetsBase(base.unwrap_or(header_length(format)));
                let section = slice(&of.sections.string_offsets);
                let offsets = DebugStrOffsets::from(section);
                let offset = offsets.get_str_offset(format, base, index).ok()?;
                strings(die.file, offset.0)
            }
            _ => None,
        }
    }

    pub(super) fn address(&self, die: Die, index: DebugAddrIndex<usize>) -> Option<u64> {
        let of = self.files.get(die.file)?;
        let header = &self.unit(die)?.header;
        let base = self.root(die)?.addresses;
        let base = DebugAddrBase(base.unwrap_or(header_length(header.format())));
        let section = DebugAddr::from(slice(&of.sections.addresses));
        section.get_address(header.address_size(), base, index).ok()
    }

    fn root(&self, die: Die) -> Option<&RootEntry<'d>> {
        let unit = self.unit(die)?;
        if let Some(known) = unit.root.get() {
            return known.as_ref();
        }
        let root = self.files.get(die.file)?.root(&unit.header, &self.budget);
        if root.is_none() && self.budget.is_exceeded() {
            // `None` is not stored, because the next request can pay for the entry.
            return None;
        }
        unit.root.get_or_init(|| root).as_ref()
    }
}
