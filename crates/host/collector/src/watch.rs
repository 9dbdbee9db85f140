//! Watches accesses to variables of a process by breakpoints, as an [`Instrument`] of the run's loop.
//!
//! A BPF program counts each access, in the thread that makes it. No code is patched. From an instruction's first hit,
//! the watch learns what the instruction stores, and how to find its callers. If this user may not open the kernel's
//! breakpoints, the program's own threads record each hit ([`inside`]).

use std::time::Duration;

use tiptoe_attach::Attached;
use tiptoe_event::{Reading, Via};
use tiptoe_kernel::watchpoints::{Condition, Drops, Form, WatchWanted, Watchpoint, Window};
use tiptoe_price::own::OwnUse;
use tiptoe_session::{Allowance, Cost, Dropped, Event, Note, Placement, Session, Watch, WatchNote};

use crate::clock::RunClock;
use crate::drive::{Instrument, Next, RunEnd, Targets, Turn, run};
use crate::error::{DropReason, Error, Reason};
use crate::module::Cache;
use crate::request::{Observer, Outcome, Progress, Request, RequestTarget, Split};
use crate::words;

mod access_cost;
mod access_rows;
mod access_sums;
mod begin;
mod breakpoints;
mod condition;
mod each;
mod foreign_hits;
mod form;
mod freed;
mod holders;
mod in_kernel;
mod initial_rules;
mod inside;
mod learned_code;
mod lifetimes;
mod moves;
mod origins;
mod pointer_path;
mod shared;
mod thread;
mod turns;
mod variable_lifetime;
mod variable_value;
mod variables;

use begin::Target;
use breakpoints::Breakpoints;
use foreign_hits::ForeignHits;
pub(crate) use holders::explain;
use inside::{AgentUse, InProcessWatch};
use turns::{Registers, Turns};
use variables::{RequestedVariable, WatchedVariable};

/// The length of a window, in which the budget allows a number of hits.
const WINDOW: Duration = Duration::from_millis(100);
/// For this time after the start, the loop polls every [`EARLY_TICK`], and each poll looks for newly mapped code of a new
/// program. Otherwise a program could end before tiptoe knows the code of its first hits.
const BEGINNING: Duration = Duration::from_millis(50);
const EARLY_TICK: Duration = Duration::from_millis(1);
/// Starting windows takes at most 1/`SWITCHING` of the time.
const SWITCHING: u32 = 20;

struct Run<'a> {
    request: &'a Request<'a>,
    target: Target,
    variables: Vec<WatchedVariable>,
    form: Box<dyn Breakpoints>,
    why: Option<Reason>,
    turns: Turns,
    named: each::InstructionNames,
    allowance: Option<Allowance>,
    /// When the present window ends, since the start.
    window_end: Duration,
    foreign_hits: ForeignHits,
    rested: u64,
    notes: Vec<Note>,
}

pub(crate) struct RequestedWatch {
    variables: Vec<RequestedVariable>,
    conditions: Vec<Condition>,
}

impl RequestedWatch {
    pub(crate) fn parse(request: &Request<'_>) -> Result<RequestedWatch, Error> {
        let when = request.accesses.when.as_deref();
        Ok(RequestedWatch {
            conditions: when.map_or(Ok(Vec::new()), condition::parse)?,
            variables: variables::parse_all(request.variables())?,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.variables.is_empty()
    }
}

pub(crate) fn watch(request: &Request<'_>, observer: &mut dyn Observer) -> Result<Outcome, Error> {
    let own = OwnUse::begin();
    let requested = RequestedWatch::parse(request)?;
    let (mut watch, mut at) = arm(request, &requested)?;
    run(&mut watch, &request.options, &mut at, &own, observer)
}

/// Fails if an agent (tiptoe's library) that also counts other events cannot watch the variables.
pub(crate) fn may_be_beside(request: &Request<'_>) -> Result<(), Error> {
    match &request.target {
        _ if request.via == Via::Kernel => Err(Error::VariablesInKernel),
        RequestTarget::Pids(pids) => begin::one(pids).map(|_| ()),
        _ => Ok(()),
    }
}

/// Watches in a process whose agent also counts other events.
pub(crate) fn beside<'a>(
    request: &'a Request<'a>,
    requested: &RequestedWatch,
    at: &Targets,
) -> Result<Box<dyn Instrument + 'a>, Error> {
    let tracee = at.traced.first().ok_or(Error::NoHits)?;
    let target = Target::of(&tracee.process.target, Cache::default())?;
    let run = arm_inside(request, requested, target, at, AgentUse::Shared)?;
    Ok(Box::new(run))
}

