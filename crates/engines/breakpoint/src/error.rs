use core::fmt;

use crate::backend::Refusal;
use crate::request::{Request, Target};

/// The most holders that a conflict names.
pub const MOST_HOLDERS: usize = 4;

/// Why a request was refused; the state is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// All slots (debug registers) are taken.
    NoSlot(Conflict),
    /// A lock is taken, and waiting was not allowed.
    Busy,
    /// No room to record another reservation of a task.
    Full,
    /// No such reservation.
    NotHeld,
    /// No such CPU.
    NoCpu(u32),
    /// A request for 0 slots, or for more than the machine has.
    Weight(u32),
    /// The backend refused.
    Backend(Refusal),
}

/// Holders that block a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The target without a slot.
    pub target: Target,
    /// The first CPU without a slot.
    pub cpu: u32,
    /// The request's task; for a CPU's request, the task with most slots on that CPU.
    pub task: Option<u64>,
    pub(crate) holders: [Option<Holder>; MOST_HOLDERS],
    /// The number of further holders.
    pub more: u32,
}

/// A slot's holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The request's `holder`.
    pub id: u64,
    /// Whether the slot is CPU-wide, not a task's.
    pub is_wide: bool,
}

impl Conflict {
    pub(crate) fn new(request: &Request, cpu: u32) -> Self {
        Conflict {
            target: request.target,
            cpu,
            task: None,
            holders: [None; MOST_HOLDERS],
            more: 0,
        }
    }

    pub(crate) fn add(&mut self, holder: Holder) {
        match self.holders.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(holder),
            None => self.more = self.more.saturating_add(1),
        }
    }

    /// Returns the first [`MOST_HOLDERS`] holders.
    pub fn holders(&self) -> impl Iterator<Item = Holder> {
        self.holders.into_iter().flatten()
    }

    /// Returns the conflict as a sentence, in which `name` writes each holder.
    pub fn describe<F>(&self, name: F) -> impl fmt::Display
    where
        F: Fn(&Holder, &mut fmt::Formatter) -> fmt::Result,
    {
        Description {
            conflict: *self,
            name,
        }
    }
}

struct Description<F> {
    conflict: Conflict,
    name: F,
}

impl<F: Fn(&Holder, &mut fmt::Formatter) -> fmt::Result> fmt::Display for Description<F> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Conflict {
            target,
            cpu,
            task,
            more,
            ..
        } = self.conflict;
        write!(f, "no debug register left on cpu {cpu}")?;
        // Task 0 means threads that do not exist yet.
        if let Target::Task {
            task: task @ 1.., ..
        } = target
        {
            write!(f, " for thread {task}")?;
        }
        let mut separator = ": held by ";
        for holder in self.conflict.holders() {
            f.write_str(separator)?;
            (self.name)(&holder, f)?;
            if let (false, Target::Cpu(_), Some(task)) = (holder.is_wide, target, task) {
                write!(f, " of thread {task}")?;
            }
            separator = ", ";
        }
        match more {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let description = self.describe(|holder, f| match holder.is_wide {
            true => write!(f, "cpu-wide {}", holder.id),
            false => write!(f, "{}", holder.id),
        });
        description.fmt(f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Error::NoSlot(conflict) => conflict.fmt(f),
            Error::Busy => f.write_str("debug registers are being reserved at this moment"),
            Error::Full => f.write_str("no room left to record the holder of a debug register"),
            Error::NotHeld => f.write_str("no such debug register is reserved"),
            Error::NoCpu(cpu) => write!(f, "there is no cpu {cpu}"),
            Error::Weight(slots) => {
                write!(
                    f,
                    "{slots} debug registers for one breakpoint is not possible"
                )
            }
            Error::Backend(Refusal(code)) => {
                write!(f, "the debug register was refused: error {code}")
            }
        }
    }
}

impl core::error::Error for Error {}
