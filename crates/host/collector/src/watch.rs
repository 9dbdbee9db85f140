//! Watches accesses to variables of a process: a driver's loop around breakpoints.
//!
//! The kernel counts in the thread that makes the access, without an agent or a patch. The loop
//! learns in the meantime: an instruction's values, and the steps to its callers, are known only
//! after its first hit. If this user may not open the kernel's breakpoints, the agent's breakpoints
//! record each hit ([`inside`]), and the loop aggregates them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use tiptoe_attach::phase::Phase;
use tiptoe_attach::ready::Ready;
use tiptoe_event::{Cost, Reading, Via};
use tiptoe_kernel::watchpoints::{Condition, Drops, Form, WatchWanted, Watchpoint, Window};
use tiptoe_price::own::OwnUse;
use tiptoe_session::{Allowance, Dropped, Event, Note, Session, Watch};

use crate::drive::{outcome, session_target, unix_ns, wait_for_end};
use crate::driver::TICK;
use crate::module::Cache;
use crate::request::{Budget, Error, Observer, Outcome, RequestTarget};
use crate::words;

mod access_rows;
mod access_sums;
mod begin;
mod condition;
mod each;
mod ends;
mod foresee;
mod form;
mod freed;
mod holders;
mod inside;
mod learn;
mod moves;
mod origins;
mod progress;
mod set;
mod shared;
mod strangers;
mod thread;
mod turns;
mod variable_value;
mod variables;

use begin::Target;
use form::BreakpointRefusal;
pub(crate) use holders::explain;
use inside::InProcessWatch;
use set::Set;
use strangers::Strangers;
use turns::Turns;
use variables::{RequestedVariable, WatchedVariable};

/// The length of a window, in which a number of hits is allowed.
const WINDOW: Duration = Duration::from_millis(100);
/// The turns between two that learn, if nothing new was hit.
const SELDOM: u32 = 10;
/// How long the loop learns in each turn: at first most code is new, and a program may be short.
const BEGINNING: Duration = Duration::from_millis(50);
/// The pause in the beginning, and while a variable's pointers are not set: accesses are missed
/// until the loop sees them set.
const EARLY_TICK: Duration = Duration::from_millis(1);
/// The pause between two checks of the allowance, if only the loop can disable the threads' events.
const REST_TICK: Duration = Duration::from_millis(1);
/// The pause after a turn with many hits. The ring has room for them, so that the next turn reads
/// more at once.
const FLOOD_TICK: Duration = Duration::from_millis(5);
/// Switching the events takes at most one part in this many of the time.
const SWITCHING: u32 = 20;

/// The request for one run.
#[derive(Clone, Debug)]
pub struct WatchRequest {
    /// The agent: the shared object to load into the target.
    pub agent: &'static [u8],
    /// The variables, in the grammar of [`tiptoe_symbol::variable::Watch`].
    pub variables: Vec<String>,
    /// The process or command with the variables.
    pub target: RequestTarget,
    /// The thread, by number or name, whose thread-local variables are watched.
    pub thread: Option<String>,
    /// Group by thread.
    pub by_thread: bool,
    /// Count only accesses that changed the value.
    pub only_changed: bool,
    /// Report each access separately as well.
    pub trace: bool,
    /// Count only accesses for which this condition holds.
    pub when: Option<String>,
    /// Use all debug registers, also the one that is otherwise left to debuggers.
    pub all_slots: bool,
    /// The length of a turn, if variables take turns because there are more than registers.
    pub rotate: Option<Duration>,
    /// Where the breakpoints are.
    pub via: Via,
    /// Report the reservations of debug registers.
    pub stats: bool,
    /// The share of one CPU's time that hits may take.
    pub budget: Budget,
    /// How long to trace; if `None`, until the target ends or `stop` is set.
    pub duration: Option<Duration>,
    /// Set by the caller (on Ctrl-C) to end the trace and get the results.
    pub stop: Arc<AtomicBool>,
    /// As in [`Request`](crate::Request).
    pub hand_on: Arc<AtomicUsize>,
    /// Is notified when counting has begun.
    pub ready: Ready,
}