fn arm<'a>(
    request: &'a Request<'a>,
    requested: &RequestedWatch,
) -> Result<(Run<'a>, Targets), Error> {
    let why = match request.via {
        Via::Agent => None,
        via => match arm_outside(request, requested) {
            Err(error) if via == Via::Auto && form::is_denied(&error) => Some(error.into()),
            armed => return armed,
        },
    };
    let (tracee, target) = inside::enter(request)?;
    let at = Targets::traced(vec![tracee]);
    let run = arm_inside(request, requested, target, &at, AgentUse::Own)?;
    Ok((Run { why, ..run }, at))
}

fn arm_inside<'a>(
    request: &'a Request<'a>,
    requested: &RequestedWatch,
    target: Target,
    at: &Targets,
    agent: AgentUse,
) -> Result<Run<'a>, Error> {
    let (variables, turns) = find(request, &requested.variables, &target)?;
    let wanted = wanted(request, &requested.conditions, &target);
    let points = points(&variables);
    let form = InProcessWatch::open(at, wanted, &points, turns.serving(), agent)?;
    let form = Box::new(form);
    Ok(Run::new(request, target, variables, form, turns))
}

fn arm_outside<'a>(
    request: &'a Request<'a>,
    requested: &RequestedWatch,
) -> Result<(Run<'a>, Targets), Error> {
    let attached = begin::begin(request)?;
    let target = Target::of(&attached, Cache::default())?;
    target.process.known_in_kernel()?;
    let (variables, turns) = find(request, &requested.variables, &target)?;
    let wanted = wanted(request, &requested.conditions, &target);
    let points = points(&variables);
    let (form, why) = form::open(wanted, &points, turns.serving(), request.via, &target)?;
    let run = Run::new(request, target, variables, form, turns);
    Ok((Run { why, ..run }, Targets::of(vec![attached])))
}

fn find(
    request: &Request<'_>,
    variables: &[RequestedVariable],
    target: &Target,
) -> Result<(Vec<WatchedVariable>, Turns), Error> {
    let variables = target.find(variables, request.accesses.thread.as_deref())?;
    if request.accesses.when.is_some() {
        variables.iter().try_for_each(WatchedVariable::comparable)?;
    }
    let by_value = [
        (request.accesses.only_changed, "--changed"),
        (request.accesses.when.is_some(), "--when"),
    ];
    for (_, option) in by_value.into_iter().filter(|(is_given, _)| *is_given) {
        variables
            .iter()
            .try_for_each(|variable| variable.has_values(option))?;
    }
    let turns = Turns::new(
        &variables,
        request.accesses.rotate,
        request.accesses.all_slots,
    )?;
    Ok((variables, turns))
}

fn is_by_thread(request: &Request<'_>) -> bool {
    request.split == Some(Split::Thread)
}

fn points(variables: &[WatchedVariable]) -> Vec<Watchpoint> {
    variables.iter().map(WatchedVariable::watchpoint).collect()
}

fn wanted(request: &Request<'_>, conditions: &[Condition], target: &Target) -> WatchWanted {
    let window_ns = WINDOW.as_nanos() as f64;
    WatchWanted {
        pid: target.process.pid(),
        by_thread: is_by_thread(request),
        only_changed: request.accesses.only_changed,
        one_by_one: request.accesses.trace,
        conditions: conditions.to_vec(),
        allowed_ns: request
            .budget_share()
            .map(|share| (share * window_ns) as u64),
        form: Form::Cpus,
        all_slots: request.accesses.all_slots,
    }
}

