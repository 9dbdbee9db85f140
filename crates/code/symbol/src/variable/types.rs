//! Types: sizes, names, members, and formats of values.

use gimli::constants as dw;
use gimli::{AttributeValue, DwAte, DwTag, Operation};

use super::names::{definition, origins};
use super::units::{Die, UnitEntry, Units};
use super::value::ValueKind;
use crate::error::variable_error::{Damage, VariableError};

/// The deepest recursion, because a cycle would overflow the stack.
const MAX_DEPTH: usize = 32;
/// The longest chain of aliases, which may form a cycle.
const MAX_ALIASES: usize = 64;
/// Longer names are cut.
const MAX_NAME: usize = 256;
const MAX_DIMENSIONS: usize = 32;

/// A type, or what remains of an array's type after some indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TypeRef {
    /// `None` is `void`.
    pub(super) die: Option<Die>,
    pub(super) indexed: usize,
}

pub(super) enum Shape<'d> {
    Pointer(TypeRef),
    Reference(TypeRef),
    Array {
        element: TypeRef,
        count: Option<u64>,
    },
    Compound(UnitEntry<'d>),
    Other,
}

impl TypeRef {
    pub(super) fn of(die: Option<Die>) -> TypeRef {
        TypeRef { die, indexed: 0 }
    }
}

/// Returns an entry's type, or that of its declaration.
pub(super) fn type_of<'d>(
    units: &Units<'d>,
    entry: &UnitEntry<'d>,
) -> Result<TypeRef, VariableError> {
    let own = entry
        .attribute(dw::DW_AT_type)
        .map(|value| (entry.die, value));
    let value = match own {
        Some(own) => Some(own),
        None => origins(units, entry)?.into_iter().find_map(|origin| {
            let value = origin.attribute(dw::DW_AT_type)?;
            Some((origin.die, value))
        }),
    };
    let what = Damage::MissingFile;
    match value {
        None => Ok(TypeRef::of(None)),
        Some((die, value)) => match units.follow(die, value) {
            Some(die) => Ok(TypeRef::of(Some(die))),
            None => Err(VariableError::Damaged { what }),
        },
    }
}

/// Removes aliases, `const` and the like.
fn bare<'d>(units: &Units<'d>, of: TypeRef) -> Result<Option<UnitEntry<'d>>, VariableError> {
    let mut next = of.die;
    for _ in 0..MAX_ALIASES {
        let Some(die) = next else { return Ok(None) };
        let entry = units.entry(die)?;
        if !is_alias(entry.tag) {
            return complete(units, entry).map(Some);
        }
        next = type_of(units, &entry)?.die;
    }
    let what = Damage::EndlessType;
    Err(VariableError::Damaged { what })
}

fn is_alias(tag: DwTag) -> bool {
    qualifier(tag).is_some() || tag == dw::DW_TAG_typedef
}

fn qualifier(tag: DwTag) -> Option<&'static str> {
    match tag {
        dw::DW_TAG_const_type => Some("const "),
        dw::DW_TAG_volatile_type => Some("volatile "),
        dw::DW_TAG_atomic_type => Some("_Atomic "),
        dw::DW_TAG_restrict_type
        | dw::DW_TAG_packed_type
        | dw::DW_TAG_shared_type
        | dw::DW_TAG_immutable_type => Some(""),
        _ => None,
    }
}

fn complete<'d>(units: &Units<'d>, entry: UnitEntry<'d>) -> Result<UnitEntry<'d>, VariableError> {
    let is_stub = entry.has(dw::DW_AT_declaration) || entry.has(dw::DW_AT_signature);
    if !is_stub {
        return Ok(entry);
    }
    let known = units.definitions.borrow().get(&entry.die).copied();
    let defined = match known {
        Some(known) => known,
        None => definition(units, &entry)?.map(|defined| defined.die),
    };
    units.definitions.borrow_mut().insert(entry.die, defined);
    defined.map_or(Ok(entry), |die| units.entry(die))
}

pub(super) fn shape<'d>(units: &Units<'d>, of: TypeRef) -> Result<Shape<'d>, VariableError> {
    let Some(entry) = bare(units, of)? else {
        return Ok(Shape::Other);
    };
    Ok(match entry.tag {
        dw::DW_TAG_pointer_type => Shape::Pointer(type_of(units, &entry)?),
        dw::DW_TAG_reference_type | dw::DW_TAG_rvalue_reference_type => {
            Shape::Reference(type_of(units, &entry)?)
        }
        dw::DW_TAG_array_type => {
            let counts = dimensions(units, &entry)?;
            let count = counts.get(of.indexed).copied().flatten();
            let element = match of.indexed + 1 < counts.len() {
                true => TypeRef {
                    die: Some(entry.die),
                    indexed: of.indexed + 1,
                },
                false => type_of(units, &entry)?,
            };
            Shape::Array { element, count }
        }
        dw::DW_TAG_structure_type
        | dw::DW_TAG_class_type
        | dw::DW_TAG_union_type
        | dw::DW_TAG_interface_type => Shape::Compound(entry),
        _ => Shape::Other,
    })
}

