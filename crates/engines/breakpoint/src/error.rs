//! Why a reservation was refused, and who holds what it needs.

use core::fmt;

use crate::backend::Refusal;
use crate::request::{Request, Target};

/// Most holders that a conflict names.
pub const MOST_HOLDERS: usize = 4;

/// Why a request was refused. What was before it still is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// All slots are taken.
    NoSlot(Conflict),
    /// Somebody else is at it, and waiting was not wanted.
    Busy,
    /// There are as many reservations of tasks as there is room for.
    Full,
    /// Nothing of the kind is reserved.
    NotHeld,
    /// There is no such CPU.
    NoCpu(u32),
    /// A breakpoint takes at least one slot, and no more than there are.
    Weight(u32),
    /// The backend did not take what was granted.
    Backend(Refusal),
}

/// Whose slots are in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// For what there was no slot.
    pub target: Target,
    /// On which CPU; the first of several.
    pub cpu: u32,
    /// Whose the holders are that are not CPU-wide: the thread's itself, or for a CPU that
    /// thread's which holds most there.
    pub task: Option<u64>,
    pub(crate) holders: [Option<Holder>; MOST_HOLDERS],
    /// How many holders more there are.
    pub more: u32,
}

/// Who holds a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// As the caller named it in its request.
    pub id: u64,
    /// Whether it is CPU-wide.
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

    /// Who holds the slots.
    pub fn holders(&self) -> impl Iterator<Item = Holder> {
        self.holders.into_iter().flatten()
    }

    /// The sentence, with the caller's words for its holders.
    pub fn told<F>(&self, name: F) -> impl fmt::Display
    where
        F: Fn(&Holder, &mut fmt::Formatter) -> fmt::Result,
    {
        Told {
            conflict: *self,
            name,
        }
    }
}

struct Told<F> {
    conflict: Conflict,
    name: F,
}

impl<F: Fn(&Holder, &mut fmt::Formatter) -> fmt::Result> fmt::Display for Told<F> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Conflict {
            target,
            cpu,
            task,
            more,
            ..
        } = self.conflict;
        write!(f, "no debug register left on cpu {cpu}")?;
        // Before there are threads whose registers could be asked for, none is named.
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
        let told = self.told(|holder, f| match holder.is_wide {
            true => write!(f, "cpu-wide {}", holder.id),
            false => write!(f, "{}", holder.id),
        });
        told.fmt(f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Error::NoSlot(conflict) => conflict.fmt(f),
            Error::Busy => f.write_str("debug registers are being reserved at this moment"),
            Error::Full => f.write_str("no room left to note who holds a debug register"),
            Error::NotHeld => f.write_str("no such debug register is reserved"),
            Error::NoCpu(cpu) => write!(f, "there is no cpu {cpu}"),
            Error::Weight(slots) => {
                write!(
                    f,
                    "{slots} debug registers for one breakpoint is not possible"
                )
            }
            Error::Backend(Refusal(code)) => {
                write!(f, "the debug register was not given: error {code}")
            }
        }
    }
}

impl core::error::Error for Error {}
