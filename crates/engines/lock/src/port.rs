//! Where tiptoe's agent is told of waits, while one is there.

use core::marker::PhantomData;

use tiptoe_port::{Kind, Label, MODE_SHIFT, Port, outcome};

use crate::class::Class;
use crate::told::Outcome;

/// Where the agent is met.
#[used]
#[unsafe(link_section = "tiptoe_port")]
static PORT: Port = Port::new(Kind::Locks);

struct Named<C>(PhantomData<C>);

impl<C: Class> Named<C> {
    const LABEL: &'static Label = &Label::new(C::NAME);
}

/// Whether a `tiptoe lock` is attached, which is told of waits by the locks' own names.
///
/// ```
/// assert!(!tiptoe_lock::is_traced());
/// ```
#[inline]
pub fn is_traced() -> bool {
    PORT.is_open()
}

/// A thread is about to wait. What comes back is for [`end`]. Where this is called from is taken for
/// where the program takes the lock, so it goes into the caller's own code.
#[inline]
pub(crate) fn begin<C: Class>(address: usize, mode: u64) -> u64 {
    PORT.begin(Named::<C>::LABEL, address as u64 | mode << MODE_SHIFT)
}

/// The wait is over.
#[inline]
pub(crate) fn end(token: u64, how: Outcome) {
    let how = match how {
        Outcome::Acquired => outcome::ACQUIRED,
        Outcome::TimedOut => outcome::TIMED_OUT,
        Outcome::Cancelled => outcome::CANCELLED,
        Outcome::Panicked => outcome::PANICKED,
    };
    PORT.end(token, how);
}
