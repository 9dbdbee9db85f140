//! What a patch does when a thread runs it.

use tiptoe_event::Filter;

use crate::Refusal;
use crate::futex::Notice;
use crate::hits::Hits;
use crate::shape::Shape;

/// What a patch does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Adds one to the thread's counter `slot`.
    Count {
        /// The counter's index.
        slot: u32,
        /// Which hits count.
        hits: Hits,
    },
    /// Writes a record of each hit, with the first two arguments, to the thread's ring. Counters
    /// are [`tiptoe_wire::ring::words`], from `slot` on.
    Record {
        /// The first counter's index.
        slot: u32,
        /// The ring's distance from the thread's counters, in bytes.
        ring: u32,
        /// Which hits are recorded.
        hits: Hits,
    },
    /// Follows each call to its return: counts both, and times it if `timed`. Counters are
    /// [`tiptoe_wire::calls::words`], from `slot` on.
    Call {
        /// The first counter's index.
        slot: u32,
        /// The probe's number among those that follow calls (`calls::MAX_PROBES`).
        probe: u32,
        /// Whether calls are timed.
        timed: bool,
        /// Which hits count.
        hits: Hits,
    },
    /// Follows each call to its return, and marks the thread as inside, for hits of other probes.
    Gate {
        /// The first counter's index.
        slot: u32,
        /// The probe's number, as in [`Body::Call`].
        probe: u32,
    },
    /// Calls the hook with `what` at a function's entry. Returns to the caller if the hook sets the
    /// zero flag.
    Intercept {
        /// One of [`tiptoe_wire::calls::intercepted`].
        what: u32,
        /// Whether the patch stays between sessions.
        stay: bool,
    },
    /// Calls the hook with `nr` before a system call, which is then made at its own address, unless
    /// the hook made it and left the result in %rax.
    Syscall {
        /// The system call's number.
        nr: u32,
        /// %fs offset of the word that makes the thread call the hook again, because a signal was
        /// held back after the hook looked. `None` if the call is not libc's: the hook's argument
        /// has [`tiptoe_wire::calls::NOT_LIBCS`].
        recall: Option<i32>,
    },
    /// As [`Body::Syscall`], for a call whose number is only in %eax. Calls the hook with -1, for
    /// the numbers below 512 whose bits are set.
    SyscallAny {
        /// The numbers for which the hook is called, a bit each.
        numbers: [u64; 8],
        /// As in [`Body::Syscall`].
        recall: i32,
        /// Also notifies the agent of futex calls, as [`Body::Futex`] does.
        futex: Option<Notice>,
    },
    /// Notifies the agent of a futex call, before or after its system call, which is made at its
    /// own address.
    Futex(Notice),
    /// Notifies the agent at a function's entry of calls that pass the filter.
    Hold {
        /// The notice.
        notice: Notice,
        /// Which calls.
        filter: Filter,
    },
}

impl Body {
    /// Returns the shape for this body: the entry's first instruction if the body reads an argument
    /// overwritten before the site.
    pub(crate) fn suited<'a>(&self, shape: &'a Shape) -> Result<&'a Shape, Refusal> {
        let overwritten = |arg: &u8| shape.overwritten >> arg & 1 == 1;
        let needs_argument = (0..6).filter(overwritten).any(|arg| self.looks_at(arg));
        match (&shape.unmoved, self) {
            (Some(first), Body::Count { .. } | Body::Record { .. }) if needs_argument => Ok(first),
            (_, Body::Call { .. } | Body::Hold { .. }) if needs_argument => shape.unmoved_entry(),
            _ if self.is_entry_only() && !shape.entry => shape.unmoved_entry(),
            _ => Ok(shape),
        }
    }

    /// Returns whether the body needs the return address on the stack.
    pub(crate) fn is_entry_only(&self) -> bool {
        matches!(
            self,
            Body::Call { .. } | Body::Gate { .. } | Body::Intercept { .. } | Body::Hold { .. }
        )
    }

    fn looks_at(&self, arg: u8) -> bool {
        match self {
            Body::Count { hits, .. } | Body::Call { hits, .. } => hits.look_at(arg),
            Body::Record { hits, .. } => arg < 2 || hits.look_at(arg),
            Body::Hold { filter, .. } => filter.comparisons().iter().any(|c| c.arg == arg),
            _ => false,
        }
    }
}