struct Run<'a> {
    request: &'a WatchRequest,
    target: Target,
    places: Vec<WatchedVariable>,
    set: Set,
    /// Why the watch is not on all CPUs.
    why: Option<String>,
    turns: Turns,
    named: each::Places,
    started_at: SystemTime,
    start: Instant,
    /// `start` by the clock of the hits.
    start_ns: u64,
    allowance: Option<Allowance>,
    strangers: Strangers,
    /// A bit for each variable whose events were disabled when the allowance was used up.
    rested: u64,
    notes: Vec<Note>,
}

/// Runs a request until it ends.
pub fn watch(request: &WatchRequest, observer: &mut dyn Observer) -> Result<Outcome, Error> {
    let own = OwnUse::begin();
    let when = request.when.as_deref();
    let conditions = when.map_or(Ok(Vec::new()), condition::parse)?;
    let variables = variables::parse_all(&request.variables)?;
    let ArmedWatch {
        target,
        places,
        mut set,
        why,
        mut turns,
    } = arm(request, &variables, &conditions)?;
    let allowance = set.allowance().map(|hits| Allowance {
        hits,
        window_ns: WINDOW.as_nanos() as u64,
        ..Allowance::default()
    });
    set.foresee(&target, &places)?;
    let notes = shared::notes(&target, &places);
    let started_at = SystemTime::now();
    let (start, start_ns) = (Instant::now(), tiptoe_sys::raw::monotonic_ns());
    set.process().mark();
    set.start(&target)?;
    turns.start();
    request.ready.notify(&[set.process().counted()]);
    set.process().release()?;
    let mut run = Run {
        request,
        target,
        places,
        set,
        why,
        turns,
        named: each::Places::new(),
        started_at,
        start,
        start_ns,
        allowance,
        strangers: Strangers::default(),
        rested: 0,
        notes,
    };
    run.watch(observer)?;
    Phase::Ending.begin();
    let duration = run.start.elapsed();
    run.set.process().fetch_cpu_time();
    let last = run.set.window()?;
    run.note_window(last);
    run.set.stop(&mut run.target);
    run.report_accesses(observer);
    run.notes.extend(run.move_notes());
    let mut session = run.session(duration)?;
    let (process, notes) = (run.set.process(), &mut session.notes);
    let exit_status = wait_for_end([process], &request.hand_on, observer, notes);
    Ok(outcome(session, exit_status, &own))
}

/// What is ready to count.
struct ArmedWatch {
    target: Target,
    places: Vec<WatchedVariable>,
    set: Set,
    why: Option<String>,
    turns: Turns,
}

/// Finds the variables and opens breakpoints: in the kernel, or inside the process if that is
/// requested or this user may not open the kernel's.
fn arm(
    request: &WatchRequest,
    variables: &[RequestedVariable],
    conditions: &[Condition],
) -> Result<ArmedWatch, Error> {
    let outside = match request.via {
        Via::Agent => None,
        _ => Some(arm_outside(request, variables, conditions)),
    };
    let why = match outside {
        None => None,
        Some(Ok(armed)) => return Ok(armed),
        Some(Err(BreakpointRefusal { error, is_denied }))
            if is_denied && request.via == Via::Auto =>
        {
            Some(error.to_string())
        }
        Some(Err(refused)) => return Err(refused.error),
    };
    let (tracee, target) = inside::enter(request)?;
    let (places, turns) = find(request, variables, &target)?;
    let wanted = wanted(request, conditions, &target);
    let set = InProcessWatch::open(tracee, wanted, &points(&places), turns.serving())?;
    Ok(ArmedWatch {
        set: Set::Agent(Box::new(set)),
        target,
        places,
        why,
        turns,
    })
}

fn arm_outside(
    request: &WatchRequest,
    variables: &[RequestedVariable],
    conditions: &[Condition],
) -> Result<ArmedWatch, BreakpointRefusal> {
    let attached = begin::begin(&request.target)?;
    let target = Target::of(&attached, Cache::default())?;
    target.process.known_in_kernel().map_err(Error::from)?;
    let (places, turns) = find(request, variables, &target)?;
    let wanted = wanted(request, conditions, &target);
    let points = points(&places);
    let (set, form, why) = form::open(wanted, &points, turns.serving(), request.via, &target)?;
    Ok(ArmedWatch {
        target,
        places,
        set: Set::of_kernel(attached, set, form),
        why,
        turns,
    })
}

