//! The lock-order validator: finds possible deadlocks from the order in which threads take locks.
//!
//! A *class* is a name that locks share; a *depth* orders the locks of one class. Before a thread may wait for a lock,
//! it adds edges to a graph: from the class of each lock that it holds to the class of the lock that it wants. An edge
//! that closes a ring is reported, with the call sites and stack of each edge. Rules:
//!
//! 1. Only methods that may wait add edges. Edges lead from a lock that `try_lock` took, but not to it.
//! 2. A ring is reported only if, at each lock, the holder's mode blocks the wanted mode ([`rules`]).
//! 3. If a thread wants a lock that it holds, or a lock with a held lock's class and depth, this is reported at once,
//!    unless the two modes are compatible.
//! 4. A downgrade never waits, and changes the held mode.
//! 5. A lock without a class is a class of its own, until it is dropped.
//!
//! The list of held locks is thread-local. A mutex protects the graph. Each thread caches its edges, so that it takes
//! the mutex rarely.

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
/// Marks the node of a lock without a class; the node has no depth.
const OWN: u32 = 1 << 31;

/// Checks the order of the locks that have this hook.
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
        // Relaxed: the number publishes no data. A thread that loads 0 asks the graph, which has a mutex.
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
