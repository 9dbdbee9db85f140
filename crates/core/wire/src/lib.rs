//! The memory that the traced program (the *target*) shares with tiptoe.
//!
//! There are two sealed memfds. tiptoe writes the *plan segment*, which the target only reads. The *agent*, tiptoe's
//! code in the target, writes the *data segment*, which is hostile input. So sizes must come from tiptoe's own
//! [`Geometry`], and each word is read once, then checked, because the target may change it. Both segments are 64-bit
//! atomics ([`Words`]), so sharing is no data race. Comments cite an ordering by the letter of its *edge*:
//!
//! | edge | Release | Acquire |
//! |---|---|---|
//! | A: a request is published | [`Plan::publish`] | [`Plan::sequence`] |
//! | B: a request is answered | [`Data::answer`] | [`Data::acknowledged`] |
//! | C: a slab, a thread's counters, has an owner | [`Data::enter`] | [`Data::slab_owner`] |
//! | D: a change of the loader is reported | [`Data::report`] | [`Data::reported`] |
//! | E: a change of the loader is done | [`Data::serve`] | [`Data::served`] |
//! | F, G: records | see [`ring`] | |
//! | H, I, K: hits of breakpoints | see [`hits`] | |
//! | J: a scope node has a number ([`scopes`]) | the store of its key (`tiptoe_label`) | the search for the key |
//! | L: a range of code without patches is complete | [`Data::put_unpatched`] | [`Data::unpatched`] |
//!
//! Counters need no edge, because tiptoe's last read, which follows edge B, finds what earlier reads missed.
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

pub use data::space::{Readings, slots};
pub use data::{AgentAddresses, Data, Hello, LeaveReason, State};
pub use geometry::{Geometry, Layout, Needs};
pub use plan::{Clock, Library, Map, MapContent, Plan, Request, WatchTarget};
pub use record::{Head, MAX_HEADS, SITE_WORDS, SLOT_WORDS, Site, SiteFlags};
pub use words::Words;

const FIRST_SLOT: u32 = 16;
/// Marks our segments.
pub const MAGIC: u64 = 0x7469_7074_6f65_0000 | VERSION as u64;

/// The protocol version. An agent and a tiptoe of different versions refuse each other.
pub const VERSION: u16 = 12;

/// A thread's words, from %fs offset [`Hello::tls`] on.
pub mod tls {
    /// Low half: which of SIGTRAP and SIGILL the program believes it blocks; the kernel has both unblocked. High half:
    /// the generation in which the low half is valid, [`crate::Request::Prepare`]'s first result.
    pub const BELIEVED: i64 = 8;
    /// A system call's hook clears this word; the agent sets the word when it holds back a signal. A thread that is
    /// then between hook and system call runs the hook again.
    pub const RECALL: i64 = 16;
    /// For the current or last waiting system call: the return address; above the address, the call's number.
    pub const WAIT_CALL: i64 = 24;
    /// The address to which the hook of [`WAIT_CALL`] returns.
    pub const TRAMPOLINE: i64 = 32;
    /// Position of the number in [`WAIT_CALL`]; an address has 47 bits.
    pub const NUMBER_SHIFT: u32 = 48;
    /// Four words: a signal mask for the kernel, that mask's address and length, the program's mask.
    pub const MASK: i64 = 64;
    /// The end of the thread's newest *frame*, the agent's record of a call in progress.
    pub const FRAMES: i64 = 136;
}
