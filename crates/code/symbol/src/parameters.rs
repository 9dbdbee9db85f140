//! Counts the registers for integers that hold a function's parameters at its entry, by the ABI of x86-64.
//!
//! Unknown functions are left out: those with a parameter or a result whose registers depend on a structure, those with
//! `…`, and those whose entry in the debug information is damaged.

use std::collections::HashMap;

use gimli::constants as dw;
use gimli::{Attribute, AttributeValue, DebuggingInformationEntry, Dwarf, Unit, UnitOffset};

use crate::budget::ReadBudget;
use crate::content::Content;
use crate::debug::DebugSource;
use crate::image::Image;
use crate::inlined::{each_unit, start};
use crate::reader::SectionPart;

/// The most qualifiers and names of one type, and references from one entry to another.
const MOST_STEPS: usize = 16;

type Value<'d> = AttributeValue<SectionPart<'d>>;
type Entry<'d> = DebuggingInformationEntry<SectionPart<'d>>;

impl Image {
    /// Returns how many registers hold the parameters of each function, by its link-time address. Empty without debug
    /// information, or with too much.
    pub fn parameter_registers(
        &self,
        bytes: &Content,
        source: &dyn DebugSource,
    ) -> HashMap<u64, u8> {
        let mut found = HashMap::new();
        each_unit(bytes, source, |dwarf, unit, budget| {
            let unit = OneUnit {
                dwarf,
                unit,
                budget,
            };
            unit.look_through(&mut found)
        });
        found
    }
}

/// A function whose parameters are being counted.
struct OpenFunction {
    start: u64,
    depth: isize,
    /// `None` once it is unknown.
    registers: Option<u8>,
}

struct OneUnit<'a, 'd> {
    dwarf: &'a Dwarf<SectionPart<'d>>,
    unit: &'a Unit<SectionPart<'d>>,
    budget: &'a ReadBudget,
}

