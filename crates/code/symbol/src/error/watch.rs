//! The faults of a watch's text.
#![expect(missing_docs, reason = "the message of a variant says what it means")]

use thiserror::Error;

/// A fault in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum WatchFault {
    #[error("a variable or an address is missing")]
    NoVariable,
    /// The text begins with `:`, so the binary is missing.
    #[error("a binary is missing before the `:`")]
    NoBinary,
    /// There are more parts than a binary, a variable, a length and an access.
    #[error(
        "too many `:` (write [BINARY:]VARIABLE[:LEN][:w|rw|x], with '…' around a name that has one)"
    )]
    TooManyParts,
    /// The access is `r`, but no breakpoint reports only reads.
    #[error("the processor cannot watch reads alone; write `rw`")]
    ReadOnly,
    #[error("not a kind of access (write `w`, `rw` or `x`)")]
    BadAccess,
    #[error("not a length that the processor can watch (1, 2, 4 or 8 bytes)")]
    BadLength,
    #[error("the length must come before `w`, `rw` or `x`")]
    LengthLast,
    #[error("a control character")]
    ControlCharacter,
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
    /// A cast, which is not supported.
    #[error("casts are not understood (write ADDRESS:LEN for an address without a type)")]
    Cast,
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
    pub fault: WatchFault,
}
