//! The entries of debug information, and their references to each other. The bytes are hostile, so each entry must
//! be paid for: [`Units`] has a [`ReadBudget`].

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
use crate::error::variable_error::{Damage, VariableError};
use crate::reader::Section;

/// Longer names are cut.
const MAX_NAME: usize = 4 << 10;

const EXCEEDED: VariableError = VariableError::Damaged {
    what: Damage::Circle,
};

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

    /// Returns a number, negative only if its form is signed.
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
    budget: ReadBudget,
    signatures: OnceCell<HashMap<u64, Die>>,
    /// The definitions found for structures that are only declared.
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

    pub(super) fn refill(&self) {
        self.budget.refill();
    }

    pub(super) fn spend(&self, work: usize) -> Result<(), VariableError> {
        self.budget.pay(work).map_err(|_| EXCEEDED)
    }

    pub(super) fn spend_bytes(&self, bytes: usize) -> Result<(), VariableError> {
        self.budget.pay_bytes(bytes).map_err(|_| EXCEEDED)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.iter().all(|file| file.units.is_empty())
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (usize, usize)> {
        let files = self.files.iter().enumerate();
        files.flat_map(|(file, of)| (0..of.units.len()).map(move |unit| (file, unit)))
    }

    /// Returns the number of stubs for `.dwo` files.
    pub(super) fn skeletons(&self) -> usize {
        let is_skeleton = |&(file, unit): &(usize, usize)| {
            self.root(file, unit).is_some_and(|root| root.is_skeleton)
        };
        self.all().filter(is_skeleton).count()
    }

    pub(super) fn unit(&self, file: usize, unit: usize) -> Option<&Unit<'d>> {
        self.files.get(file)?.units.get(unit)
    }

    pub(super) fn source_file(&self, file: usize, unit: usize) -> Option<String> {
        let name = self.root(file, unit)?.name?;
        self.owned(file, unit, name)
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

    /// Shows an entry and its descendants, until `show` returns `false`. Grandchildren come without attributes.
    fn walk(
        &self,
        die: Die,
        mut show: impl FnMut(UnitEntry<'d>, usize) -> Result<bool, VariableError>,
    ) -> Result<(), VariableError> {
        let Some((unit, abbreviations)) = self
            .unit(die.file, die.unit)
            .zip(self.abbreviations(die.file, die.unit)?)
        else {
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
                self.spend(1 + specifications.len())?;
                let mut attributes = Vec::new();
                let read = match depth {
                    0 | 1 => raw.read_attributes(specifications, &mut attributes),
                    _ => raw.skip_attributes(specifications),
                };
                let end = match read {
                    Ok(()) => raw.next_offset().0,
                    // A text without an end was searched up to the unit's end.
                    Err(_) => unit.header.length_including_self(),
                };
                self.spend_bytes(end.saturating_sub(offset))?;
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
        file: usize,
        unit: usize,
    ) -> Result<Option<Rc<Abbreviations>>, VariableError> {
        if self.root(file, unit).is_none() {
            return self.spend(1).map(|()| None);
        }
        let header = self.unit(file, unit).map(|unit| &unit.header);
        Ok(self
            .files
            .get(file)
            .zip(header)
            .and_then(|(of, header)| of.abbreviations(header.debug_abbrev_offset().0)))
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
            let signed = |(file, unit): (usize, usize)| {
                let UnitType::Type {
                    type_signature,
                    type_offset,
                } = self.unit(file, unit)?.header.type_()
                else {
                    return None;
                };
                let offset = type_offset.0;
                Some((type_signature.0, Die { file, unit, offset }))
            };
            self.all().filter_map(signed).collect()
        });
        types.get(&signature).copied()
    }

    pub(super) fn is(&self, die: Die, name: Value<'d>, wanted: &str) -> bool {
        let most = wanted.len() + 1;
        let text = self.text(die.file, die.unit, name, most);
        let text = text.unwrap_or_default();
        text.get(..wanted.len()) == Some(wanted.as_bytes())
            && matches!(text.get(wanted.len()), None | Some(0))
    }

    pub(super) fn name(&self, entry: &UnitEntry<'d>) -> Option<String> {
        let name = entry.attribute(dw::DW_AT_name)?;
        self.owned(entry.die.file, entry.die.unit, name)
    }

    fn owned(&self, file: usize, unit: usize, name: Value<'d>) -> Option<String> {
        let text = self.text(file, unit, name, MAX_NAME)?;
        let end = text.iter().position(|&byte| byte == 0);
        let text = &text[..end.unwrap_or(text.len())];
        // A name's length is paid for each time, because many entries may share it.
        self.spend(text.len() / 4).ok()?;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// Returns at most `most` bytes of a text; some may be after its zero.
    fn text(
        &self,
        file: usize,
        unit: usize,
        value: Value<'d>,
        most: usize,
    ) -> Option<Cow<'d, [u8]>> {
        let of = self.files.get(file)?;
        let cut = |text: &'d [u8]| Cow::Borrowed(&text[..text.len().min(most)]);
        let strings = |file: usize, at: usize| {
            let strings = &self.files.get(file)?.sections.strings;
            strings.string(at, most).map(Cow::Owned)
        };
        match value {
            AttributeValue::String(text) => Some(cut(text.slice())),
            AttributeValue::DebugStrRef(offset) => strings(file, offset.0),
            AttributeValue::DebugStrRefSup(offset) => strings(1, offset.0),
            AttributeValue::DebugLineStrRef(offset) => {
                of.sections.line_strings.get(offset.0..).map(cut)
            }
            AttributeValue::DebugStrOffsetsIndex(index) => {
                let base = self.root(file, unit)?.string_offsets;
                let format = of.units.get(unit)?.header.format();
                let base = DebugStrOffsetsBase(base.unwrap_or(header_length(format)));
                let section = slice(&of.sections.string_offsets);
                let offsets = DebugStrOffsets::from(section);
                let offset = offsets.get_str_offset(format, base, index).ok()?;
                strings(file, offset.0)
            }
            _ => None,
        }
    }

    pub(super) fn address(&self, die: Die, index: DebugAddrIndex<usize>) -> Option<u64> {
        let of = self.files.get(die.file)?;
        let header = &of.units.get(die.unit)?.header;
        let base = self.root(die.file, die.unit)?.addresses;
        let base = DebugAddrBase(base.unwrap_or(header_length(header.format())));
        let section = DebugAddr::from(slice(&of.sections.addresses));
        section.get_address(header.address_size(), base, index).ok()
    }

    fn root(&self, file: usize, unit: usize) -> Option<&RootEntry<'d>> {
        let of = self.files.get(file)?;
        let unit = of.units.get(unit)?;
        if let Some(known) = unit.root.get() {
            return known.as_ref();
        }
        let root = of.root(&unit.header, &self.budget);
        if root.is_none() && self.budget.is_exceeded() {
            // `None` is not stored, because the next request can pay for the entry.
            return None;
        }
        unit.root.get_or_init(|| root).as_ref()
    }
}
