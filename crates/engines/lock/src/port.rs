//! Sends waits to tiptoe's agent, its code in the program, through a *port*, a table that the agent fills.

use core::marker::PhantomData;

use tiptoe_port::{Kind, Label, MODE_SHIFT, Port, outcome};

use crate::acquisition::Outcome;
use crate::class::Class;

#[used]
#[unsafe(link_section = "tiptoe_port")]
static PORT: Port = Port::new(Kind::Locks);

struct ClassLabel<C>(PhantomData<C>);

impl<C: Class> ClassLabel<C> {
    const LABEL: &'static Label = &Label::new(C::NAME);
}

/// Returns whether a `tiptoe lock` is attached.
///
/// ```
/// assert!(!tiptoe_lock::is_traced());
/// ```
#[inline]
pub fn is_traced() -> bool {
    PORT.is_open()
}

/// Reports that a wait begins. Returns a token for [`end`]. Must be inlined, because the agent reports the return
/// address as the call site.
#[inline]
pub(crate) fn begin<C: Class>(address: usize, mode: u64) -> u64 {
    PORT.begin(ClassLabel::<C>::LABEL, address as u64 | mode << MODE_SHIFT)
}

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
