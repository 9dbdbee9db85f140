//! Where a variable is.

use gimli::constants as dw;
use gimli::{AttributeValue, Operation};

use super::file::Slice;
use super::plan::Start;
use super::units::{UnitEntry, Units};
use crate::error::variable_error::{AddressForm, Constant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    /// At one address, or at one address in each thread.
    Fixed(Start),
    /// Defined in another file, or only in this file's symbol table.
    Declared,
    /// In different places at different times.
    Local,
    Register,
    /// Not in memory, but maybe constant.
    Nowhere(Option<Constant>),
    Other(AddressForm),
}

impl Location {
    pub(super) fn is_fixed(self) -> bool {
        matches!(self, Location::Fixed(_))
    }
}

pub(super) fn location<'d>(units: &Units<'d>, entry: &UnitEntry<'d>) -> Location {
    match entry.attribute(dw::DW_AT_location) {
        Some(AttributeValue::Exprloc(expression)) => evaluate(units, entry, expression),
        Some(_) => Location::Local,
        None if entry.has(dw::DW_AT_const_value) => {
            let unsigned = entry.unsigned(dw::DW_AT_const_value);
            let signed = || entry.number(dw::DW_AT_const_value);
            let value = unsigned.map(Constant::Unsigned);
            Location::Nowhere(value.or_else(|| signed().map(Constant::Signed)))
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
    let Some(unit) = units.unit(entry.die) else {
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
        (Some(offset), true) => Location::Fixed(Start::ThreadLocal(offset)),
        (Some(address), false) => Location::Fixed(Start::Module(address)),
        (None, _) => Location::Nowhere(None),
    }
}
