//! Labels what a program does, for tiptoe to tell its cost by.
//!
//! A *scope* is a label on what a thread does now: a tenant, a class of requests, a phase. While `tiptoe stat --by scope`,
//! `tiptoe probe --by scope` or `tiptoe lock --by scope` is attached, times, events, hits and waits are charged to the
//! scope that they happen in; scopes within scopes are told apart (`checkout/payment`), as cgroups are. At all other
//! times entering a scope is a load and a branch.
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
//! A future takes its scope along, from poll to poll, whatever thread polls it:
//!
//! ```
//! # use tiptoe_scope::Scope;
//! # static SEARCH: Scope = Scope::new("search");
//! # async fn find() {}
//! # fn spawn(_: impl Future + Send) {}
//! spawn(SEARCH.with(find()));
//! ```
//!
//! In C and C++ `include/tiptoe.h` has the same.
//!
//! *Cost*: entering and leaving 1 ns where nobody traces, 25 ns at most where somebody does (`tiptoe bench scope`), without
//! a system call or a lock; memory of its own only in tiptoe's agent.
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

/// Where tiptoe's agent is met.
#[used]
#[unsafe(link_section = "tiptoe_port")]
static PORT: Port = Port::new(Kind::Scopes);

/// A label that threads can be in. Two with one name are told as one.
#[derive(Debug)]
pub struct Scope {
    label: Label,
}

/// In a scope, until it is dropped. It is the thread's own: what moves between threads is a future ([`Scope::with`]).
#[derive(Debug)]
#[must_use = "the scope is left where this is dropped: `let _in = …`"]
pub struct Entered {
    token: u64,
    /// Neither `Send` nor `Sync`.
    thread: PhantomData<*const ()>,
}

impl Scope {
    /// A scope of this name: one that is known when the program is compiled, in a `static`.
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

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.label.text()
    }

    /// The calling thread enters it, within the one that it is in, and leaves it where what comes back is dropped.
    /// Scopes are left in the opposite order; who leaves one has left those entered since.
    #[inline]
    pub fn enter(&'static self) -> Entered {
        self.enter_as(0)
    }

    /// Runs this in it.
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

    /// A future that is in it while it is polled.
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

/// Whether somebody asks for scopes now: what only serves to name one can be left out otherwise.
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
