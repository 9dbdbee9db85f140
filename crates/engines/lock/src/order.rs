//! The lock-order validator: finds possible deadlocks from the order in which threads take locks.
//!
//! A thread that calls a method which may wait adds edges to a graph, from each held lock's class to the wanted lock's
//! class. An edge that closes a ring is reported, with each edge's call sites and stack. Rules:
//!
//! 1. Only methods that may wait make edges. A lock taken by `try_lock` has edges only to locks that are wanted later.
//! 2. A ring counts only if each wanted mode waits for the mode in which the next thread holds the lock ([`rules`]).
//! 3. A thread that wants a lock which it holds is reported at once, unless the two modes are compatible. So is a
//!    thread that wants a second lock of one class and depth.
//! 4. A downgrade never waits, and changes the held mode.
//! 5. A lock without a class is a class of its own, until it is dropped.
//!
//! Held locks are thread-local. One mutex protects the graph, so each thread caches the pairs that it has added.

#[cfg(feature = "validate")]
mod always;
mod graph;
mod held_locks;
mod report;
mod rules;

use core::any::TypeId;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

#[cfg(feature = "validate")]
pub(crate) use always::Always;
pub use report::{Fault, Report, Side, Step, on_report, reports};

use crate::acquisition::{Lock, Mode, Way};
use crate::class::Unnamed;
use crate::hook::Hook;
use rules::{HeldAs, WantedAs};

const DEPTHS: u32 = 256;
/// Marks the node of a lock without a class, which has no depth.
const OWN: u32 = 1 << 31;

/// Checks the order of locks with this hook; under the feature `validate`, of all locks.
///
/// ```
/// use tiptoe_lock::{Mutex, Order, reports};
///
/// tiptoe_lock::class! { One = "one"; Two = "two" }
/// static ONE: Mutex<u32, Order, One> = Mutex::new(1);
/// static TWO: Mutex<u32, Order, Two> = Mutex::new(2);
///
/// let _both = (ONE.lock(), TWO.lock());
/// drop(_both);
/// assert_eq!(reports(), 0);
/// let _both = (TWO.lock(), ONE.lock()); // reported on stderr, with both call sites and stacks
/// assert_eq!(reports(), 1);
/// ```
#[derive(Debug)]
pub struct Order {
    /// The number of the lock's class; 0 until first needed.
    class: AtomicU32,
}

impl Order {
    fn node(&self, lock: &Lock) -> u32 {
        // Relaxed: publishes no data; a thread that loads 0 gets the number under the graph's mutex.
        let mut class = self.class.load(Relaxed);
        if class == 0 {
            class = match lock.class == TypeId::of::<Unnamed>() {
                false => graph::class_of(lock.class),
                true => graph::own_class() | OWN,
            };
            let first = self.class.compare_exchange(0, class, Relaxed, Relaxed);
            class = first.err().unwrap_or(class);
        }
        match class & OWN {
            0 => class * DEPTHS + u32::from(lock.depth),
            _ => class,
        }
    }
}

impl Drop for Order {
    fn drop(&mut self) {
        let class = *self.class.get_mut();
        if class & OWN != 0 {
            graph::forget(class);
        }
    }
}

impl Hook for Order {
    const INIT: Self = Order {
        class: AtomicU32::new(0),
    };
    const HOLDS: bool = true;
    const CHECKS_ORDER: bool = true;

    fn acquiring(&self, lock: &Lock, mode: Mode) {
        let node = self.node(lock);
        held_locks::check(
            &held_locks::HeldLock::new(lock, node, mode),
            WantedAs::of(mode),
        );
    }

    fn acquired(&self, lock: &Lock, mode: Mode, _: Way) {
        match mode {
            Mode::Upgrade => held_locks::change(lock.address, HeldAs::MayWrite, Mode::Exclusive),
            _ => held_locks::push(held_locks::HeldLock::new(lock, self.node(lock), mode)),
        }
    }

    fn downgraded(&self, lock: &Lock, from: Mode, to: Mode) {
        held_locks::change(lock.address, HeldAs::of(from), to);
    }

    fn released(&self, lock: &Lock, mode: Mode) {
        held_locks::pop(lock.address, HeldAs::of(mode));
    }
}
