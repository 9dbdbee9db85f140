//! Where a program that links one of tiptoe's libraries meets tiptoe's agent.
//!
//! A library has a [`Port`] in the section [`SECTION`] of whatever file it is linked into. While a tiptoe
//! that asks for it is attached, the port is open, and in it stand the addresses of two functions of the
//! agent's; otherwise the library does nothing, which costs it one load and one branch. Sections stay
//! where symbols are stripped, so tiptoe finds ports in any file that has section headers, and relies on
//! [`Port::MAGIC`] besides.
//!
//! The agent's code stays in the program for good, and so do the addresses once they are written: who
//! finds a port open may call them at any later time. A call that comes after the session's end does
//! nothing. It is one byte that opens and closes a port, as the file that it is in may be unmapped at any
//! moment: so the agent writes through the kernel, which writes no more than a byte at once.
//!
//! `tiptoe.h` has the same for C; a test compares both.
#![no_std]
#![warn(missing_docs)]

use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// The section that ports are in.
pub const SECTION: &str = "tiptoe_port";

/// What a library tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Which scope a thread is in. `begin` is given the scope's name and flags ([`RESUMES`]), and is
    /// called where a thread enters it; `end` is given what `begin` returned.
    Scopes = 1,
    /// Which lock a thread waits for. `begin` is given the lock's name and address, with one of [`mode`]
    /// from bit [`MODE_SHIFT`] on, and is called where the program takes the lock; `end` is given what
    /// `begin` returned, and one of [`outcome`].
    Locks = 2,
}

impl Kind {
    /// The kind with a number.
    pub fn of(number: u32) -> Option<Kind> {
        [Kind::Scopes, Kind::Locks]
            .into_iter()
            .find(|kind| *kind as u32 == number)
    }
}

/// To [`Kind::Scopes`]' `begin`: the thread comes back to what it had entered before (a future that is
/// polled again), which is no new entry.
pub const RESUMES: u64 = 1;

/// To [`Kind::Locks`]' `begin`: from this bit on it has how the lock is taken.
pub const MODE_SHIFT: u32 = 56;

/// How a lock is taken.
pub mod mode {
    /// A mutex.
    pub const MUTEX: u64 = 1;
    /// To write.
    pub const WRITE: u64 = 2;
    /// To read.
    pub const READ: u64 = 3;
    /// To read, and maybe to write.
    pub const UPGRADABLE: u64 = 4;
    /// From the former to writing.
    pub const UPGRADE: u64 = 5;
}

/// How a wait for a lock ended.
pub mod outcome {
    /// With the lock.
    pub const ACQUIRED: u64 = 0;
    /// Its time was over.
    pub const TIMED_OUT: u64 = 1;
    /// It was called off.
    pub const CANCELLED: u64 = 2;
    /// By a panic.
    pub const PANICKED: u64 = 3;
}

/// A name that stays where it is, by whose address it is known: two labels with one text are two.
#[derive(Debug)]
#[repr(C)]
pub struct Label {
    text: *const u8,
    len: usize,
}

// SAFETY: a label is never written after it was made, and what it points to lives for good.
unsafe impl Sync for Label {}
// SAFETY: as above.
unsafe impl Send for Label {}

impl Label {
    /// A label with a text.
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

    /// Its text.
    pub fn text(&self) -> &'static str {
        // SAFETY: they were those of a `&'static str`, and nobody writes them.
        unsafe { core::str::from_utf8_unchecked(core::slice::from_raw_parts(self.text, self.len)) }
    }
}

/// What `begin` of a port is; see [`Kind`].
type Begin = unsafe extern "C" fn(label: *const Label, what: u64) -> u64;
/// What `end` of a port is.
type End = unsafe extern "C" fn(token: u64, what: u64);

/// A function that somebody else has put there.
fn at(address: usize) -> *const () {
    core::ptr::with_exposed_provenance(address)
}

/// Two functions of the agent's, while there is one. Its form is a contract: other versions of tiptoe
/// than the library's may attach.
#[derive(Debug)]
#[repr(C)]
pub struct Port {
    magic: u64,
    kind: u32,
    bytes: u32,
    /// An address, once an agent was there; written from outside, as all below.
    begin: AtomicUsize,
    end: AtomicUsize,
    /// Not 0 while an agent is there; the addresses are there before that.
    open: AtomicU8,
}

impl Port {
    /// What a port begins with: `tiptoe`, and the version of its form.
    pub const MAGIC: u64 = u64::from_le_bytes(*b"tiptoe\x01\0");
    /// Bytes of a port.
    pub const BYTES: usize = size_of::<Port>();
    /// Where in it the address of `begin` stands, and behind it that of `end`. (agent)
    pub const CALLS_OFFSET: usize = core::mem::offset_of!(Port, begin);
    /// Where in it the byte stands that opens it. (agent)
    pub const OPEN_OFFSET: usize = core::mem::offset_of!(Port, open);

    /// A port without an agent.
    ///
    /// ```
    /// use tiptoe_port::{Kind, Label, Port};
    ///
    /// #[used]
    /// #[unsafe(link_section = "tiptoe_port")]
    /// static PORT: Port = Port::new(Kind::Scopes);
    /// static LABEL: Label = Label::new("checkout");
    ///
    /// assert_eq!(PORT.begin(&LABEL, 0), 0); // nobody is there
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

    /// Whether an agent is there.
    #[inline]
    pub fn is_open(&self) -> bool {
        // Acquire: the agent writes the addresses before this byte, each by a system call.
        self.open.load(Ordering::Acquire) != 0
    }

    /// Tells the agent that something begins, and returns what [`Port::end`] is to be given; 0 where
    /// no agent is there.
    #[inline]
    pub fn begin(&self, label: &'static Label, what: u64) -> u64 {
        if !self.is_open() {
            return 0;
        }
        // Relaxed: it is there before the port is open, and is not changed any more.
        let function = self.begin.load(Ordering::Relaxed);
        // SAFETY: only an agent opens a port, behind the address of such a function, which stays.
        let begin = unsafe { core::mem::transmute::<*const (), Begin>(at(function)) };
        // SAFETY: the label lives for good.
        unsafe { begin(label, what) }
    }

    /// Tells the agent that what `begin` returned this for is over, also where it is about to go.
    #[inline]
    pub fn end(&self, token: u64, what: u64) {
        if token == 0 {
            return;
        }
        // Relaxed: as in `begin`, which has returned this token: it has found the port open.
        let function = self.end.load(Ordering::Relaxed);
        // SAFETY: as in `begin`.
        let end = unsafe { core::mem::transmute::<*const (), End>(at(function)) };
        // SAFETY: any token may be given.
        unsafe { end(token, what) }
    }

    /// The kind that bytes of a file or of memory say that they are a port of; `None` where they are
    /// none of this form.
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
        // SAFETY: a label of the test's.
        let len = unsafe { &*label }.text().len() as u64;
        SEEN.store(len << 8 | what, Ordering::SeqCst);
        7
    }

    unsafe extern "C" fn end(token: u64, what: u64) {
        SEEN.store(token << 8 | what, Ordering::SeqCst);
    }

    #[test]
    fn an_agent_is_told_while_it_is_there() {
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

    /// `tests/targets/scoped.c` says the same of the header's.
    #[test]
    fn its_form_is_that_of_the_header() {
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