fn dimensions<'d>(
    units: &Units<'d>,
    array: &UnitEntry<'d>,
) -> Result<Vec<Option<u64>>, VariableError> {
    let children = units.children(array.die)?;
    let ranges = children
        .iter()
        .filter(|child| child.tag == dw::DW_TAG_subrange_type);
    let counts = ranges.take(MAX_DIMENSIONS).map(|range| {
        let count = range.unsigned(dw::DW_AT_count);
        count.or_else(|| {
            let last = range.number(dw::DW_AT_upper_bound)?;
            let first = range.number(dw::DW_AT_lower_bound).unwrap_or(0);
            // `int x[0]` ends at -1, which GCC writes unsigned.
            let count = last.wrapping_sub(first).wrapping_add(1);
            u64::try_from(count).ok()
        })
    });
    Ok(counts.collect())
}

pub(super) fn size(units: &Units<'_>, of: TypeRef) -> Result<Option<u64>, VariableError> {
    let (mut of, mut times) = (of, 1_u64);
    for _ in 0..MAX_DEPTH {
        let Some(entry) = bare(units, of)? else {
            return Ok(None);
        };
        let whole = of.indexed == 0;
        if let Some(size) = entry.unsigned(dw::DW_AT_byte_size).filter(|_| whole) {
            return Ok(size.checked_mul(times));
        }
        if entry.tag != dw::DW_TAG_array_type {
            return Ok(pointer_size(units, &entry).and_then(|size| size.checked_mul(times)));
        }
        let counts = dimensions(units, &entry)?;
        for count in counts.iter().skip(of.indexed) {
            let Some(product) = count.and_then(|count| times.checked_mul(count)) else {
                return Ok(None);
            };
            times = product;
        }
        of = type_of(units, &entry)?;
    }
    Ok(None)
}

/// Returns a pointer's size, which its entry may omit.
fn pointer_size<'d>(units: &Units<'d>, entry: &UnitEntry<'d>) -> Option<u64> {
    let is_pointer = matches!(
        entry.tag,
        dw::DW_TAG_pointer_type
            | dw::DW_TAG_reference_type
            | dw::DW_TAG_rvalue_reference_type
            | dw::DW_TAG_ptr_to_member_type
    );
    let unit = units.unit(entry.die)?;
    is_pointer.then(|| unit.header.address_size().into())
}

pub(super) fn name(units: &Units<'_>, of: TypeRef) -> Result<String, VariableError> {
    let mut text = name_within(units, of, 0)?;
    if let Some((end, _)) = text.char_indices().nth(MAX_NAME) {
        text.truncate(end);
        text.push('…');
    }
    Ok(text)
}

fn name_within(units: &Units<'_>, of: TypeRef, depth: usize) -> Result<String, VariableError> {
    let Some(die) = of.die else {
        return Ok("void".to_owned());
    };
    if depth > MAX_DEPTH {
        return Ok("…".to_owned());
    }
    let entry = units.entry(die)?;
    if let Some(name) = units.name(&entry) {
        return Ok(name);
    }
    let inner = || name_within(units, type_of(units, &entry)?, depth + 1);
    Ok(match entry.tag {
        dw::DW_TAG_pointer_type => pointer(&inner()?, "*"),
        dw::DW_TAG_reference_type => pointer(&inner()?, "&"),
        dw::DW_TAG_rvalue_reference_type => pointer(&inner()?, "&&"),
        dw::DW_TAG_array_type => {
            let mut text = inner()?;
            for count in dimensions(units, &entry)?.iter().skip(of.indexed) {
                let count = count.map_or_else(String::new, |count| count.to_string());
                text = format!("{text}[{count}]");
            }
            text
        }
        dw::DW_TAG_subroutine_type => "function".to_owned(),
        dw::DW_TAG_union_type => "union {…}".to_owned(),
        dw::DW_TAG_enumeration_type => "enum {…}".to_owned(),
        dw::DW_TAG_structure_type | dw::DW_TAG_class_type => "struct {…}".to_owned(),
        tag => match qualifier(tag) {
            Some(word) => qualified(word, &inner()?),
            None => "unknown".to_owned(),
        },
    })
}

fn pointer(inner: &str, sign: &str) -> String {
    match inner.ends_with(['*', '&']) {
        true => format!("{inner}{sign}"),
        false => format!("{inner} {sign}"),
    }
}

/// Adds a qualifier to a type: `int *const`, but `const int`.
fn qualified(word: &str, inner: &str) -> String {
    match inner.ends_with(['*', '&']) {
        true => format!("{inner} {}", word.trim_end()).trim_end().to_owned(),
        false => format!("{word}{inner}"),
    }
}

