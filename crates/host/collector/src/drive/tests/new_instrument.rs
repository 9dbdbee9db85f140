use std::ffi::OsString;

use super::Silent;
use crate::drive::*;
use tiptoe_attach::Attached;
use tiptoe_event::{Reading, Via};
use tiptoe_session::Event;

#[derive(Default)]
struct Switches {
    first: u64,
    last: u64,
}

impl Switches {
    fn read(at: &Targets) -> Option<u64> {
        let switches = at.counted().map(|target| target.process.switches().ok());
        switches.sum()
    }
}

impl Instrument for Switches {
    fn start(&mut self, at: &mut Targets) -> Result<RunClock, Error> {
        self.first = Switches::read(at).unwrap_or(0);
        Ok(at.start_clock())
    }

    fn poll(&mut self, turn: &mut Turn<'_>) -> Result<Next, Error> {
        turn.at.fetch_cpu_times();
        self.last = self.last.max(Switches::read(turn.at).unwrap_or(0));
        Ok(Next::Within(TICK))
    }

    fn stop(&mut self, turn: &mut Turn<'_>) -> Result<Duration, Error> {
        Ok(turn.clock.elapsed())
    }

    fn section(
        &mut self,
        _ran: &RunEnd,
        _at: &Targets,
        session: &mut Session,
    ) -> Result<Cost, Error> {
        let count = self.last.saturating_sub(self.first);
        let reading = Reading {
            count,
            ..Reading::default()
        };
        session
            .events
            .push(Event::new("switches", Via::Kernel, reading));
        let each = tiptoe_event::Cost::default();
        Ok(Cost::estimated(count, each, session.cpu_ns))
    }
}

fn sleeping() -> Targets {
    let words = ["sh", "-c", "for i in 1 2 3; do sleep 0.05; done"];
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    Targets::of(vec![Attached::start_alone(&words).expect("a shell")])
}

fn session(instrument: &mut dyn Instrument) -> Session {
    let (options, own) = (RunOptions::default(), OwnUse::begin());
    let outcome = run(instrument, &options, &mut sleeping(), &own, &mut Silent);
    let outcome = outcome.expect("nothing fails");
    assert_eq!(outcome.exit_status, Some(0));
    outcome.session
}

#[test]
fn a_new_instrument_needs_no_change_of_the_loop() {
    let session = session(&mut Switches::default());
    let [event] = &session.events[..] else {
        panic!("{:?}", session.events);
    };
    assert!(event.count > 0 && session.cost.hits == event.count);
    assert_eq!(session.targets.len(), 1);
}

#[test]
fn the_cost_of_two_instruments_is_the_sum_of_theirs() {
    let (mut one, mut other) = (Switches::default(), Switches::default());
    let session = session(&mut Several::new(vec![&mut one, &mut other]));
    let counts = session.events.iter().map(|event| event.count);
    assert_eq!(session.events.len(), 2);
    assert_eq!(session.cost.hits, counts.sum::<u64>());
}
