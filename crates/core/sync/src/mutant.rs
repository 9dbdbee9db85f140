//! loom's atomics, from which a model can remove one guarantee.
//!
//! A model proves something only if it fails for wrong code. So its *mutants*, which must fail, run the shipped code
//! in threads that have [lost](lose) an [`Edge`]. Models of signal handlers are repeated for each access of a thread,
//! and each time the handler runs [before](interrupt) that access.

extern crate std;

use core::cell::{Cell, RefCell};
use std::boxed::Box;

pub use loom::sync::atomic::Ordering;

/// A guarantee that a thread can lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// Fences of this ordering have an effect.
    Fence(Ordering),
    /// Accesses have this ordering; otherwise they are Relaxed.
    Access(Ordering),
    /// An exchange is atomic; otherwise it is a load, then a store.
    Exchange,
}

type Signal = (usize, Box<dyn FnOnce()>);

loom::thread_local! {
    static LOST: Cell<Option<Edge>> = Cell::new(None);
    static SIGNAL: RefCell<Option<Signal>> = RefCell::new(None);
}

/// Makes the calling thread lose `edge`, and only that.
pub fn lose(edge: Option<Edge>) {
    LOST.with(|lost| lost.set(edge));
}

/// Runs `handler` on this thread before its `nth` access.
pub fn interrupt(nth: usize, handler: impl FnOnce() + 'static) {
    SIGNAL.with(|signal| *signal.borrow_mut() = Some((nth, Box::new(handler))));
}

/// Cancels [`interrupt`]'s handler. Returns whether the handler has not run.
pub fn was_missed() -> bool {
    SIGNAL.with(|signal| signal.borrow_mut().take().is_some())
}

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

/// A [`core::sync::atomic::fence`] that can be lost.
pub fn fence(order: Ordering) {
    if !has_lost(Edge::Fence(order)) {
        loom::sync::atomic::fence(order);
    }
}

macro_rules! atomic {
    ($name:ident, $value:ty) => {
        /// An atomic integer.
        #[derive(Debug, Default)]
        pub struct $name(loom::sync::atomic::$name);

        impl $name {
            /// Returns a new integer.
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

            /// Adds; returns the old value.
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                step();
                match has_lost(Edge::Exchange) {
                    true => self.torn(|old| old.wrapping_add(value)),
                    false => self.0.fetch_add(value, access(order)),
                }
            }

            /// Subtracts; returns the old value.
            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                step();
                match has_lost(Edge::Exchange) {
                    true => self.torn(|old| old.wrapping_sub(value)),
                    false => self.0.fetch_sub(value, access(order)),
                }
            }

            /// Sets bits; returns the old value.
            pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                step();
                match has_lost(Edge::Exchange) {
                    true => self.torn(|old| old | value),
                    false => self.0.fetch_or(value, access(order)),
                }
            }

            /// Stores a value; returns the old one.
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                step();
                match has_lost(Edge::Exchange) {
                    true => self.torn(|_| value),
                    false => self.0.swap(value, access(order)),
                }
            }

            /// Replaces `current`; returns the old value.
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
