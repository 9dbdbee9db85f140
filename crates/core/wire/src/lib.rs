//! Every byte between the traced program and tiptoe.
//!
//! Two sealed memfds. *data* is written by the target's agent and read by
//! tiptoe, which distrusts it: sizes come from tiptoe's own [`Geometry`], never
//! from the segment, and each word is read once, then checked. *plan* is
//! written by tiptoe and only read by the target.
//!
//! Both are seen as slices of 64-bit atomics ([`Words`]), so that sharing them
//! with another process is no data race and an index out of bounds is `None`.
//!
//! | edge | Release | Acquire |
//! |---|---|---|
//! | A: a request is published | `plan::SEQUENCE` in [`Plan::publish`] | [`Plan::sequence`] in the agent |
//! | B: a request is answered | `data::ACK` in [`Data::answer`] | [`Data::acknowledged`] in tiptoe |
//! | C: a slab has an owner | directory owner word in [`Data::enter`] | [`Data::slab_owner`] in tiptoe |
//! | D: a change of the loader's is told | `changes::TOLD` in [`Data::tell`] | [`Data::told`] in tiptoe |
//! | E: what a change asks for is done | `changes::SERVED` in [`Data::serve`] | [`Data::served`] in a loading thread |
//! | F, G: records | see [`ring`] | |
//! | H, I: hits of breakpoints | see [`hits`] | |
//! | J: a node of scopes has a number | its key, in `tiptoe_label` | who finds it there |
//!
//! Counters need no edge: each has one writer, and a reader that is late by a
//! few hits is corrected by the next read; the last read follows edge B.
#![no_std]
#![warn(missing_docs)]

pub mod arena;
pub mod calls;
mod data;
pub mod futex;
mod geometry;
pub mod hits;
#[cfg(all(test, tiptoe_loom))]
mod models;
pub mod passed;
mod plan;
mod primitive;
mod record;
pub mod ring;
pub mod scopes;
pub mod timed_values;
pub mod values;
mod words;

#[cfg(not(tiptoe_loom))]
pub use data::space::{Readings, slots};
pub use data::{Data, Hello, Left, State};
pub use geometry::Geometry;
pub use plan::{Clock, Copy, Library, Map, Plan, Request, Watched};
pub use record::{Head, MAX_HEADS, SITE_WORDS, Site, SiteFlags};
pub use words::Words;

/// Marks a segment as tiptoe's; the low 16 bits are the protocol version.
pub const MAGIC: u64 = 0x7469_7074_6f65_0000 | VERSION as u64;

/// The protocol version: an agent and a tiptoe of different versions do not talk.
pub const VERSION: u16 = 11;

/// Words of a thread, from the %fs offset [`Hello::tls`] on.
pub mod tls {
    /// The owned signals that the thread believes to block, in the low half; above
    /// them the generation in which it was noted, the first result of
    /// [`Request::Prepare`](crate::Request::Prepare).
    pub const BELIEVED: i64 = 8;
    /// Not 0: the thread, on its way into a system call, is to call the hook again.
    pub const RECALL: i64 = 16;
    /// The wait that the thread makes or made last: the address behind the call, and above it, from
    /// [`NUMBER_SHIFT`] on, its number.
    pub const BEHIND: i64 = 24;
    /// Where that wait's hook returns to.
    pub const TRAMPOLINE: i64 = 32;
    /// The number's place in the word [`BEHIND`]; an address has 47 bits.
    pub const NUMBER_SHIFT: u32 = 48;
    /// A mask as the kernel gets it: the mask, its address, its length, and as it was given.
    pub const MASK: i64 = 64;
    /// The end of the thread's uppermost frame, as an address.
    pub const FRAMES: i64 = 136;
}
