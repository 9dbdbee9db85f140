//! The interface between a program that links one of tiptoe's libraries and the *agent*, tiptoe's code in the program.
//!
//! A library has a static [`Port`] in the section [`SECTION`], which stripping keeps. While tiptoe observes the port's
//! [`Kind`], the port is open, and the library calls two functions of the agent, whose addresses are in the port. A
//! closed port costs a load and a branch.
//!
//! The agent's code and the addresses remain after a detach, so a late call is safe. The library may be unmapped at
//! any moment, so the agent must write the port by system calls, which do not fault. Such a write may be torn, so a
//! single byte, written last, opens the port.
//!
//! `tiptoe.h` is this interface for C.
#![no_std]
#![warn(missing_docs)]

use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// The section of ports.
pub const SECTION: &str = "tiptoe_port";

/// What a library reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Scopes (pieces of work) that threads enter. `begin` gets a scope's name, and 0 or [`RESUMES`]. `end` gets the
    /// result of `begin`.
    Scopes = 1,
    /// Waits for locks. `begin` gets the lock's name, and the lock's address with a [`mode`] from bit [`MODE_SHIFT`]
    /// on. `end` gets the result of `begin`, and an [`outcome`].
    Locks = 2,
}

impl Kind {
    /// Returns the kind with a number.
    pub fn of(number: u32) -> Option<Kind> {
        [Kind::Scopes, Kind::Locks]
            .into_iter()
            .find(|kind| *kind as u32 == number)
    }
}

/// The thread resumes a scope, such as a future polled again, so no entry is counted.
pub const RESUMES: u64 = 1;

/// The lowest bit of the mode in `begin`'s argument `what`, for [`Kind::Locks`].
pub const MODE_SHIFT: u32 = 56;

/// How a lock is taken.
pub mod mode {
    /// A mutex is taken.
    pub const MUTEX: u64 = 1;
    /// A rwlock is taken to write.
    pub const WRITE: u64 = 2;
    /// A rwlock is taken to read.
    pub const READ: u64 = 3;
    /// A rwlock is taken to read, perhaps to be upgraded.
    pub const UPGRADABLE: u64 = 4;
    /// A rwlock taken as [`UPGRADABLE`] is upgraded to write.
    pub const UPGRADE: u64 = 5;
}

/// How a wait for a lock ended.
pub mod outcome {
    /// The lock was taken.
    pub const ACQUIRED: u64 = 0;
    /// The wait timed out.
    pub const TIMED_OUT: u64 = 1;
    /// The wait was cancelled.
    pub const CANCELLED: u64 = 2;
    /// The wait panicked.
    pub const PANICKED: u64 = 3;
}

/// A name, identified by the label's address: two labels with the same text are different names.
#[derive(Debug)]
#[repr(C)]
pub struct Label {
    text: *const u8,
    len: usize,
}

// SAFETY: a label is never written after `new`, and its text is `'static`.
unsafe impl Sync for Label {}
// SAFETY: as above.
unsafe impl Send for Label {}

impl Label {
    /// Returns a label with a text.
    ///
    /// ```
    /// static CHECKOUT: tiptoe_port::Label = tiptoe_port::Label::new("checkout");
    /// assert_eq!(CHECKOUT.text(), "checkout");
    /// ```
    pub const fn new(text: &'static str) -> Label {
        Label {
            text: text.as_ptr(),
            len: text.len(),
        }
    }

    /// Returns the text.
    pub fn text(&self) -> &'static str {
        // SAFETY: pointer and length are a `&'static str`'s, never written.
        unsafe { core::str::from_utf8_unchecked(core::slice::from_raw_parts(self.text, self.len)) }
    }
}

type Begin = unsafe extern "C" fn(label: *const Label, what: u64) -> u64;
type End = unsafe extern "C" fn(token: u64, what: u64);

fn at(address: usize) -> *const () {
    core::ptr::with_exposed_provenance(address)
}

/// The words that a library shares with the agent. The layout must not change, because a tiptoe of another version may
/// attach.
#[derive(Debug)]
#[repr(C)]
pub struct Port {
    magic: u64,
    kind: u32,
    bytes: u32,
    /// 0 until an agent attaches. The agent writes this field and those below.
    begin: AtomicUsize,
    end: AtomicUsize,
    open: AtomicU8,
}

impl Port {
    /// `tiptoe`, and the version of the layout.
    pub const MAGIC: u64 = u64::from_le_bytes(*b"tiptoe\x01\0");
    /// A port's size.
    pub const BYTES: usize = size_of::<Port>();
    /// The offset of the field `begin`; `end` follows.
    pub const CALLS_OFFSET: usize = core::mem::offset_of!(Port, begin);
    /// The offset of the field `open`.
    pub const OPEN_OFFSET: usize = core::mem::offset_of!(Port, open);

