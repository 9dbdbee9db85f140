//! The words in which hooks are told: which lock, how it is taken, and what came of it.

use core::any::TypeId;
use core::panic::Location;

/// A lock, as a call meets it.
///
/// ```
/// use std::time::Duration;
/// use tiptoe_lock::{Hook, Lock, Mode, Mutex, Outcome};
///
/// struct Print;
/// impl Hook for Print {
///     const INIT: Self = Print;
///     const WAITS: bool = true;
///
///     fn contention_end(&self, lock: &Lock, _: Mode, _: Outcome, waited: Duration) {
///         println!("{} at {:#x}: {waited:?} at {}", lock.name, lock.address, lock.site);
///     }
/// }
///
/// let quiet: Mutex<u32, Print> = Mutex::new(1);
/// assert_eq!(*quiet.lock(), 1); // free, so nobody is told
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lock {
    /// Where it lies.
    pub address: usize,
    /// Its class's name, empty if it has none.
    pub name: &'static str,
    /// Its class.
    pub class: TypeId,
    /// How deep it is nested among others of its class: see [`nested`](crate::MutexExt::lock_nested).
    pub depth: u8,
    /// Where the program takes it. Where it gives a lock back this is a line of lock_api's, as
    /// destructors do not know their caller.
    pub site: &'static Location<'static>,
}

/// How a lock is taken.
///
/// ```
/// use tiptoe_lock::Mode;
///
/// assert!(Mode::Shared.is_shared() && Mode::SharedRecursive.is_shared());
/// assert_eq!(Mode::Upgrade.word(), "upgrade");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// By one alone: a mutex, or to write.
    Exclusive,
    /// To read. A writer that waits may hold it up.
    Shared,
    /// To read, by who may read already: no writer that waits holds it up.
    SharedRecursive,
    /// To read, with the right to write later; by one beside readers.
    Upgradable,
    /// From upgradable to exclusive: until all readers have gone.
    Upgrade,
}

impl Mode {
    /// Whether others may read at the same time that came in the same way.
    ///
    /// ```
    /// use tiptoe_lock::Mode;
    ///
    /// assert!(Mode::Shared.is_shared() && !Mode::Upgradable.is_shared());
    /// ```
    pub const fn is_shared(self) -> bool {
        matches!(self, Mode::Shared | Mode::SharedRecursive)
    }

    /// As reports call it.
    ///
    /// ```
    /// assert_eq!(tiptoe_lock::Mode::SharedRecursive.word(), "shared, recursive");
    /// ```
    pub const fn word(self) -> &'static str {
        match self {
            Mode::Exclusive => "exclusive",
            Mode::Shared => "shared",
            Mode::SharedRecursive => "shared, recursive",
            Mode::Upgradable => "upgradable",
            Mode::Upgrade => "upgrade",
        }
    }
}

/// How a wait ended.
///
/// ```
/// use tiptoe_lock::Outcome;
///
/// assert!(Outcome::Acquired.is_acquired());
/// assert!(!Outcome::TimedOut.is_acquired());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// With the lock.
    Acquired,
    /// Its time was over.
    TimedOut,
    /// The caller called it off.
    Cancelled,
    /// The raw lock, or what the caller asks whether to go on, panicked.
    Panicked,
}

impl Outcome {
    /// Whether the caller has the lock now.
    ///
    /// ```
    /// assert!(!tiptoe_lock::Outcome::Cancelled.is_acquired());
    /// ```
    pub const fn is_acquired(self) -> bool {
        matches!(self, Outcome::Acquired)
    }

    /// As reports call it.
    ///
    /// ```
    /// assert_eq!(tiptoe_lock::Outcome::TimedOut.word(), "timed out");
    /// ```
    pub const fn word(self) -> &'static str {
        match self {
            Outcome::Acquired => "acquired",
            Outcome::TimedOut => "timed out",
            Outcome::Cancelled => "cancelled",
            Outcome::Panicked => "panicked",
        }
    }
}

/// Whether a lock was asked for by someone who would have waited.
///
/// ```
/// use tiptoe_lock::Way;
///
/// // `try_lock` takes a lock in no order, as it cannot wait for it.
/// assert_ne!(Way::Try, Way::Wait);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// By `lock` and its like, also where the lock was free.
    Wait,
    /// By `try_lock` and its like.
    Try,
}