impl<'a> Run<'a> {
    fn new(
        request: &'a Request<'a>,
        target: Target,
        variables: Vec<WatchedVariable>,
        mut form: Box<dyn Breakpoints>,
        turns: Turns,
    ) -> Run<'a> {
        let allowance = form.allowance().map(|hits| Allowance {
            hits,
            window_ns: WINDOW.as_nanos() as u64,
            ..Allowance::default()
        });
        Run {
            request,
            notes: shared::notes(&target, &variables),
            target,
            variables,
            form,
            why: None,
            turns,
            named: each::InstructionNames::new(),
            allowance,
            window_end: WINDOW,
            foreign_hits: ForeignHits::default(),
            rested: 0,
        }
    }

    fn begin_window(&mut self, turn: &mut Turn<'_>) -> Result<(), Error> {
        let now = turn.clock.elapsed();
        if self.allowance.is_none() || now < self.window_end {
            return Ok(());
        }
        let window = self.form.refresh(turn.at)?;
        self.note_window(window);
        if window.by_strangers {
            self.foreign_hits
                .handle_window(self.request.via, &mut *self.form, turn.observer)?;
        }
        let switching = turn.clock.elapsed() - now;
        self.window_end = now + WINDOW.max(switching * SWITCHING);
        Ok(())
    }

    fn note_window(&mut self, Window { rested, .. }: Window) {
        self.rested |= rested;
        if let Some(allowance) = &mut self.allowance {
            allowance.windows += 1;
            allowance.used_up += u64::from(rested != 0);
        }
    }
}