fn find(
    request: &WatchRequest,
    variables: &[RequestedVariable],
    target: &Target,
) -> Result<(Vec<WatchedVariable>, Turns), Error> {
    let places = target.find(variables, request.thread.as_deref())?;
    if request.when.is_some() {
        places.iter().try_for_each(WatchedVariable::comparable)?;
    }
    let turns = Turns::new(&places, request.rotate, request.all_slots)?;
    Ok((places, turns))
}

fn points(places: &[WatchedVariable]) -> Vec<Watchpoint> {
    places.iter().map(WatchedVariable::watchpoint).collect()
}

fn wanted(request: &WatchRequest, conditions: &[Condition], target: &Target) -> WatchWanted {
    let window_ns = WINDOW.as_nanos() as f64;
    WatchWanted {
        pid: target.process.pid(),
        by_thread: request.by_thread,
        only_changed: request.only_changed,
        one_by_one: request.trace,
        conditions: conditions.to_vec(),
        allowed_ns: request
            .budget
            .share()
            .map(|share| (share * window_ns) as u64),
        form: Form::Wide,
        all_slots: request.all_slots,
    }
}

impl Run<'_> {
    fn watch(&mut self, observer: &mut dyn Observer) -> Result<(), Error> {
        let end = self.request.duration.map(|duration| self.start + duration);
        let mut window = self.start + WINDOW;
        let mut until_learn = 0;
        loop {
            let now = Instant::now();
            if self.allowance.is_some() && now >= window {
                self.next_window(observer)?;
                window = now + WINDOW.max(now.elapsed() * SWITCHING);
            }
            let is_much = self.set.take(&mut self.target);
            self.report_accesses(observer);
            self.report_progress(observer)?;
            let rested = self
                .turns
                .rotate(&mut self.set, &self.target, &self.places)?;
            self.rested |= rested;
            self.follow_pointers(observer)?;
            let is_awake = self.allowance.is_some() && self.set.rest()? == Some(false);
            if self.set.process().is_command() && now - self.start < BEGINNING {
                self.target.follow();
            }
            if until_learn == 0 {
                let new = self.set.learn(&mut self.target)?;
                let is_early = now - self.start < BEGINNING;
                until_learn = if new || is_early { 1 } else { SELDOM };
            }
            until_learn -= 1;
            self.set.process().fetch_cpu_time();
            let ended = self.set.process().has_ended() || self.set.is_over();
            // Relaxed: the flag orders no other data.
            let stopped = self.request.stop.load(Ordering::Relaxed);
            let is_last = stopped || ended || end.is_some_and(|end| now >= end);
            // A new program may have ended since the exec; the exec is reported nevertheless.
            let over = self.has_execed();
            let is_over = is_last || over.is_some();
            self.notes.extend(over);
            if is_over || self.end_gone(observer)? {
                return Ok(());
            }
            let tick = match now - self.start {
                _ if is_much => FLOOD_TICK,
                _ if self.places.iter().any(WatchedVariable::is_unset) => EARLY_TICK,
                early if early < BEGINNING => EARLY_TICK,
                _ if is_awake => REST_TICK,
                _ => TICK,
            };
            let window = self.allowance.map(|_| window);
            let wake = [window, end, self.turns.next()];
            let wake = wake.into_iter().flatten().min();
            let pause = wake.map_or(tick, |at| at.saturating_duration_since(now).min(tick));
            std::thread::sleep(pause.max(Duration::from_micros(100)));
        }
    }

    fn next_window(&mut self, observer: &mut dyn Observer) -> Result<(), Error> {
        let window = self.set.refresh()?;
        self.note_window(window);
        if window.by_strangers {
            self.strangers
                .meet(self.request.via, &mut self.set, observer);
        }
        Ok(())
    }

    fn note_window(&mut self, Window { rested, .. }: Window) {
        self.rested |= rested;
        if let Some(allowance) = &mut self.allowance {
            allowance.windows += 1;
            allowance.used_up += u64::from(rested != 0);
        }
    }

    /// Returns the session of the counts.
    fn session(&mut self, duration: Duration) -> Result<Session, Error> {
        let found = self.set.read()?;
        let duration_ns = duration.as_nanos() as u64;
        let mut session = Session::new(self.target.command.clone());
        session.started_unix_ns = unix_ns(self.started_at);
        session.duration_ns = duration_ns;
        let process = self.set.process();
        session.cpu_ns = process.cpu_time().as_nanos() as u64;
        session.targets.push(session_target(process));
        let drops = self.set.drops()?;
        let missed = self.set.missed();
        let has_missed = missed != [0; 4];
        let mut variables = Vec::new();
        for (index, place) in (0..).zip(&self.places) {
            let hits = self.set.hits(index)?;
            let rested = has_missed || self.rested & 1 << index != 0;
            let until = self.start_ns + duration_ns;
            let watched = || self.turns.watched_ns(index as usize, until);
            let watched = place.life.watched_ns().unwrap_or_else(watched);
            let takes_turns = self.turns.are_needed() && !place.is_pinned();
            let partly = takes_turns.then_some(watched);
            variables.push(place.variable(hits, rested, partly));
            let reading = Reading {
                count: hits.wanted,
                time_enabled_ns: duration_ns,
                time_running_ns: partly.unwrap_or(duration_ns),
                ..Reading::default()
            };
            session
                .events
                .push(Event::new(place.event(), self.set.via(), reading));
        }
        session.cost = self.cost(&mut session.events, &variables, session.cpu_ns)?;
        let rows = access_rows::rows(&found, &self.places, &self.target, self.start_ns);
        let places = self.places.iter();
        let freed = places.clone().filter_map(|place| freed::note(place, &rows));
        self.notes.extend(freed);
        let ended = places.filter_map(|place| ends::note(place, &rows, &self.target));
        self.notes.extend(ended);
        session.watch = Some(Watch {
            by: if self.request.by_thread {
                "thread"
            } else {
                "comm"
            }
            .to_owned(),
            rows,
            variables,
            form: form::placement(&self.set, self.why.as_deref()),
            reservations: match self.request.stats {
                true => Some(self.set.reservations()?),
                false => None,
            },
            foreign: self.set.foreign()?,
            sees_kernel: self.set.sees_kernel(),
            allowance: self.allowance,
            drops: dropped(drops, missed),
        });
        session.notes.append(&mut self.notes);
        session.notes.extend(self.strangers.note());
        Ok(session)
    }

    /// Estimates the cost: each hit's trap as measured here, and our BPF program's time in the
    /// process.
    fn cost(
        &self,
        events: &mut [Event],
        variables: &[tiptoe_session::Variable],
        cpu_ns: u64,
    ) -> Result<tiptoe_session::Cost, Error> {
        let hits: u64 = variables.iter().map(|variable| variable.hits).sum();
        let unit: Cost = self.set.hit_cost()?;
        for (event, variable) in events.iter_mut().zip(variables) {
            event.cost_ns = unit.times(variable.hits).ns;
        }
        Ok(tiptoe_session::Cost::estimated(
            hits,
            unit.times(hits),
            cpu_ns,
        ))
    }
}

/// Returns a text for each reason why hits were dropped.
fn dropped(drops: Drops, [too_fast, late, gaps, strays]: [u64; 4]) -> Vec<Dropped> {
    words::dropped([
        (too_fast, "not counted: they were faster than their reader"),
        (
            gaps,
            "or more may be missing: the agent left for a moment each time that the program changed its user",
        ),
        (
            strays,
            "whose trap had no cause, as on some virtual machines: their instructions are unknown",
        ),
        (
            late,
            "while a thread blocked SIGTRAP by a system call of its own: their instructions and their number \
             are unknown",
        ),
        (
            drops.nested,
            "while another hit was being counted on the same CPU",
        ),
        (
            drops.missed,
            "the kernel did not run the program, which ran already on that CPU",
        ),
        (
            drops.no_room_for_row,
            "there were more rows than there is room for",
        ),
        (drops.no_value, "counted, but the value could not be read"),
        (
            drops.no_room_for_line,
            "counted, but not printed one by one: they were faster than their reader",
        ),
    ])
}
