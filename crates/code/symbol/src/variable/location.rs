//! Where a variable is.

use gimli::constants as dw;
use gimli::{AttributeValue, Operation};

use super::file::Slice;
use super::units::{UnitEntry, Units};
use crate::error::variable_error::AddressForm;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    Address(u64),
    /// An offset in the file's thread-local block.
    ThreadLocal(u64),
    /// Defined in another file, or only in this file's symbol table.
    Declared,
    /// In different places at different times.
    Local,
    /// Always in a register.
    Register,
    /// Not in memory; has a constant's value.
    Nowhere(Option<i64>),
    /// At no single address.
    Other(AddressForm),
}

impl Location {
    /// Returns whether the variable has one address, or one in each thread.
    pub(super) fn is_fixed(self) -> bool {
        matches!(self, Location::Address(_) | Location::ThreadLocal(_))
    }
}

pub(super) fn location<'d>(units: &Units<'d>, entry: &UnitEntry<'d>) -> Location {
    match entry.attribute(dw::DW_AT_location) {
        Some(AttributeValue::Exprloc(expression)) => evaluate(units, entry, expression),
        Some(_) => Location::Local,
        None if entry.has(dw::DW_AT_const_value) => {
            Location::Nowhere(entry.number(dw::DW_AT_const_value))
        }
        None if entry.has(dw::DW_AT_declaration) => Location::Declared,
        None => Location::Nowhere(None),
    }
}

fn evaluate<'d>(
    units: &Units<'d>,
    entry: &UnitEntry<'d>,
    expression: gimli::Expression<Slice<'d>>,
) -> Location {
    let Some(unit) = units.unit(entry.die.file, entry.die.unit) else {
        return Location::Nowhere(None);
    };
    let (mut value, mut thread_local) = (None, false);
    let mut operations = expression.operations(unit.header.encoding());
    while let Ok(Some(operation)) = operations.next() {
        match operation {
            Operation::Address { address } if value.is_none() => value = Some(address),
            Operation::UnsignedConstant { value: offset } if value.is_none() => {
                value = Some(offset);
            }
            Operation::AddressIndex { index } | Operation::ConstantIndex { index }
                if value.is_none() =>
            {
                value = units.address(entry.die, index);
            }
            Operation::PlusConstant { value: more } => {
                value = value.map(|value| value.wrapping_add(more));
            }
            Operation::TLS => thread_local = true,
            Operation::Nop => {}
            Operation::Register { .. } => return Location::Register,
            Operation::RegisterOffset { .. }
            | Operation::FrameOffset { .. }
            | Operation::CallFrameCFA
            | Operation::EntryValue { .. } => return Location::Local,
            Operation::StackValue
            | Operation::ImplicitValue { .. }
            | Operation::ImplicitPointer { .. } => return Location::Nowhere(None),
            Operation::Piece { .. } => return Location::Other(AddressForm::Split),
            _ => return Location::Other(AddressForm::Computed),
        }
    }
    match (value, thread_local) {
        (Some(offset), true) => Location::ThreadLocal(offset),
        (Some(address), false) => Location::Address(address),
        (None, _) => Location::Nowhere(None),
    }
}
