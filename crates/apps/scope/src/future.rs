use core::pin::Pin;
use core::task::{Context, Poll};

use tiptoe_port::RESUMES;

use crate::Scope;

/// A future in a scope: see [`Scope::with`]. Only the first poll counts as an entry.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct With<F> {
    scope: &'static Scope,
    has_begun: bool,
    future: F,
}

impl<F> With<F> {
    pub(crate) fn new(scope: &'static Scope, future: F) -> With<F> {
        With {
            scope,
            has_begun: false,
            future,
        }
    }
}

impl<F: Future> Future for With<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: `future` is pinned because `self` is, and is never moved out; the other fields need no pinning.
        let (this, future) = unsafe {
            let this = self.get_unchecked_mut();
            (
                (this.scope, &mut this.has_begun),
                Pin::new_unchecked(&mut this.future),
            )
        };
        let (scope, has_begun) = this;
        let flags = if *has_begun { RESUMES } else { 0 };
        *has_begun = true;
        let _in = scope.enter_as(flags);
        future.poll(context)
    }
}
