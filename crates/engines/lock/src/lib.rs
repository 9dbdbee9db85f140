//! Locks that report their waits.
//!
//! A [`Contended`] lock wraps any raw lock of lock_api. It first tries the raw lock. If the try fails, the lock's
//! [`Hook`] gets a begin event with lock, mode and call site, and an end event with outcome and duration.
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
//! **What it removes.** Only waits are timed, so taking a free lock needs no more coordination than the bare lock.
//!
//! **What it costs.** With the hook [`Nothing`] a lock has the bare lock's instructions. With [`Waits`], taking a free
//! lock costs one more load and branch, less than 1 ns. A wait costs two readings of the time stamp counter and the
//! hook's work (`tiptoe-dev bench lock`).
//!
//! **What holds.** Each begin of a wait has one end, in the same thread. With the feature `std` a hook's panic affects
//! neither the lock nor other hooks.
//!
//! **What a caller must not do.** A hook must not take a lock that has the same hook.
//!
//! A guard's `unlocked` takes the lock again in a destructor, which does not know its caller. So this wait's call site
//! is in lock_api.
//!
//! Hooks: [`Nothing`], [`Waits`], [`Holds`], `Traced` (feature `tracing`), `Order` (feature `order`), and
//! pairs of hooks. The feature `validate` checks the order of every lock.
//!
//! While `tiptoe lock` is attached, it receives every wait that a hook receives. Checking this costs each wait a load
//! and a branch.
//!
//! The ideas are from the kernel's tracepoints `contention_begin` and `contention_end`, and from lockdep
//! (<https://docs.kernel.org/locking/lockdep-design.html>).
#![no_std]
#![warn(missing_docs)]

#[cfg(any(feature = "std", test))]
extern crate std;

mod acquisition;
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
#[cfg(feature = "tracing")]
mod trace;
#[cfg(not(tiptoe_loom))]
mod waits;

pub use acquisition::{Lock, Mode, Outcome, Way};
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
pub use table::{Table, TableRow};
pub use tiptoe_event::Histogram;
#[cfg(feature = "tracing")]
pub use trace::Traced;
#[cfg(not(tiptoe_loom))]
pub use waits::{WAIT_ROWS, Waits, waits};

/// A parking_lot mutex with a hook.
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

/// A parking_lot reader-writer lock with a hook.
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
