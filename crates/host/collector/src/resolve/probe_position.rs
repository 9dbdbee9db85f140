//! Checks where a probe may be: on an instruction of a known function. A trap or a jump inside an instruction changes
//! what the program computes, so every position must be checked before it is patched.

use std::borrow::Cow;

use tiptoe_patch::{after_stack_check, check_boundary};
use tiptoe_symbol::{Function, Image, Kind, Machine, Source};

use crate::error::Reason;
use crate::module::Object;

/// Returns the function that contains a position, and the offset from the function's first byte.
pub fn home<'a>(
    image: &'a Image,
    function: Cow<'a, Function>,
    offset: u64,
) -> (Cow<'a, Function>, u64) {
    let (Source::Address, Some(home)) =
        (function.source, image.function_containing(function.address))
    else {
        return (function, offset);
    };
    let distance = function.address - home.address;
    (Cow::Borrowed(home), offset.saturating_add(distance))
}

/// Returns the offset at which each call is counted once. In Go, this offset is after the stack check, because a
/// function begins again if its stack is too small.
pub fn counted_at(object: &Object, function: &Function) -> u64 {
    let code = object.code(function, 0).filter(|_| object.is_go());
    let after_check = code.and_then(|code| after_stack_check(&code));
    after_check.unwrap_or(0) as u64
}

/// Fails if the function cannot be probed, or has no instruction at `offset`.
pub fn check(object: &Object, function: &Function, offset: u64) -> Result<(), Reason> {
    match function.kind {
        Kind::Plain => {}
        Kind::Plt => return Err(Reason::LazyStub),
        Kind::SignalReturn => return Err(Reason::SignalReturn),
    }
    if function.source == Source::Address {
        return Err(Reason::NoFunction);
    }
    if function.is_ifunc && offset != 0 {
        return Err(Reason::OffsetOfIfunc);
    }
    let code = object.code(function, 0).ok_or(Reason::NoCode)?;
    let bits = match object.image.header().machine {
        Machine::X86 => 32,
        Machine::X86_64 => 64,
    };
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    Ok(check_boundary(&code, offset, bits)?)
}
