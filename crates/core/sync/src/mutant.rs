//! loom's atomics, of which a model can take one guarantee away.
//!
//! A model shows something only if it fails once the code is wrong. Its mutants
//! run the same shipped code, but one thread of the model has [lost](lose) an
//! [`Edge`]: its fences of that order do nothing, its accesses of that order are
//! relaxed, or its exchanges are torn in two. So no line of the code knows of them.
//!
//! What interrupts a thread is no other thread: it runs to its end while the thread
//! stands still. A model has it come in front of each [access](interrupt) in turn.

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
    /// A read and write in one is a read, and later a write.
    Exchange,
}

/// What will interrupt a thread, and in front of how many of its accesses from now.
type Signal = (usize, Box<dyn FnOnce()>);

loom::thread_local! {
    static LOST: Cell<Option<Edge>> = Cell::new(None);
    static SIGNAL: RefCell<Option<Signal>> = RefCell::new(None);
}

/// From here on the calling thread does without `edge`.
pub fn lose(edge: Option<Edge>) {
    LOST.with(|lost| lost.set(edge));
}

/// Has `handler` interrupt the calling thread in front of its `nth` access from here.
pub fn interrupt(nth: usize, handler: impl FnOnce() + 'static) {
    SIGNAL.with(|signal| *signal.borrow_mut() = Some((nth, Box::new(handler))));
}

/// Whether what was to interrupt the calling thread did not come; it will not any more.
pub fn was_missed() -> bool {
    SIGNAL.with(|signal| signal.borrow_mut().take().is_some())
}

/// In front of each access.
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

/// See [`core::sync::atomic::fence`].
pub fn fence(order: Ordering) {
    if !has_lost(Edge::Fence(order)) {
        loom::sync::atomic::fence(order);
    }
}

macro_rules! atomic {
    ($name:ident, $value:ty) => {
        /// An atomic integer of core's, as far as ours are used.
        #[derive(Debug, Default)]
        pub struct $name(loom::sync::atomic::$name);

        impl $name {
            /// A new one.
            pub fn new(value: $value) -> Self {
                $name(loom::sync::atomic::$name::new(value))
            }

            /// Reads it.
            pub fn load(&self, order: Ordering) -> $value {
                step();
                self.0.load(access(order))
            }

            /// Writes it.
            pub fn store(&self, value: $value, order: Ordering) {
                step();
                self.0.store(value, access(order));
            }

            /// Adds, and returns what was there.
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                step();
                match has_lost(Edge::Exchange) {
                    true => self.torn(|old| old.wrapping_add(value)),
                    false => self.0.fetch_add(value, access(order)),
                }
            }

            /// Subtracts, and returns what was there.
            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                step();
                match has_lost(Edge::Exchange) {
                    true => self.torn(|old| old.wrapping_sub(value)),
                    false => self.0.fetch_sub(value, access(order)),
                }
            }

            /// Sets bits, and returns what was there.
            pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                step();
                match has_lost(Edge::Exchange) {
                    true => self.torn(|old| old | value),
                    false => self.0.fetch_or(value, access(order)),
                }
            }

            /// Writes, and returns what was there.
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                step();
                match has_lost(Edge::Exchange) {
                    true => self.torn(|_| value),
                    false => self.0.swap(value, access(order)),
                }
            }

            /// Writes where `current` is there, and returns what was there.
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
