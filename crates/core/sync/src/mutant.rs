//! loom's atomics, from which a model can remove one guarantee.
//!
//! A model proves something only if wrong code fails it. Its mutants run the shipped code, but one
//! thread has [lost](lose) an [`Edge`]: fences of that order do nothing, accesses of that order are
//! relaxed, or exchanges are torn in two. So the code needs no test hooks.
//!
//! A signal handler runs to its end while its thread is stopped, so a model runs it before each
//! [access](interrupt) in turn.

extern crate std;

use core::cell::{Cell, RefCell};
use std::boxed::Box;

pub use loom::sync::atomic::Ordering;

/// A guarantee that a thread can lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// Fences of this order do nothing.
    Fence(Ordering),
    /// Accesses of this order are relaxed.
    Access(Ordering),
    /// An exchange is a read, and later a write.
    Exchange,
}

/// A handler, and how many accesses of the thread are left before it runs.
type Signal = (usize, Box<dyn FnOnce()>);

loom::thread_local! {
    static LOST: Cell<Option<Edge>> = Cell::new(None);
    static SIGNAL: RefCell<Option<Signal>> = RefCell::new(None);
}

/// Makes the calling thread lose `edge` and no other; `None` restores it.
pub fn lose(edge: Option<Edge>) {
    LOST.with(|lost| lost.set(edge));
}

/// Runs `handler` on the calling thread before its `nth` access from here.
pub fn interrupt(nth: usize, handler: impl FnOnce() + 'static) {
    SIGNAL.with(|signal| *signal.borrow_mut() = Some((nth, Box::new(handler))));
}

/// Returns whether [`interrupt`]'s handler did not run, and cancels it.
pub fn was_missed() -> bool {
    SIGNAL.with(|signal| signal.borrow_mut().take().is_some())
}

/// Runs [`interrupt`]'s handler before its access.
fn step() {
    let due = SIGNAL.with(|signal| {
        let mut signal = signal.borrow_mut();
        match signal.as_mut()? {
            (0, _) => signal.take(),
            (left, _) => {
                *left -= 1;
                None
            }
        }
    });
    if let Some((_, handler)) = due {
        handler();
    }
}

fn has_lost(edge: Edge) -> bool {
    LOST.with(|lost| lost.get() == Some(edge))
}

fn access(order: Ordering) -> Ordering {
    match has_lost(Edge::Access(order)) {
        true => Ordering::Relaxed,
        false => order,
    }
}

/// Does what [`core::sync::atomic::fence`] does, unless the thread has lost fences of this order.
pub fn fence(order: Ordering) {
    if !has_lost(Edge::Fence(order)) {
        loom::sync::atomic::fence(order);
    }
}

macro_rules! atomic {
    ($name:ident, $value:ty) => {
        /// An atomic integer with the methods that the engines use.
        #[derive(Debug, Default)]
        pub struct $name(loom::sync::atomic::$name);

        impl $name {
            /// Returns a new one.
            pub fn new(value: $value) -> Self {
                $name(loom::sync::atomic::$name::new(value))
            }

            /// Loads the value.
            pub fn load(&self, order: Ordering) -> $value {
                step();
                self.0.load(access(order))
            }

            /// Stores a value.
            pub fn store(&self, value: $value, order: Ordering) {
                step();
                self.0.store(value, access(order));
            }

            /// Adds, and returns the old value.
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                step();
                match has_lost(Edge::Exchange) {
                    true => self.torn(|old| old.wrapping_add(value)),
                    false => self.0.fetch_add(value, access(order)),
                }
            }

            /// Subtracts, and returns the old value.
            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                step();
                match has_lost(Edge::Exchange) {
                    true => self.torn(|old| old.wrapping_sub(value)),
                    false => self.0.fetch_sub(value, access(order)),
                }
            }

            /// Sets bits, and returns the old value.
            pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                step();
                match has_lost(Edge::Exchange) {
                    true => self.torn(|old| old | value),
                    false => self.0.fetch_or(value, access(order)),
                }
            }

            /// Stores a value, and returns the old one.
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                step();
                match has_lost(Edge::Exchange) {
                    true => self.torn(|_| value),
                    false => self.0.swap(value, access(order)),
                }
            }

            /// Stores `new` if the value is `current`; returns the old value.
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                step();
                if !has_lost(Edge::Exchange) {
                    return self
                        .0
                        .compare_exchange(current, new, access(success), failure);
                }
                let found = self.torn(|old| if old == current { new } else { old });
                if found == current {
                    Ok(found)
                } else {
                    Err(found)
                }
            }

            fn torn(&self, change: impl FnOnce($value) -> $value) -> $value {
                let old = self.0.load(Ordering::Acquire);
                step();
                self.0.store(change(old), Ordering::Release);
                old
            }
        }
    };
}

atomic!(AtomicU32, u32);
atomic!(AtomicU64, u64);