impl Instrument for Run<'_> {
    fn start(&mut self, at: &mut Targets) -> Result<RunClock, Error> {
        self.form
            .supply_initial_rules(&self.target, &self.variables)?;
        let clock = at.start_clock();
        self.window_end = WINDOW;
        self.form.start(at, &self.target)?;
        self.turns.start();
        // In a running program, the first breakpoints count before the last breakpoints are enabled, so the clock has
        // started above. A command that is held makes no access yet, so its clock starts now.
        let is_held = at.counted().all(Attached::is_held);
        Ok(if is_held { at.start_clock() } else { clock })
    }

    fn poll(&mut self, turn: &mut Turn<'_>) -> Result<Next, Error> {
        let now = turn.clock.elapsed();
        self.begin_window(turn)?;
        let next = self.form.poll(turn.at, &mut self.target, now)?;
        self.report_accesses(turn.clock, turn.observer);
        let mut registers = Registers {
            form: &mut *self.form,
            at: turn.at,
            target: &self.target,
            variables: &self.variables,
            rested: &mut self.rested,
        };
        // `now` is too old, because reading the accesses took time. That time counts for the variables that still have
        // the registers.
        self.turns.rotate(turn.clock.elapsed(), &mut registers)?;
        self.follow_pointers(turn)?;
        let is_early = now < BEGINNING;
        if self.target.is_new && is_early {
            self.target.follow();
        }
        turn.at.fetch_cpu_times();
        let over = self.has_execed(turn);
        let is_over = over.is_some() || self.form.is_over(turn.at);
        self.notes.extend(over);
        if is_over || !turn.at.have_ended() && self.end_gone(turn)? {
            return Ok(Next::Ended);
        }
        let window_end = self.allowance.map(|_| self.window_end);
        let ends = window_end.into_iter().chain(self.turns.next);
        let now = turn.clock.elapsed();
        let pauses = ends.map(|end| end.saturating_sub(now));
        let pauses = pauses.chain(is_early.then_some(EARLY_TICK));
        Ok(Next::Within(pauses.fold(next, Duration::min)))
    }

    fn progress(&mut self, cpu_ns: u64, _: &mut Turn<'_>) -> Result<Option<Progress>, Error> {
        let (mut wanted, mut hits) = (0_u64, 0_u64);
        for (index, _) in (0..).zip(&self.variables) {
            let of_one = self.form.hits(index)?;
            wanted = wanted.saturating_add(of_one.wanted);
            hits = hits.saturating_add(of_one.all);
        }
        let cost = self.form.hit_cost()?.times(hits);
        Ok(Some(Progress {
            hits: wanted,
            cost: Some(Cost::estimated(hits, cost, cpu_ns)),
        }))
    }

    fn stop(&mut self, turn: &mut Turn<'_>) -> Result<Duration, Error> {
        let elapsed = turn.clock.elapsed();
        turn.at.fetch_cpu_times();
        let last = self.form.window(turn.at);
        self.form.stop(turn.at, &mut self.target);
        self.note_window(last?);
        self.report_accesses(turn.clock, turn.observer);
        Ok(elapsed)
    }

    fn section(
        &mut self,
        ran: &RunEnd,
        at: &Targets,
        session: &mut Session,
    ) -> Result<Cost, Error> {
        let report = self.form.report(at)?;
        session.command.clone_from(&self.target.command);
        self.notes.extend(self.move_notes());
        let has_missed = report.missed != [0; 3] || report.gaps > 0;
        let (mut variables, mut events) = (Vec::new(), Vec::new());
        for (index, variable) in (0..).zip(&self.variables) {
            let hits = self.form.hits(index)?;
            let rested = has_missed || self.rested & 1 << index != 0;
            let watched = || self.turns.watched_ns(index as usize, ran.elapsed);
            let watched = variable.lifetime.ended.unwrap_or_else(watched);
            let takes_turns = self.turns.are_needed() && !variable.is_pinned;
            let partly = takes_turns.then_some(watched);
            variables.push(variable.to_session(hits, rested, partly));
            let reading = Reading {
                count: hits.wanted,
                time_enabled_ns: session.duration_ns,
                time_running_ns: partly.unwrap_or(session.duration_ns),
                ..Reading::default()
            };
            events.push(Event::new(variable.event(), report.via, reading));
        }
        let cost = access_cost::share_out(
            &mut events,
            &variables,
            self.form.hit_cost()?,
            session.cpu_ns,
        );
        session.events.append(&mut events);
        let found = &report.rows;
        let (rows, notes) = access_rows::rows(found, &self.variables, &self.target, ran.clock);
        self.notes.extend(notes);
        let watched = self.variables.iter();
        let freed = watched
            .clone()
            .filter_map(|variable| freed::note(variable, &rows));
        self.notes.extend(freed);
        let ended = watched.filter_map(|variable| lifetimes::note(variable, &rows, &self.target));
        self.notes.extend(ended);
        if report.gaps > 0 {
            let times = report.gaps;
            self.notes.push(WatchNote::AgentLeft { times }.into());
        }
        if report.refused > 0 {
            let threads = report.refused;
            self.notes.push(WatchNote::NotAccounted { threads }.into());
        }
        let by = match is_by_thread(self.request) {
            true => Split::Thread,
            false => Split::Comm,
        };
        let reservations = self
            .request
            .accesses
            .stats
            .then(|| self.form.reservations(at));
        session.watch = Some(Watch {
            by: by.word().to_owned(),
            rows,
            variables,
            form: Placement {
                why: self.why.take().map(|why| why.to_string()),
                ..report.form
            },
            reservations: reservations.transpose()?,
            foreign: report.foreign,
            sees_kernel: report.sees_kernel,
            allowance: self.allowance,
            drops: dropped(report.drops, report.missed),
        });
        session.notes.append(&mut self.notes);
        session.notes.extend(self.foreign_hits.note());
        Ok(cost)
    }
}

fn dropped(drops: Drops, [too_fast, late, strays]: [u64; 3]) -> Vec<Dropped> {
    words::dropped([
        (too_fast, DropReason::FastHit),
        (strays, DropReason::StrayTrap),
        (late, DropReason::BlockedTrap),
        (drops.nested, DropReason::NestedHit),
        (drops.missed, DropReason::Missed),
        (drops.no_room_for_row, DropReason::ManyRows),
        (drops.no_value, DropReason::NoValue),
        (drops.no_room_for_line, DropReason::FastLine),
    ])
}
