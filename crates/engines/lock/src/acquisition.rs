//! The arguments of a lock's hook: the lock, the mode, the outcome.

use core::any::TypeId;
use core::panic::Location;

/// A lock and where it is used.
///
/// ```
/// use tiptoe_lock::Lock;
///
/// fn describe(lock: &Lock) -> String {
///     format!("{} at {:#x}, taken at {}", lock.name, lock.address, lock.site)
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lock {
    /// The lock's address.
    pub address: usize,
    /// The name of the lock's class, empty if it has none.
    pub name: &'static str,
    /// The lock's class.
    pub class: TypeId,
    /// The lock's depth: see [`lock_nested`](crate::MutexExt::lock_nested).
    pub depth: u8,
    /// The call that takes or releases the lock; a line in lock_api when a guard is dropped, because a destructor does
    /// not know its caller.
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
    /// Excludes other threads.
    Exclusive,
    /// Taken to read; may wait for a waiting writer.
    Shared,
    /// Taken to read, perhaps again in the same thread. Never waits for a waiting writer, which may wait for this
    /// thread.
    SharedRecursive,
    /// Taken to read, with the right to upgrade, which one thread at a time has.
    Upgradable,
    /// Changed from upgradable to exclusive, once all readers have released the lock.
    Upgrade,
}

impl Mode {
    /// Returns whether several threads may hold a lock in this mode.
    ///
    /// ```
    /// use tiptoe_lock::Mode;
    ///
    /// assert!(Mode::Shared.is_shared() && !Mode::Upgradable.is_shared());
    /// ```
    pub const fn is_shared(self) -> bool {
        matches!(self, Mode::Shared | Mode::SharedRecursive)
    }

    /// Returns the word for reports.
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
    /// The thread has the lock.
    Acquired,
    /// The time-out expired.
    TimedOut,
    /// The caller cancelled the wait.
    Cancelled,
    /// The raw lock panicked, or the function that `lock_killable` calls.
    Panicked,
}

impl Outcome {
    /// Returns whether the caller holds the lock.
    ///
    /// ```
    /// assert!(!tiptoe_lock::Outcome::Cancelled.is_acquired());
    /// ```
    pub const fn is_acquired(self) -> bool {
        matches!(self, Outcome::Acquired)
    }

    /// Returns the word for reports.
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

/// Whether the method that took a lock may wait.
///
/// ```
/// use tiptoe_lock::Way;
///
/// // `try_lock` cannot wait, so it cannot deadlock.
/// assert_ne!(Way::Try, Way::Wait);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// The method may wait, like `lock`.
    Wait,
    /// The method never waits, like `try_lock`.
    Try,
}