    /// Returns a port without an agent.
    ///
    /// ```
    /// use tiptoe_port::{Kind, Label, Port};
    ///
    /// #[used]
    /// #[unsafe(link_section = "tiptoe_port")]
    /// static PORT: Port = Port::new(Kind::Scopes);
    /// static LABEL: Label = Label::new("checkout");
    ///
    /// assert_eq!(PORT.begin(&LABEL, 0), 0); // no agent
    /// PORT.end(0, 0);
    /// ```
    pub const fn new(kind: Kind) -> Port {
        Port {
            magic: Self::MAGIC,
            kind: kind as u32,
            bytes: Self::BYTES as u32,
            begin: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            open: AtomicU8::new(0),
        }
    }

    /// Returns whether an agent is attached.
    #[inline]
    pub fn is_open(&self) -> bool {
        // Acquire: the addresses must be loaded after this byte, because the agent writes the byte last.
        self.open.load(Ordering::Acquire) != 0
    }

    /// Calls the agent's `begin`. Returns a token for `end`, or 0 without an agent.
    #[inline]
    pub fn begin(&self, label: &'static Label, what: u64) -> u64 {
        if !self.is_open() {
            return 0;
        }
        // Relaxed: the agent wrote the address before it opened the port, and never changes it.
        let function = self.begin.load(Ordering::Relaxed);
        // SAFETY: only an agent opens a port, after it wrote the address of such a function. The agent's code stays
        // mapped.
        let begin = unsafe { core::mem::transmute::<*const (), Begin>(at(function)) };
        // SAFETY: the label is `'static`, as the function demands.
        unsafe { begin(label, what) }
    }

    /// Calls the agent's `end`, which must follow `begin` even if the agent has detached.
    #[inline]
    pub fn end(&self, token: u64, what: u64) {
        if token == 0 {
            return;
        }
        // Relaxed: the `begin` that returned the token saw the port open, so `end` was written before.
        let function = self.end.load(Ordering::Relaxed);
        // SAFETY: as in `begin`.
        let end = unsafe { core::mem::transmute::<*const (), End>(at(function)) };
        // SAFETY: the function accepts any token.
        unsafe { end(token, what) }
    }

    /// Returns the kind, if the bytes are a port.
    pub fn kind_of(bytes: &[u8]) -> Option<Kind> {
        let words = |at: usize| {
            bytes
                .get(at..at + 4)?
                .try_into()
                .ok()
                .map(u32::from_le_bytes)
        };
        let magic = bytes.get(..8)?.try_into().ok().map(u64::from_le_bytes)?;
        let sound = magic == Self::MAGIC && words(12)? as usize == Self::BYTES;
        Kind::of(words(8)?).filter(|_| sound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use core::sync::atomic::AtomicU64;

    static SEEN: AtomicU64 = AtomicU64::new(0);

    unsafe extern "C" fn begin(label: *const Label, what: u64) -> u64 {
        // SAFETY: the caller passes a label of the test.
        let len = unsafe { &*label }.text().len() as u64;
        SEEN.store(len << 8 | what, Ordering::SeqCst);
        7
    }

    unsafe extern "C" fn end(token: u64, what: u64) {
        SEEN.store(token << 8 | what, Ordering::SeqCst);
    }

    #[test]
    fn an_agent_is_called_while_it_is_attached() {
        static PORT: Port = Port::new(Kind::Locks);
        static LABEL: Label = Label::new("abc");
        assert_eq!(PORT.begin(&LABEL, 2), 0);
        PORT.begin
            .store(begin as *const () as usize, Ordering::SeqCst);
        PORT.end.store(end as *const () as usize, Ordering::SeqCst);
        PORT.open.store(1, Ordering::SeqCst);
        let token = PORT.begin(&LABEL, 2);
        assert_eq!((token, SEEN.load(Ordering::SeqCst)), (7, 0x302));
        PORT.open.store(0, Ordering::SeqCst);
        assert_eq!(PORT.begin(&LABEL, 2), 0);
        PORT.end(0, 5);
        assert_eq!(SEEN.load(Ordering::SeqCst), 0x302, "nothing had begun");
        PORT.end(token, 5);
        assert_eq!(
            SEEN.load(Ordering::SeqCst),
            0x705,
            "what has begun is ended"
        );
    }

    /// `tests/targets/scoped.c` has the same check of `tiptoe.h`.
    #[test]
    fn its_layout_is_that_of_the_header() {
        let offsets = [Port::BYTES, Port::CALLS_OFFSET, Port::OPEN_OFFSET];
        assert_eq!(offsets, [40, 16, 32]);
        assert_eq!(core::mem::offset_of!(Port, end), 24);
        assert_eq!(Port::MAGIC, 0x0001_656f_7470_6974);
    }

    #[test]
    fn a_port_is_known_by_its_bytes() {
        let words = [Port::MAGIC, 2 | (Port::BYTES as u64) << 32];
        let bytes: std::vec::Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(Port::kind_of(&bytes), Some(Kind::Locks));
        assert_eq!(Port::kind_of(&bytes[..15]), None);
        for (at, byte) in [(0, 0), (6, 9), (8, 3), (12, 1)] {
            let mut other = bytes.clone();
            other[at] = byte;
            assert_eq!(Port::kind_of(&other), None, "{at}");
        }
    }
}
