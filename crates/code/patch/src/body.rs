use tiptoe_event::Filter;

use crate::Refusal;
use crate::futex::Notice;
use crate::hits::Hits;
use crate::shape::Shape;

/// What a patch does at each hit (when a thread runs it).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Adds one to the thread's counter `slot`.
    Count {
        /// The counter.
        slot: u32,
        /// Which hits.
        hits: Hits,
    },
    /// Writes a record of each hit, with the first two arguments. Its counters are [`tiptoe_wire::ring::words`].
    Record {
        /// The first counter.
        slot: u32,
        /// The distance in bytes from the thread's counters to its records.
        ring: u32,
        /// Which hits.
        hits: Hits,
    },
    /// Counts calls and returns, and times calls if `timed`. Its counters are [`tiptoe_wire::calls::words`].
    Call {
        /// The first counter.
        slot: u32,
        /// The probe's number, below `calls::MAX_PROBES`.
        probe: u32,
        /// Whether calls are timed.
        timed: bool,
        /// Which hits.
        hits: Hits,
    },
    /// As `Call`, for the function of `--under`. Marks the thread during the call, for [`Hits::under`].
    Gate {
        /// The first counter.
        slot: u32,
        /// The probe's number.
        probe: u32,
    },
    /// At a function's entry, calls the hook of the agent (our library) with `what`. If the hook sets the zero flag,
    /// the function returns at once.
    Intercept {
        /// One of [`tiptoe_wire::calls::intercepted`].
        what: u32,
        /// Whether the patch stays between sessions.
        stay: bool,
    },
    /// Calls the hook with `nr` before a system call. The call then runs at its own address, unless the hook has
    /// already made the call.
    Syscall {
        /// The call's number.
        nr: u32,
        /// %fs offset of [`tiptoe_wire::tls::RECALL`]; `None` outside libc ([`tiptoe_wire::calls::NOT_LIBCS`]).
        recall: Option<i32>,
    },
    /// Calls the hook with -1 before a system call whose number is only in %eax.
    SyscallAny {
        /// The numbers below 512 to hook, a bit each.
        numbers: [u64; 8],
        /// As in [`Body::Syscall`].
        recall: i32,
        /// The notice of futex calls, if they are hooked.
        futex: Option<Notice>,
    },
    /// Notifies the agent before or after a futex call, which runs at its own address.
    Futex(Notice),
    /// Notifies the agent at the entry of a function that takes or releases a lock.
    Hold {
        /// The notice.
        notice: Notice,
        /// Which calls.
        filter: Filter,
    },
}

impl Body {
    /// Returns the shape of the function's first instruction if the body needs an entry and `shape` is none, or needs
    /// an argument overwritten before `shape`; otherwise `shape`.
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