pub(super) fn kind(units: &Units<'_>, of: TypeRef) -> Result<ValueKind, VariableError> {
    kind_within(units, of, 0)
}

fn kind_within(units: &Units<'_>, of: TypeRef, depth: usize) -> Result<ValueKind, VariableError> {
    let Some(entry) = bare(units, of)? else {
        return Ok(ValueKind::Unknown);
    };
    Ok(match entry.tag {
        dw::DW_TAG_base_type => match entry.attribute(dw::DW_AT_encoding) {
            Some(AttributeValue::Encoding(encoding)) => of_encoding(encoding),
            _ => ValueKind::Unknown,
        },
        dw::DW_TAG_enumeration_type => enumeration(units, &entry)?,
        dw::DW_TAG_pointer_type | dw::DW_TAG_reference_type | dw::DW_TAG_rvalue_reference_type => {
            ValueKind::Pointer
        }
        dw::DW_TAG_structure_type | dw::DW_TAG_class_type if depth < MAX_DEPTH => {
            match only_member(units, of, &entry)? {
                Some(member) => kind_within(units, member, depth + 1)?,
                None => ValueKind::Compound,
            }
        }
        dw::DW_TAG_structure_type
        | dw::DW_TAG_class_type
        | dw::DW_TAG_union_type
        | dw::DW_TAG_array_type => ValueKind::Compound,
        _ => ValueKind::Unknown,
    })
}

fn of_encoding(encoding: DwAte) -> ValueKind {
    match encoding {
        dw::DW_ATE_boolean => ValueKind::Boolean,
        dw::DW_ATE_float => ValueKind::Float,
        dw::DW_ATE_signed => ValueKind::Integer { is_signed: true },
        dw::DW_ATE_unsigned => ValueKind::Integer { is_signed: false },
        dw::DW_ATE_signed_char => ValueKind::Character { is_signed: true },
        dw::DW_ATE_unsigned_char | dw::DW_ATE_UTF => ValueKind::Character { is_signed: false },
        dw::DW_ATE_address => ValueKind::Pointer,
        _ => ValueKind::Unknown,
    }
}

fn enumeration<'d>(units: &Units<'d>, entry: &UnitEntry<'d>) -> Result<ValueKind, VariableError> {
    let children = units.children(entry.die)?;
    let values = children
        .iter()
        .filter(|child| child.tag == dw::DW_TAG_enumerator);
    let size = size(units, TypeRef::of(Some(entry.die)))?.unwrap_or(4);
    let unused = 64_u64.saturating_sub(size.saturating_mul(8)) as u32;
    let underlying = kind_within(units, type_of(units, entry)?, MAX_DEPTH)?;
    let mut names: Vec<(i64, String)> = values
        .filter_map(|value| Some((value.number(dw::DW_AT_const_value)?, units.name(value)?)))
        .collect();
    let signed = match underlying {
        ValueKind::Integer { is_signed: signed } | ValueKind::Character { is_signed: signed } => {
            signed
        }
        _ => names.iter().any(|(value, _)| *value < 0),
    };
    for (value, _) in names.iter_mut().filter(|_| signed && unused < 64) {
        *value = *value << unused >> unused;
    }
    Ok(ValueKind::Enumeration {
        is_signed: signed,
        names,
    })
}

/// Returns the only member's type if it fills the structure (atomics, newtypes).
fn only_member<'d>(
    units: &Units<'d>,
    of: TypeRef,
    entry: &UnitEntry<'d>,
) -> Result<Option<TypeRef>, VariableError> {
    let whole = size(units, of)?;
    let mut filling = None;
    for child in units.children(entry.die)? {
        let inherits = child.tag == dw::DW_TAG_inheritance;
        if !inherits && (child.tag != dw::DW_TAG_member || child.has(dw::DW_AT_declaration)) {
            continue;
        }
        let member = type_of(units, &child)?;
        match size(units, member)? {
            Some(0) => {}
            // An empty base class has size 1 but takes no room.
            Some(1) if inherits && whole != Some(1) => {}
            found if found == whole && filling.is_none() => filling = Some(member),
            _ => return Ok(None),
        }
    }
    Ok(filling)
}

/// Returns a member's offset; `None` if the offset depends on the object.
pub(super) fn offset_of<'d>(units: &Units<'d>, member: &UnitEntry<'d>) -> Option<u64> {
    match member.attribute(dw::DW_AT_data_member_location) {
        None => Some(0),
        Some(AttributeValue::Exprloc(expression)) => {
            let unit = units.unit(member.die)?;
            let mut operations = expression.operations(unit.header.encoding());
            match (operations.next().ok()??, operations.next().ok()?) {
                (Operation::PlusConstant { value }, None) => Some(value),
                _ => None,
            }
        }
        Some(_) => member.unsigned(dw::DW_AT_data_member_location),
    }
}
