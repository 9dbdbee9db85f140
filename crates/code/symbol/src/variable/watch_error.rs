//! The faults of a watch's text.

use thiserror::Error;
use tiptoe_event::{MemoryError, MemoryFault};

/// A fault in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum WatchFault {
    /// A fault outside the variable.
    #[error("{0}")]
    Memory(MemoryFault),
    /// The variable is missing.
    #[error("a variable or an address is missing")]
    NoVariable,
    /// A `'` without its partner.
    #[error("the quote is not closed")]
    OpenQuote,
    /// Brackets in a name that do not match.
    #[error("the brackets in the name do not match")]
    OpenBracket,
    /// A name is missing after `.`, `->` or `::`.
    #[error("a name is missing")]
    NoName,
    /// The index in `[]` is not a number.
    #[error("an index is a number")]
    BadIndex,
    /// A `)` or `]` is missing.
    #[error("`)` or `]` is missing")]
    NotClosed,
    /// Too deeply nested brackets.
    #[error("too deeply nested")]
    TooDeep,
    /// A number that is not an address.
    #[error("not an address of 64 bits")]
    BadAddress,
    /// Members or elements of an address.
    #[error("an address has no type (write ADDRESS:LEN, or name a variable)")]
    UntypedAddress,
    /// A cast, which is not supported.
    #[error("casts are not understood (write ADDRESS:LEN for an address without a type)")]
    Cast,
    /// Any other operator that is not supported.
    #[error(
        "not understood here (a variable is followed by `.member`, `->member` or `[number]`, and preceded by `*`)"
    )]
    Unexpected,
}

/// The fault of a text, and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[error("{fault} (at character {})", at + 1)]
pub struct WatchError {
    /// The byte at which parsing failed.
    pub at: usize,
    /// The fault.
    pub fault: WatchFault,
}

impl From<MemoryError> for WatchError {
    fn from(MemoryError { at, fault }: MemoryError) -> WatchError {
        let fault = WatchFault::Memory(fault);
        WatchError { at, fault }
    }
}
