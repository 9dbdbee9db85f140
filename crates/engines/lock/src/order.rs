//! The lock-order validator: finds that threads could wait for each other for ever, from the
//! orders in which they take locks, before any two of them do.
//!
//! Each thread keeps a list of the locks that it holds. Whoever would wait for a lock adds an
//! edge to a graph from each class of those to the class that it wants, whether or not the lock is
//! free; an edge that closes a ring is reported, with the call sites and the stack of each edge,
//! once. Rules:
//!
//! 1. Only who would wait makes edges. `try_lock` makes none to what it takes; but what it has
//!    taken is held, and makes edges to what is wanted next.
//! 2. A ring counts if each of its waits is held up by how the next thread holds the lock
//!    ([`rules`]): readers alone do not hold up who reads again.
//! 3. A thread that wants a lock which it has already is reported at once, unless it reads again.
//!    So is one that wants two of one class at the same depth.
//! 4. An upgrade waits for readers alone. A downgrade waits for nobody, and changes what is held.
//! 5. Locks without a class are each of their own, and forgotten with the lock.
//!
//! What is held lies in the thread, and the graph behind one mutex; pairs that a thread has
//! asked for before it knows by itself.

#[cfg(feature = "validate")]
mod always;
mod graph;
mod held;
mod report;
mod rules;

use core::any::TypeId;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

#[cfg(feature = "validate")]
pub(crate) use always::Always;
pub use report::{Fault, Report, Side, Step, on_report, reports};

use crate::class::Unnamed;
use crate::hook::Hook;
use crate::told::{Lock, Mode, Way};
use rules::{Held, Wants};

/// The depths of nesting within a class: each is a node of its own.
const DEPTHS: u32 = 256;
/// Of a lock without a class, which is a node by itself, however deep it is nested.
const OWN: u32 = 1 << 31;

/// Checks the order in which locks are taken, of this lock and all others that have this hook or
/// the feature `validate`.
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
/// let _both = (TWO.lock(), ONE.lock()); // told on stderr, with both call sites and stacks
/// assert_eq!(reports(), 1);
/// ```
#[derive(Debug)]
pub struct Order {
    /// The lock's class: 0 as long as nobody has asked.
    class: AtomicU32,
}

impl Order {
    fn node(&self, lock: &Lock) -> u32 {
        // Relaxed: it is a number, and whoever finds none asks for it under the graph's mutex.
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
        held::check(&held::Entry::new(lock, node, mode), Wants::of(mode));
    }

    fn acquired(&self, lock: &Lock, mode: Mode, _: Way) {
        match mode {
            Mode::Upgrade => held::change(lock.address, Held::MayWrite, Mode::Exclusive),
            _ => held::push(held::Entry::new(lock, self.node(lock), mode)),
        }
    }

    fn downgraded(&self, lock: &Lock, from: Mode, to: Mode) {
        held::change(lock.address, Held::of(from), to);
    }

    fn released(&self, lock: &Lock, mode: Mode) {
        held::pop(lock.address, Held::of(mode));
    }
}
