//! Reports of the lock-order validator.

use core::fmt;
use core::panic::Location;
use std::backtrace::Backtrace;
use std::string::{String, ToString};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock};
use std::vec::Vec;

use crate::acquisition::Mode;

/// The kind of fault.
///
/// ```
/// use tiptoe_lock::Fault;
///
/// assert_eq!(Fault::Inversion.to_string(), "lock order inversion");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The orders of several pairs of locks form a ring.
    Inversion,
    /// A thread wants a lock that it holds.
    Recursion,
    /// A thread takes two locks of one class without stating an order: see
    /// [`lock_nested`](crate::MutexExt::lock_nested).
    SameClass,
}

/// A lock of a [`Step`].
///
/// ```
/// use tiptoe_lock::{Report, Side};
///
/// fn first(report: &Report) -> Option<&Side> {
///     report.steps.first().map(|step| &step.held_lock)
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Side {
    /// The lock's address.
    pub address: usize,
    /// The name of the lock's class, empty if it has none.
    pub name: &'static str,
    /// The lock's depth: see [`lock_nested`](crate::MutexExt::lock_nested).
    pub depth: u8,
    /// The mode in which the lock is held or wanted.
    pub mode: Mode,
    /// Where the lock was taken or is wanted.
    pub site: &'static Location<'static>,
}

/// A thread held one lock and wanted another.
///
/// ```
/// use tiptoe_lock::Step;
///
/// fn describe(step: &Step) -> String {
///     format!("{}: {} then {}", step.thread, step.held_lock.site, step.wanted_lock.site)
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Step {
    /// The lock that the thread held.
    pub held_lock: Side,
    /// The lock that the thread wanted.
    pub wanted_lock: Side,
    /// The thread's name.
    pub thread: String,
    /// The thread's stack when it first wanted the second lock.
    pub stack: Arc<Backtrace>,
}

/// A fault and its steps. The steps of an inversion form a ring.
///
/// ```
/// use tiptoe_lock::{Report, on_report};
///
/// fn print(report: &Report) {
///     println!("{report}");
/// }
/// on_report(print);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The kind of fault.
    pub fault: Fault,
    /// The step that was just added, then the earlier steps.
    pub steps: Vec<Step>,
}

static REPORTS: AtomicU64 = AtomicU64::new(0);
static REPORTER: RwLock<fn(&Report)> = RwLock::new(on_stderr);

fn on_stderr(report: &Report) {
    std::eprintln!("{report}");
}

/// Sets the function that receives reports, which by default are printed to stderr. The function runs in the thread
/// that wants the lock. Locks that the function takes are not checked.
///
/// ```
/// tiptoe_lock::on_report(|report| eprintln!("{}", report.fault));
/// ```
pub fn on_report(reporter: fn(&Report)) {
    *REPORTER.write().unwrap_or_else(PoisonError::into_inner) = reporter;
}

/// Returns how many faults were reported.
///
/// ```
/// assert_eq!(tiptoe_lock::reports(), 0);
/// ```
pub fn reports() -> u64 {
    REPORTS.load(Relaxed) // Relaxed: a counter
}

pub(super) fn send(report: &Report) {
    REPORTS.fetch_add(1, Relaxed); // Relaxed: a counter
    let reporter = *REPORTER.read().unwrap_or_else(PoisonError::into_inner);
    reporter(report);
}

impl Step {
    pub(super) fn new(held: Side, wants: Side) -> Step {
        let thread = std::thread::current();
        Step {
            held_lock: held,
            wanted_lock: wants,
            thread: thread.name().unwrap_or("unnamed").to_string(),
            stack: Arc::new(Backtrace::force_capture()),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Fault::Inversion => "lock order inversion",
            Fault::Recursion => "lock taken again by the thread that holds it",
            Fault::SameClass => "two locks of one class taken without an order",
        })
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if !self.name.is_empty() {
            write!(f, "`{}` ", self.name)?;
        }
        write!(f, "{:#x} ({}", self.address, self.mode.word())?;
        if self.depth != 0 {
            write!(f, ", depth {}", self.depth)?;
        }
        write!(f, ") at {}", self.site)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(f, "{}", self.fault)?;
        for (at, step) in self.steps.iter().enumerate() {
            let (when, holds, wants) = match at {
                0 => ("now", "holds", "wants"),
                _ => ("before", "held", "wanted"),
            };
            writeln!(f, "{when}, thread `{}`", step.thread)?;
            writeln!(f, "  {holds} {}", step.held_lock)?;
            writeln!(f, "  {wants} {}", step.wanted_lock)?;
            for line in step.stack.to_string().lines() {
                writeln!(f, "    {line}")?;
            }
        }
        Ok(())
    }
}
