#![expect(missing_docs, reason = "the message of a variant says what it means")]

use thiserror::Error;
use tiptoe_event::{MemoryError, MemoryFault};

/// A fault in the user's text that names what to watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum WatchFault {
    /// A fault outside the variable's expression.
    #[error("{0}")]
    Memory(MemoryFault),
    #[error("a variable or an address is missing")]
    NoVariable,
    #[error("the quote is not closed")]
    OpenQuote,
    #[error("the brackets in the name do not match")]
    OpenBracket,
    #[error("a name is missing")]
    NoName,
    #[error("an index is a number")]
    BadIndex,
    #[error("`)` or `]` is missing")]
    NotClosed,
    #[error("too deeply nested")]
    TooDeep,
    #[error("not an address of 64 bits")]
    BadAddress,
    #[error("an address has no type (write ADDRESS:LEN, or name a variable)")]
    UntypedAddress,
    #[error("casts are not understood (write ADDRESS:LEN for an address without a type)")]
    Cast,
    #[error(
        "not understood here (a variable is followed by `.member`, `->member` or `[number]`, and preceded by `*`)"
    )]
    Unexpected,
}

/// A fault, and its position in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[error("{fault} (at character {})", at + 1)]
pub struct WatchError {
    /// The index of a byte in the text.
    pub at: usize,
    pub fault: WatchFault,
}

impl From<MemoryError> for WatchError {
    fn from(MemoryError { at, fault }: MemoryError) -> WatchError {
        let fault = WatchFault::Memory(fault);
        WatchError { at, fault }
    }
}
