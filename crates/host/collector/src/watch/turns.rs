//! Lets variables take turns if there are more variables than debug registers.

use std::time::Duration;

use tiptoe_kernel::watchpoints::{MOST_VARIABLES, REGISTERS};
use tiptoe_schedule::{Rotation, Slots};
use tiptoe_sys::raw::monotonic_ns;

use super::begin::Target;
use super::breakpoints::Breakpoints;
use super::variables::WatchedVariable;
use crate::drive::Targets;
use crate::error::Error;

/// The shortest turn. Moving breakpoints would take most of a shorter turn.
const SHORTEST: Duration = Duration::from_millis(10);

pub(super) struct Turns {
    rotation: Rotation,
    each: Option<Duration>,
    /// When the present turn ends.
    pub(super) next: Option<Duration>,
}

pub(super) struct Registers<'a> {
    pub(super) form: &'a mut dyn Breakpoints,
    pub(super) at: &'a Targets,
    pub(super) target: &'a Target,
    pub(super) variables: &'a [WatchedVariable],
    /// A bit for each variable whose events were disabled while it had a register.
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
    /// If `each` is `None`, all variables are watched at once, and opening the breakpoints fails if there are too few
    /// registers.
    pub(super) fn new(
        variables: &[WatchedVariable],
        each: Option<Duration>,
        all_slots: bool,
    ) -> Result<Turns, Error> {
        if each.is_some_and(|each| each < SHORTEST) {
            return Err(Error::ShortTurns);
        }
        if variables.len() > MOST_VARIABLES {
            return Err(Error::ManyVariables);
        }
        let room = REGISTERS as usize - usize::from(!all_slots);
        let pinned: Vec<bool> = variables.iter().map(|one| one.is_pinned).collect();
        let (slots, first) = match each {
            // The clock chooses the first variable, so that it differs between runs.
            Some(_) => (room, monotonic_ns() as usize),
            None => (variables.len(), 0),
        };
        let rotation = Rotation::new(&pinned, slots, first).map_err(Error::ManyPinned)?;
        Ok(Turns {
            each: each.filter(|_| rotation.takes_turns()),
            rotation,
            next: None,
        })
    }

    pub(super) fn serving(&self) -> &[usize] {
        self.rotation.slots()
    }

    /// Returns whether some variables have no register at times.
    pub(super) fn are_needed(&self) -> bool {
        self.each.is_some()
    }

    pub(super) fn start(&mut self) {
        self.rotation.start(0);
        self.next = self.each;
    }

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

    pub(super) fn watched_ns(&self, variable: usize, until: Duration) -> u64 {
        self.rotation.ran_ns(variable, until.as_nanos() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use tiptoe_attach::Attached;
    use tiptoe_event::{Cost, Event, Memory, Via};
    use tiptoe_kernel::watchpoints::{Access, Hits, Watchpoint, Window};
    use tiptoe_session::{Call, EndCause, Interval, Note, Reservations};

    use super::super::breakpoints::BreakpointReport;
    use super::super::{Run, variables};
    use super::*;
    use crate::clock::RunClock;
    use crate::drive::{Instrument, Turn};
    use crate::module::Cache;
    use crate::request::{Observer, Request};

    struct Slow {
        clock: RunClock,
        read_until: Rc<Cell<Duration>>,
    }

    impl Breakpoints for Slow {
        fn allowance(&mut self) -> Option<u64> {
            None
        }

        fn supply_initial_rules(&mut self, _: &Target, _: &[WatchedVariable]) -> Result<(), Error> {
            Ok(())
        }

        fn start(&mut self, _: &Targets, _: &Target) -> Result<(), Error> {
            Ok(())
        }

        fn poll(&mut self, _: &Targets, _: &mut Target, now: Duration) -> Result<Duration, Error> {
            while self.clock.elapsed() <= now {}
            self.read_until.set(self.clock.elapsed());
            Ok(Duration::MAX)
        }

        fn refresh(&mut self, at: &Targets) -> Result<Window, Error> {
            self.window(at)
        }

        fn window(&mut self, _: &Targets) -> Result<Window, Error> {
            Ok(Window::default())
        }

        fn serve(
            &mut self,
            _: usize,
            _: usize,
            _: &Watchpoint,
            at: &Targets,
            _: &Target,
        ) -> Result<Window, Error> {
            self.window(at)
        }

        fn take_accesses(&mut self) -> Vec<Access> {
            Vec::new()
        }

        fn hits(&mut self, _: u32) -> Result<Hits, Error> {
            Ok(Hits::default())
        }

        fn hit_cost(&mut self) -> Result<Cost, Error> {
            Ok(Cost::default())
        }

        fn ended_by(&mut self, _: &Targets) -> Option<EndCause> {
            None
        }

        fn stop(&mut self, _: &Targets, _: &mut Target) {}

        fn reservations(&mut self, _: &Targets) -> Result<Vec<Reservations>, Error> {
            Ok(Vec::new())
        }

        fn report(&mut self, _: &Targets) -> Result<BreakpointReport, Error> {
            unreachable!("the run does not end")
        }
    }

    struct Silent;

    impl Observer for Silent {
        fn interval(&mut self, _: &Interval) {}
        fn calls(&mut self, _: &[Call<'_>]) {}
        fn note(&mut self, _: &Note) {}
    }

    #[test]
    fn a_variable_is_credited_only_since_it_has_a_register() {
        static WATCHED: [u64; 2] = [0; 2];
        let attached = Attached::to(std::process::id()).expect("this process");
        let target = Target::of(&attached, Cache::default()).expect("its memory");
        let texts = WATCHED
            .each_ref()
            .map(|word| format!("{:p}:8:w", &raw const *word));
        let event = |text: &'static str| Event::Memory(Memory::parse(text).expect("an address"));
        let request = Request {
            events: texts.map(|text| event(text.leak())).to_vec(),
            via: Via::Kernel,
            ..Request::default()
        };
        let parsed = variables::parse_all(request.variables()).expect("addresses");
        let variables = target.find(&parsed, None).expect("mapped");
        let turns = Turns {
            rotation: Rotation::new(&[false; 2], 1, 0).expect("none is pinned"),
            each: Some(Duration::ZERO),
            next: None,
        };
        let (clock, read_until) = (RunClock::start(), Rc::new(Cell::default()));
        let form = Slow {
            clock,
            read_until: Rc::clone(&read_until),
        };
        let mut run = Run::new(&request, target, variables, Box::new(form), turns);
        let mut at = Targets::of(vec![attached]);
        run.start(&mut at).expect("started");
        let observer = &mut Silent;
        run.poll(&mut Turn {
            at: &mut at,
            clock,
            is_delay: false,
            observer,
        })
        .expect("a turn");
        assert_eq!(run.turns.serving(), [1]);
        assert_eq!(run.turns.watched_ns(1, read_until.get()), 0);
    }
}
