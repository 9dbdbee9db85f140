//! Labels what a program does, so that tiptoe can report the cost of each label.
//!
//! A *scope* is what a thread does now: a tenant, a class of requests, a phase. While `tiptoe stat`, `probe` or
//! `lock` is attached with `--by scope`, events and waits are charged to the scope in which they happen. A nested
//! scope is charged separately, as `checkout/payment`.
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
//! A future keeps its scope on any thread that polls it:
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
//! *Cost*: entering and leaving takes 1 ns without a tracer, at most 25 ns with one (`tiptoe-dev bench scope`), and no
//! system call, lock or allocation.
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

/// tiptoe's library in the program writes the addresses of its functions here.
#[used]
#[unsafe(link_section = "tiptoe_port")]
static PORT: Port = Port::new(Kind::Scopes);

/// A scope. Scopes of the same name are reported as one.
#[derive(Debug)]
pub struct Scope {
    label: Label,
}

/// Keeps its thread in the scope until dropped. This guard cannot move to another thread; for work that moves, use
/// [`Scope::with`].
#[derive(Debug)]
#[must_use = "the scope is left where this is dropped: `let _in = …`"]
pub struct Entered {
    token: u64,
    /// Makes the guard neither `Send` nor `Sync`.
    thread: PhantomData<*const ()>,
}

impl Scope {
    /// Returns a scope, which must be in a `static`; for names made at run time use `Scope::named`.
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

    /// Enters the scope, inside the thread's current scope, until the guard is dropped. The scope entered last must
    /// be left first, because leaving a scope also leaves all entered after it.
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

/// Returns whether a tracer uses scopes now.
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
