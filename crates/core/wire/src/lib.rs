//! Every byte between the traced program and tiptoe.
//!
//! There are two sealed memfds. The agent writes *data*, which tiptoe reads as hostile input: sizes must come from
//! tiptoe's own [`Geometry`], and each word is read once, then checked. Otherwise the target could change it in
//! between. tiptoe writes *plan*, which the target only reads.
//!
//! Both are slices of 64-bit atomics ([`Words`]), so sharing them is no data race, and an index out of bounds is
//! `None`.
//!
//! | edge | Release | Acquire |
//! |---|---|---|
//! | A: a request is published | `plan::SEQUENCE` in [`Plan::publish`] | [`Plan::sequence`] in the agent |
//! | B: a request is answered | `data::ACK` in [`Data::answer`] | [`Data::acknowledged`] in tiptoe |
//! | C: a slab has an owner | directory owner word in [`Data::enter`] | [`Data::slab_owner`] in tiptoe |
//! | D: a change of the loader is reported | `changes::REPORTED` in [`Data::report`] | [`Data::reported`] in tiptoe |
//! | E: a change is done | `changes::SERVED` in [`Data::serve`] | [`Data::served`] in a loading thread |
//! | F, G: records | see [`ring`] | |
//! | H, I: hits of breakpoints | see [`hits`] | |
//! | J: a scope node has a number | its key, in `tiptoe_label` | the thread that finds the key |
//!
//! Counters need no edge: each has one writer, and the next read has what a read misses. The last read comes
//! after edge B.
#![no_std]
#![warn(missing_docs)]

pub mod arena;
pub mod calls;
mod data;
pub mod descriptors;
pub mod futex;
mod geometry;
pub mod hits;
#[cfg(all(test, tiptoe_loom))]
mod models;
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
pub use data::{AgentAddresses, Data, Hello, LeaveReason, State};
pub use geometry::{Geometry, Layout, Needs};
pub use plan::{Clock, Library, Map, MapContent, Plan, Request, WatchTarget};
pub use record::{Head, MAX_HEADS, SITE_WORDS, SLOT_WORDS, Site, SiteFlags};
pub use words::Words;

/// Marks a segment as tiptoe's. The low 16 bits are the protocol version.
pub const MAGIC: u64 = 0x7469_7074_6f65_0000 | VERSION as u64;

/// The protocol version. An agent and a tiptoe of different versions refuse each other.
pub const VERSION: u16 = 12;

/// Words of a thread, from the %fs offset [`Hello::tls`] on.
pub mod tls {
    /// The owned signals that the thread believes to block, in the low half; above them the
    /// generation of that belief, [`Request::Prepare`](crate::Request::Prepare)'s first result.
    pub const BELIEVED: i64 = 8;
    /// Not 0 if the thread, on its way from the hook to its system call, must call the hook again.
    pub const RECALL: i64 = 16;
    /// The thread's current or last wait: the address after the system call, and from
    /// [`NUMBER_SHIFT`] on the call's number.
    pub const WAIT_CALL: i64 = 24;
    /// Where that wait's hook returns to.
    pub const TRAMPOLINE: i64 = 32;
    /// Position of the number in [`WAIT_CALL`]; an address has 47 bits.
    pub const NUMBER_SHIFT: u32 = 48;
    /// A signal mask as passed to the kernel, its address, its length, and the original mask.
    pub const MASK: i64 = 64;
    /// The end of the thread's uppermost frame.
    pub const FRAMES: i64 = 136;
}