impl<'d> OneUnit<'_, 'd> {
    fn look_through(&self, found: &mut HashMap<u64, u8>) -> Result<(), gimli::Error> {
        let mut entries = self.unit.entries_raw(None)?;
        let mut attributes: Vec<Attribute<SectionPart<'d>>> = Vec::new();
        let mut open: Option<OpenFunction> = None;
        while !entries.is_empty() {
            let depth = entries.next_depth();
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            if self
                .budget
                .pay_entry(abbreviation.attributes().len())
                .is_none()
            {
                return Ok(());
            }
            if let Some(function) = open.take_if(|function| depth <= function.depth) {
                found.extend(function.registers.map(|count| (function.start, count)));
            }
            let tag = abbreviation.tag();
            let is_own = |function: &OpenFunction| depth == function.depth + 1;
            let is_parameter = open.as_ref().is_some_and(is_own)
                && matches!(
                    tag,
                    dw::DW_TAG_formal_parameter | dw::DW_TAG_unspecified_parameters
                );
            if tag != dw::DW_TAG_subprogram && !is_parameter {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            entries.read_attributes(abbreviation.attributes(), &mut attributes)?;
            let value = |name| {
                let found = attributes.iter().find(|attribute| attribute.name() == name);
                found.map(Attribute::value)
            };
            if let (true, Some(function)) = (is_parameter, &mut open) {
                let more = match tag {
                    dw::DW_TAG_formal_parameter => self.registers_of(value),
                    _ => None,
                };
                function.registers = function
                    .registers
                    .and_then(|registers| registers.checked_add(more?));
            } else if let Some(start) = start(self.dwarf, self.unit, self.budget, value)? {
                // Compilers mark functions whose arguments they have rearranged.
                let is_usual = value(dw::DW_AT_calling_convention).is_none();
                // A result of several words may be returned in memory, whose address is one more argument.
                let is_known = is_usual && self.returns_in_registers(value);
                open = Some(OpenFunction {
                    start,
                    depth,
                    registers: is_known.then_some(0),
                });
            }
        }
        let last = open.and_then(|function| Some((function.start, function.registers?)));
        found.extend(last);
        Ok(())
    }

    /// Returns how many registers a parameter with these attributes takes.
    fn registers_of(&self, value: impl Fn(gimli::DwAt) -> Option<Value<'d>>) -> Option<u8> {
        self.registers(self.type_of(value)??)
    }

    fn returns_in_registers(&self, value: impl Fn(gimli::DwAt) -> Option<Value<'d>>) -> bool {
        match self.type_of(value) {
            Some(None) => true,
            Some(Some(kind)) => self.registers(kind).is_some(),
            None => false,
        }
    }

    /// Returns the type of an entry with these attributes, or of the entry that it refers to: `Some(None)` for `void`,
    /// `None` if the type is in another unit.
    fn type_of(
        &self,
        value: impl Fn(gimli::DwAt) -> Option<Value<'d>>,
    ) -> Option<Option<UnitOffset>> {
        const REFERENCES: [gimli::DwAt; 2] = [dw::DW_AT_abstract_origin, dw::DW_AT_specification];
        let mut named = value(dw::DW_AT_type);
        let mut next = REFERENCES.into_iter().find_map(&value);
        for _ in 0..MOST_STEPS {
            match (named, next) {
                (Some(kind), _) => return in_unit(&kind).map(Some),
                (None, None) => return Some(None),
                (None, Some(at)) => {
                    let entry = self.entry(in_unit(&at)?)?;
                    named = entry.attr_value(dw::DW_AT_type);
                    next = REFERENCES
                        .into_iter()
                        .find_map(|name| entry.attr_value(name));
                }
            }
        }
        None
    }

    /// Reads an entry to which another one refers.
    fn entry(&self, at: UnitOffset) -> Option<Entry<'d>> {
        let mut entries = self.unit.entries_raw(Some(at)).ok()?;
        let mut entry = Entry::null();
        let is_read = entries.read_entry(&mut entry) == Ok(true);
        let end = match is_read {
            true => entries.next_offset().0,
            // A text without an end was searched up to the unit's.
            false => self.unit.length_including_self(),
        };
        self.budget.pay_entry(entry.attrs().len())?;
        self.budget.pay_bytes(end.saturating_sub(at.0))?;
        is_read.then_some(entry)
    }

    /// Returns how many registers a value of this type takes; `None` if that depends on its members.
    fn registers(&self, kind: UnitOffset) -> Option<u8> {
        let mut at = kind;
        for _ in 0..MOST_STEPS {
            let entry = self.entry(at)?;
            match entry.tag() {
                dw::DW_TAG_base_type => {
                    let Some(AttributeValue::Encoding(encoding)) =
                        entry.attr_value(dw::DW_AT_encoding)
                    else {
                        return None;
                    };
                    let size = entry.attr_value(dw::DW_AT_byte_size)?.udata_value()?;
                    return match (encoding, size) {
                        (dw::DW_ATE_float, _) => Some(0),
                        (
                            dw::DW_ATE_boolean
                            | dw::DW_ATE_signed
                            | dw::DW_ATE_signed_char
                            | dw::DW_ATE_unsigned
                            | dw::DW_ATE_unsigned_char
                            | dw::DW_ATE_UTF,
                            1..=8,
                        ) => Some(1),
                        _ => None,
                    };
                }
                dw::DW_TAG_pointer_type
                | dw::DW_TAG_reference_type
                | dw::DW_TAG_rvalue_reference_type
                | dw::DW_TAG_enumeration_type => return Some(1),
                dw::DW_TAG_typedef
                | dw::DW_TAG_const_type
                | dw::DW_TAG_volatile_type
                | dw::DW_TAG_restrict_type
                | dw::DW_TAG_atomic_type => {
                    at = in_unit(&entry.attr_value(dw::DW_AT_type)?)?;
                }
                _ => return None,
            }
        }
        None
    }
}

fn in_unit(value: &Value<'_>) -> Option<UnitOffset> {
    match value {
        AttributeValue::UnitRef(at) => Some(*at),
        _ => None,
    }
}
