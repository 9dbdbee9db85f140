//! Lets variables take turns if there are more than debug registers.

use std::time::Duration;

use tiptoe_kernel::watchpoints::{MOST_VARIABLES, REGISTERS};
use tiptoe_schedule::{Rotation, Slots};
use tiptoe_sys::raw::monotonic_ns;

use super::begin::Target;
use super::breakpoints::Breakpoints;
use super::variables::WatchedVariable;
use crate::drive::Targets;
use crate::request::Error;

/// The shortest turn: in shorter ones most of the time would go to moving breakpoints.
const SHORTEST: Duration = Duration::from_millis(10);

/// The variables that have a register, and until when. All times are since the start.
pub(super) struct Turns {
    rotation: Rotation,
    each: Option<Duration>,
    next: Option<Duration>,
}

/// The registers, and what is needed to fill them.
pub(super) struct Registers<'a> {
    pub(super) form: &'a mut dyn Breakpoints,
    pub(super) at: &'a Targets,
    pub(super) target: &'a Target,
    pub(super) variables: &'a [WatchedVariable],
    /// A bit for each variable whose events were disabled before it lost its register.
    pub(super) rested: &'a mut u64,
}

impl Slots for Registers<'_> {
    type Error = Error;

    fn put(&mut self, slot: usize, event: usize) -> Result<(), Error> {
        let point = self.variables[event].watchpoint();
        let window = self.form.serve(slot, event, &point, self.at, self.target)?;
        *self.rested |= window.rested;
        Ok(())
    }
}

impl Turns {
    /// Plans the turns. Without turns all variables are served, and opening fails if there are too
    /// few registers.
    pub(super) fn new(
        variables: &[WatchedVariable],
        each: Option<Duration>,
        all_slots: bool,
    ) -> Result<Turns, Error> {
        if each.is_some_and(|each| each < SHORTEST) {
            let what = "--rotate: turns are 10 ms or longer";
            return Err(Error::new(what).with_hint("50ms to 200ms are usual"));
        }
        if variables.len() > MOST_VARIABLES {
            let what = format!("{MOST_VARIABLES} variables can be watched at a time");
            return Err(Error::new(what).with_hint("leave some out"));
        }
        let room = REGISTERS as usize - usize::from(!all_slots);
        let pinned: Vec<bool> = variables.iter().map(WatchedVariable::is_pinned).collect();
        let (slots, first) = match each {
            // Arbitrary, so that not the same variable is first in each run.
            Some(_) => (room, monotonic_ns() as usize),
            None => (variables.len(), 0),
        };
        let rotation = Rotation::new(&pinned, slots, first);
        let rotation = rotation.map_err(|error| {
            let what = format!("no debug register is left for all that are pinned: {error}");
            Error::new(what).with_hint("leave /pinned/ out, and they take turns")
        })?;
        Ok(Turns {
            each: each.filter(|_| rotation.takes_turns()),
            rotation,
            next: None,
        })
    }

    /// Returns the variables that have a register.
    pub(super) fn serving(&self) -> &[usize] {
        self.rotation.slots()
    }

    /// Returns whether some variables have no register at times.
    pub(super) fn are_needed(&self) -> bool {
        self.each.is_some()
    }

    /// Starts the first turn.
    pub(super) fn start(&mut self) {
        self.rotation.start(0);
        self.next = self.each;
    }

    /// Returns when the next turn begins.
    pub(super) fn next(&self) -> Option<Duration> {
        self.next
    }

    /// Begins the next turn if it is due.
    pub(super) fn rotate(
        &mut self,
        now: Duration,
        registers: &mut Registers<'_>,
    ) -> Result<(), Error> {
        if self.next.is_none_or(|next| now < next) {
            return Ok(());
        }
        self.next = self.each.map(|each| now + each);
        self.rotation.rotate(now.as_nanos() as u64, registers)
    }

    /// Returns how long a variable had a register, until `until`.
    pub(super) fn watched_ns(&self, variable: usize, until: Duration) -> u64 {
        self.rotation.ran_ns(variable, until.as_nanos() as u64)
    }
}
