//! Locks that tell when they wait.
//!
//! A [`Contended`] lock is any raw lock of lock_api's with a hook: it is tried first, and only
//! when that fails the hook is told that a thread begins to wait, for which lock, in which mode and
//! from where; and in any case, once, how the wait ended and how long it took.
//!
//! ```
//! use tiptoe_lock::{Mutex, RwLock, Waits, waits};
//!
//! tiptoe_lock::class! { Jobs = "jobs"; Routes = "routes" }
//!
//! static JOBS: Mutex<Vec<u32>, Waits, Jobs> = Mutex::new(Vec::new());
//! static ROUTES: RwLock<u32, Waits, Routes> = RwLock::new(1);
//!
//! JOBS.lock().push(*ROUTES.read());
//!
//! for row in waits().rows() {
//!     println!("{row}"); // jobs exclusive at src/main.rs:8:6: 12 times, 48123 ns, p50 …
//! }
//! ```
//!
//! **What it removes.** Nobody times an acquisition that does not wait, so a lock that is free has
//! nobody to coordinate with but who wants it.
//!
//! **What it costs.** With [`Nothing`] the instructions are the bare lock's. With a hook of waits
//! a free lock takes one load and one branch more, less than a nanosecond; one that is taken two
//! readings of the processor's counter and what the hook does. `tiptoe bench lock` measures it.
//!
//! **What holds.**
//!
//! - Each begin has one end in its thread: with the lock, by time-out, called off, or by a panic
//!   ([the rules](Hook)).
//! - A hook that panics changes nothing for the lock, nor for other hooks.
//! - The class of a lock is a type, so a lock with a name is no larger than one without.
//!
//! **What may a caller not do.** A hook's own work may take no lock that has the same hook.
//! What lock_api's guards do by themselves in the middle of their life (`unlocked`) has as its call
//! site a line of lock_api's.
//!
//! | hook | what it does |
//! |---|---|
//! | [`Nothing`] | nothing: the bare lock |
//! | [`Waits`] | a histogram of waits for each lock and call site |
//! | [`Holds`] | how long locks are held, of one acquisition in so many |
//! | `Traced`, with the feature `tracing` | an event at the begin and the end of each wait |
//! | `Order`, with the feature `order` | checks in which order locks are taken |
//! | `(A, B)` | both |
//!
//! While `tiptoe lock` is attached, every wait that a hook is told of is also told there, by the name of
//! the lock's class; otherwise that takes one load and one branch of each wait, and nothing of a lock
//! that is free.
//!
//! With the feature `validate` the order of every lock is checked, whatever its hook: meant for
//! tests and for runs that look for deadlocks before there is one.
//!
//! The idea to hook into the contended path alone is that of the kernel's `contention_begin` and
//! `contention_end` tracepoints; the rules of the order are lockdep's
//! (<https://docs.kernel.org/locking/lockdep-design.html>).
#![no_std]
#![warn(missing_docs)]

#[cfg(any(feature = "std", test))]
extern crate std;

mod class;
mod clock;
mod contended;
mod ext;
#[cfg(all(feature = "std", not(tiptoe_loom)))]
mod holds;
mod hook;
mod kind;
#[cfg(all(test, tiptoe_loom))]
mod models;
#[cfg(all(feature = "order", not(tiptoe_loom)))]
mod order;
mod port;
mod primitive;
mod raw_mutex;
mod raw_rwlock;
mod raw_upgrade;
mod table;
mod thread;
mod told;
#[cfg(feature = "tracing")]
mod trace;
#[cfg(not(tiptoe_loom))]
mod waits;

pub use class::{Class, Unnamed};
pub use contended::Contended;
pub use ext::{MutexExt, RwLockExt, SLICE, UpgradeExt};
#[cfg(all(feature = "std", not(tiptoe_loom)))]
pub use holds::{HOLD_ROWS, Holds, holds};
pub use hook::{Hook, Nothing};
pub use lock_api;
#[cfg(all(feature = "order", not(tiptoe_loom)))]
pub use order::{Fault, Order, Report, Side, Step, on_report, reports};
pub use port::is_traced;
pub use table::{Row, Table};
pub use tiptoe_event::Histogram;
pub use told::{Lock, Mode, Outcome, Way};
#[cfg(feature = "tracing")]
pub use trace::Traced;
#[cfg(not(tiptoe_loom))]
pub use waits::{WAIT_ROWS, Waits, waits};

/// A mutex of parking_lot's that tells a hook.
///
/// ```
/// use tiptoe_lock::{Mutex, Waits};
///
/// let total: Mutex<u32, Waits> = Mutex::new(1);
/// *total.lock() += 1;
/// assert_eq!(total.into_inner(), 2);
/// ```
#[cfg(feature = "parking_lot")]
pub type Mutex<T, H = Nothing, C = Unnamed> =
    lock_api::Mutex<Contended<parking_lot::RawMutex, H, C>, T>;

/// A reader-writer lock of parking_lot's that tells a hook.
///
/// ```
/// use tiptoe_lock::{RwLock, Waits};
///
/// let routes: RwLock<Vec<u32>, Waits> = RwLock::new(vec![1]);
/// routes.write().push(2);
/// assert_eq!(routes.read().len(), 2);
/// ```
#[cfg(feature = "parking_lot")]
pub type RwLock<T, H = Nothing, C = Unnamed> =
    lock_api::RwLock<Contended<parking_lot::RawRwLock, H, C>, T>;
