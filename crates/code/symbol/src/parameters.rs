//! Counts the integer registers that hold a function's parameters, by the ABI of x86-64. Excluded are functions with
//! `…`, with a damaged entry, or with a parameter or result that is neither a number nor a pointer.

use std::collections::HashMap;

use gimli::constants as dw;
use gimli::{AttributeValue, DebuggingInformationEntry, UnitOffset};

use crate::content::Content;
use crate::debug::DebugSource;
use crate::entries::{Entries, Entry, Unread, each_unit};
use crate::image::Image;
use crate::reader::SectionPart;

/// The most steps through a type's qualifiers and names, or through references.
const MOST_STEPS: usize = 16;

type EntryValue<'d> = AttributeValue<SectionPart<'d>>;
type TypeEntry<'d> = DebuggingInformationEntry<SectionPart<'d>>;

impl Image {
    /// Returns how many registers hold each function's parameters, by link-time address. If there is too much debug
    /// information, only the first functions are returned.
    pub fn parameter_registers(
        &self,
        bytes: &Content,
        source: &dyn DebugSource,
    ) -> HashMap<u64, u8> {
        let mut found = HashMap::new();
        // An error may be ignored, because the numbers found before it are right.
        let _ = each_unit(bytes, source, |entries| look_through(entries, &mut found));
        found
    }
}

struct OpenFunction {
    start: u64,
    depth: isize,
    /// `None` once a parameter's registers are unknown.
    registers: Option<u8>,
}

fn look_through(entries: &mut Entries<'_, '_>, found: &mut HashMap<u64, u8>) -> Result<(), Unread> {
    let mut open: Option<OpenFunction> = None;
    while let Some(Entry { depth, tag, .. }) = entries.next()? {
        if let Some(function) = open.take_if(|function| depth <= function.depth) {
            found.extend(function.registers.map(|count| (function.start, count)));
        }
        let is_own = |function: &OpenFunction| depth == function.depth + 1;
        let is_parameter = open.as_ref().is_some_and(is_own)
            && matches!(
                tag,
                dw::DW_TAG_formal_parameter | dw::DW_TAG_unspecified_parameters
            );
        if tag != dw::DW_TAG_subprogram && !is_parameter {
            continue;
        }
        entries.read()?;
        if let (true, Some(function)) = (is_parameter, &mut open) {
            let more = match tag {
                dw::DW_TAG_formal_parameter => entries.parameter_registers(),
                _ => None,
            };
            function.registers = function
                .registers
                .and_then(|registers| registers.checked_add(more?));
        } else if let Some(start) = entries.start()? {
            // Compilers mark functions whose arguments they have rearranged.
            let is_usual = entries.value(dw::DW_AT_calling_convention).is_none();
            // A result in memory takes one more register, for its address.
            let is_known = is_usual && entries.returns_in_registers();
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

impl<'d> Entries<'_, 'd> {
    fn parameter_registers(&self) -> Option<u8> {
        self.registers(self.type_of()??)
    }

    fn returns_in_registers(&self) -> bool {
        match self.type_of() {
            Some(None) => true,
            Some(Some(kind)) => self.registers(kind).is_some(),
            None => false,
        }
    }

    /// Returns the type of the last entry, or of an entry to which it refers: `Some(None)` for `void`, `None` if the
    /// type is in another unit.
    fn type_of(&self) -> Option<Option<UnitOffset>> {
        const REFERENCES: [gimli::DwAt; 2] = [dw::DW_AT_abstract_origin, dw::DW_AT_specification];
        let mut named = self.value(dw::DW_AT_type);
        let mut next = REFERENCES.into_iter().find_map(|name| self.value(name));
        for _ in 0..MOST_STEPS {
            match (named, next) {
                (Some(kind), _) => return in_unit(&kind).map(Some),
                (None, None) => return Some(None),
                (None, Some(at)) => {
                    let entry = self.type_entry(in_unit(&at)?)?;
                    named = entry.attr_value(dw::DW_AT_type);
                    next = REFERENCES
                        .into_iter()
                        .find_map(|name| entry.attr_value(name));
                }
            }
        }
        None
    }

    fn type_entry(&self, at: UnitOffset) -> Option<TypeEntry<'d>> {
        let mut entries = self.unit.entries_raw(Some(at)).ok()?;
        let mut entry = TypeEntry::null();
        let is_read = entries.read_entry(&mut entry) == Ok(true);
        let end = match is_read {
            true => entries.next_offset().0,
            // A failed read may have searched for a text's end up to the unit's end.
            false => self.unit.length_including_self(),
        };
        self.budget.pay_entry(entry.attrs().len()).ok()?;
        self.budget.pay_bytes(end.saturating_sub(at.0)).ok()?;
        is_read.then_some(entry)
    }

    /// Returns how many registers hold a value of a type; `None` if the number depends on the type's members.
    fn registers(&self, kind: UnitOffset) -> Option<u8> {
        let mut at = kind;
        for _ in 0..MOST_STEPS {
            let entry = self.type_entry(at)?;
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

fn in_unit(value: &EntryValue<'_>) -> Option<UnitOffset> {
    match value {
        AttributeValue::UnitRef(at) => Some(*at),
        _ => None,
    }
}
