//! The faults of a watch's text.

use thiserror::Error;

/// A fault in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum WatchFault {
    /// The variable is missing.
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
    /// An unknown kind of access.
    #[error("not a kind of access (write `w`, `rw` or `x`)")]
    BadAccess,
    /// A length that no breakpoint has.
    #[error("not a length that the processor can watch (1, 2, 4 or 8 bytes)")]
    BadLength,
    /// The length comes after the access.
    #[error("the length must come before `w`, `rw` or `x`")]
    LengthLast,
    /// A control character.
    #[error("a control character")]
    ControlCharacter,
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
