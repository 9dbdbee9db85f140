//! Labels what a program does, so that tiptoe can report the cost of each label.
//!
//! A *scope* is a label on what a thread does now: a tenant, a class of requests, a phase. While
//! `tiptoe stat --by scope`, `tiptoe probe --by scope` or `tiptoe lock --by scope` is attached, times, events, hits and
//! waits are charged to the scope in which they happen. Nested scopes are charged separately (`checkout/payment`), as
//! cgroups are. At all other times entering a scope is a load and a branch.
//!
//! ```
//! use tiptoe_scope::Scope;
//!
//! static CHECKOUT: Scope = Scope::new("checkout");
//!
//! fn checkout() {
//!     let _in = CHECKOUT.enter();
//!     // what is done here is charged to `checkout`
//! }
//! # checkout();
//! ```
//!
//! A future keeps its scope from poll to poll, on any thread that polls it:
//!
//! ```
//! # use tiptoe_scope::Scope;
//! # static SEARCH: Scope = Scope::new("search");
//! # async fn find() {}
//! # fn spawn(_: impl Future + Send) {}
//! spawn(SEARCH.with(find()));
//! ```
//!
//! C and C++ programs use `include/tiptoe.h`.
//!
//! *Cost*: entering and leaving takes 1 ns without a tracer, and at most 25 ns with one (`tiptoe-dev bench scope`). It
//! makes no system call and takes no lock, and only tiptoe's agent allocates memory for it.
#![cfg_attr(not(feature = "std"), no_std)]
#![warn(missing_docs)]

use core::marker::PhantomData;

use tiptoe_port::{Kind, Label, Port};

mod future;
#[cfg(feature = "std")]
mod named;

pub use future::With;

/// `tiptoe.h`, for build scripts that compile C beside Rust.
pub const HEADER: &str = include_str!("../include/tiptoe.h");

/// The agent writes here the addresses of its functions, which entering and leaving a scope call while it is attached.
#[used]
#[unsafe(link_section = "tiptoe_port")]
static PORT: Port = Port::new(Kind::Scopes);

/// A label that threads can be in. Two scopes of the same name are reported as one.
#[derive(Debug)]
pub struct Scope {
    label: Label,
}

/// A guard: the thread is in the scope until the guard is dropped. The guard must stay on its thread; for work that
/// moves between threads use a future ([`Scope::with`]).
#[derive(Debug)]
#[must_use = "the scope is left where this is dropped: `let _in = …`"]
pub struct Entered {
    token: u64,
    /// Makes the type neither `Send` nor `Sync`.
    thread: PhantomData<*const ()>,
}

impl Scope {
    /// Creates a scope with this name. The scope must be in a `static`; for a name that is made at run time use
    /// `Scope::named`.
    ///
    /// ```
    /// static CHECKOUT: tiptoe_scope::Scope = tiptoe_scope::Scope::new("checkout");
    /// assert_eq!(CHECKOUT.name(), "checkout");
    /// ```
    pub const fn new(name: &'static str) -> Scope {
        Scope {
            label: Label::new(name),
        }
    }

    /// Returns the scope's name.
    pub fn name(&self) -> &'static str {
        self.label.text()
    }

    /// Makes the calling thread enter the scope, inside its current scope, until the returned guard is dropped. Scopes
    /// must be left in the opposite order, because leaving a scope also leaves all that were entered since.
    #[inline]
    pub fn enter(&'static self) -> Entered {
        self.enter_as(0)
    }

    /// Runs `act` in this scope.
    ///
    /// ```
    /// static PARSE: tiptoe_scope::Scope = tiptoe_scope::Scope::new("parse");
    /// assert_eq!(PARSE.run(|| "7".parse()), Ok(7));
    /// ```
    #[inline]
    pub fn run<T>(&'static self, act: impl FnOnce() -> T) -> T {
        let _in = self.enter();
        act()
    }

    /// Returns a future that is in this scope while it is polled.
    ///
    /// ```
    /// # let waker = std::task::Waker::noop();
    /// # let mut context = std::task::Context::from_waker(waker);
    /// static SEARCH: tiptoe_scope::Scope = tiptoe_scope::Scope::new("search");
    /// let search = std::pin::pin!(SEARCH.with(async { 7 }));
    /// # assert_eq!(search.poll(&mut context), std::task::Poll::Ready(7));
    /// ```
    pub fn with<F: Future>(&'static self, future: F) -> With<F> {
        With::new(self, future)
    }

    #[inline]
    pub(crate) fn enter_as(&'static self, flags: u64) -> Entered {
        Entered {
            token: PORT.begin(&self.label, flags),
            thread: PhantomData,
        }
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        PORT.end(self.token, 0);
    }
}

/// Returns whether a tracer uses scopes now. Otherwise work that only serves to name a scope can be skipped.
#[inline]
pub fn is_traced() -> bool {
    PORT.is_open()
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;

    static OUTER: Scope = Scope::new("outer");
    static INNER: Scope = Scope::new("inner");

    #[test]
    fn the_header_has_the_magic_of_ports() {
        assert!(HEADER.contains(&std::format!("{:#018x}ull", Port::MAGIC)));
    }

    #[test]
    fn without_tiptoe_nothing_happens() {
        assert!(!is_traced());
        let outer = OUTER.enter();
        let inner = INNER.enter();
        assert_eq!((outer.token, inner.token), (0, 0));
        drop(outer);
        drop(inner);
        assert_eq!(OUTER.run(|| INNER.name()), "inner");
    }
}
