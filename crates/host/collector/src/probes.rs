//! Counts hits of probes, waits for programs' locks, and scopes (parts of a run that a program names), as an
//! [`Instrument`] of the run's loop. Agents (tiptoe's library in each target) or the kernel count.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tiptoe_attach::Attached;
use tiptoe_attach::phase::Phase;
use tiptoe_event::{Reading, Via};
use tiptoe_price::own::OwnUse;
use tiptoe_session::{
    AddressSpace, Cost, CountPart, Locks, Note, Process, ProcessNote, Refusal, Session,
};

use crate::clock::RunClock;
use crate::clock::TICK;
use crate::drive::{self, Instrument, IntervalCounts, Next, RunEnd, Several, Span, Targets, Turn};
use crate::error::{Error, Reason};
use crate::module::Cache;
use crate::request::{Budget, Observer, Outcome, Progress, Request, RequestTarget, Split};
use crate::start::{attach_all, broken_off, signal_of, start, start_and_attach};
use crate::tracee::{Plan, START_PAUSE, TRAP_WINDOW, Tracee};
use crate::words::session_target;

mod ends;
mod event_section;
mod event_sums;
mod libraries;
mod lock_section;
mod outside_findings;
mod prices;
mod progress;
mod recorded_calls;
mod scope_section;

use event_sums::Events;
use outside_findings::OutsideFindings;
use progress::RunPrices;
use recorded_calls::READ_PAUSE;
use scope_section::ScopeSection;

/// The pause between two checks whether a target called exec, or runs as another user.
const EXEC_TICK: Duration = Duration::from_millis(20);
/// The pause between two checks whether another tracer probes the same functions.
const FOREIGN_TICK: Duration = Duration::from_millis(500);

struct Probes<'a> {
    request: &'a Request<'a>,
    plan: &'a Plan<'a>,
    cache: Cache,
    report: Report,
    looks: Looks,
    counts: CountsSoFar,
    locks: Option<Locks>,
    scopes: ScopeSection,
    prices: RunPrices,
    outside: OutsideFindings,
    /// Why the attach ended early, if the user interrupted it.
    broken_off: Option<ProcessNote>,
}

#[derive(Default)]
struct Report {
    notes: Vec<Note>,
    refusals: Vec<Refusal>,
    spaces: Vec<Option<AddressSpace>>,
}

impl Report {
    fn add(&mut self, note: impl Into<Note>, observer: &mut dyn Observer) {
        let note = note.into();
        observer.note(&note);
        self.notes.push(note);
    }

    fn refuse(&mut self, refused: impl IntoIterator<Item = (String, Reason)>) {
        for (event, why) in refused {
            let refusal = Refusal::new(event, why.to_string());
            if !self.refusals.contains(&refusal) {
                self.refusals.push(refusal);
            }
        }
    }
}

/// When the next checks are due, as time since the attach.
struct Looks {
    clock: RunClock,
    ends: Duration,
    foreign: Duration,
    traps: Duration,
    records: Duration,
}

fn is_due(next: &mut Duration, now: Duration, pause: Duration) -> bool {
    let is_due = now >= *next;
    if is_due {
        *next = now + pause;
    }
    is_due
}

#[derive(Default)]
struct CountsSoFar {
    first: Events,
    last: BTreeMap<String, Reading>,
    end: Option<Events>,
}

/// `others` makes instruments that count in the same processes.
pub(crate) fn run<'a>(
    request: &'a Request<'a>,
    observer: &mut dyn Observer,
    others: impl FnOnce(&Targets) -> Result<Vec<Box<dyn Instrument + 'a>>, Error>,
) -> Result<Outcome, Error> {
    let own = OwnUse::begin();
    let plan = Plan::of(request, observer.wants_calls());
    let mut cache = Cache::default();
    let mut options = request.options.clone();
    let mut ended = Vec::new();
    let traced = match &request.target {
        // `attach_all` waits for the delay itself.
        RequestTarget::Pids(pids) => {
            options.delay = None;
            let attached = attach_all(pids, &plan, &mut cache)?;
            ended = attached.ended;
            attached.tracees
        }
        RequestTarget::Command(command) => match options.delay.filter(|_| plan.locks()) {
            // Waits for locks during the delay could not be subtracted from the results, so tiptoe attaches after the
            // delay.
            Some(delay) => {
                options.delay = None;
                start_and_attach(command, delay, &options.stop, &plan, &mut cache)?
            }
            None => vec![start(command, &plan, &mut cache)?],
        },
        RequestTarget::System => return Err(Error::NothingCounted),
    };
    let mut at = Targets::traced(traced);
    // A failed run must leave nothing in any target. A command that is held (has not begun to run) needs no detach,
    // because it is killed.
    let mut others = others(&at).inspect_err(|_| {
        let running = at.traced.iter().filter(|one| !one.process.target.is_held());
        running.for_each(|one| drop(one.process.detach()));
    })?;
    let mut probes = Probes::new(&plan, cache, &mut at, ended);
    probes.note_waiting(&at, observer);
    let mut all: Vec<&mut dyn Instrument> = vec![&mut probes];
    all.extend(
        others
            .iter_mut()
            .map(|one| &mut **one as &mut dyn Instrument),
    );
    let mut outcome = drive::run(&mut Several::new(all), &options, &mut at, &own, observer)?;
    libraries::note_unmatched(&at, &mut outcome.session.notes)?;
    let signal = probes.broken_off.map(|_| 128 + signal_of(request));
    outcome.exit_status = outcome.exit_status.or(signal);
    Ok(outcome)
}

/// Removes and writes the probes of each running process `times` times, to show that patching is safe. Returns the
/// number of times, summed over the processes; `stop` ends the loop.
pub fn toggle(request: &Request<'_>, times: u64) -> Result<u64, Error> {
    let RequestTarget::Pids(pids) = &request.target else {
        return Err(Error::IsCommand);
    };
    let request = &Request {
        via: Via::Agent,
        ..request.clone()
    };
    let plan = Plan::of(request, false);
    let tracees = attach_all(pids, &plan, &mut Cache::default())?.tracees;
    Phase::Counting.begin();
    // Relaxed: the flag orders no other data.
    let stop = || request.options.stop.load(Ordering::Relaxed);
    let toggled = tracees
        .iter()
        .map(|tracee| tracee.agent.toggle(&tracee.process, times, stop))
        .sum();
    Phase::Ending.begin();
    for tracee in &tracees {
        tracee.process.detach()?;
    }
    toggled
}

fn look_at_copied(at: &Targets) {
    let traced = at.traced.iter();
    traced.for_each(|one| {
        let sites = &one.agent.patches.later.agent_sites;
        one.agent.forks.look(&one.process.target, sites);
    });
}

impl<'a> Probes<'a> {
    /// `ended` processes ended before tiptoe had attached to them.
    fn new(plan: &'a Plan<'a>, cache: Cache, at: &mut Targets, ended: Vec<Process>) -> Probes<'a> {
        let broken_off = broken_off(plan.request, &at.traced, ended.len());
        let mut report = Report::default();
        for tracee in &mut at.traced {
            report.notes.append(&mut tracee.coverage.notes);
            let refused = std::mem::take(&mut tracee.coverage.refused).into_iter();
            let refusals = refused.map(|(event, why)| Refusal::new(event, why.to_string()));
            report.refusals.extend(refusals);
        }
        let ended = ended.into_iter();
        let ended = ended.map(|process| Note::from(ProcessNote::EndedInAttach { process }));
        report.notes.extend(ended);
        report.notes.extend(broken_off.clone().map(Note::from));
        Probes {
            request: plan.request,
            plan,
            cache,
            report,
            looks: Looks {
                clock: RunClock::start(),
                ends: EXEC_TICK,
                foreign: FOREIGN_TICK,
                traps: Duration::ZERO,
                records: Duration::ZERO,
            },
            counts: CountsSoFar::default(),
            locks: None,
            scopes: ScopeSection::default(),
            prices: RunPrices::default(),
            outside: OutsideFindings::default(),
            broken_off,
        }
    }

    fn look_at_traps(&mut self, at: &Targets, observer: &mut dyn Observer) {
        if self.request.budget == Budget::Off {
            return;
        }
        let notes = at.traced.iter();
        let notes = notes.flat_map(|one| one.agent.switch_off_hot_traps(&one.process));
        notes.for_each(|note| self.report.add(note, observer));
    }

    fn throttle(&mut self, at: &mut Targets, observer: &mut dyn Observer) {
        let tracees = at.traced.iter_mut();
        let notes = tracees.filter_map(|tracee| {
            let target = &tracee.process.target;
            tracee.kernel.throttle(target, Instant::now())
        });
        notes.for_each(|note| self.report.add(note, observer));
    }

    fn events_by(&self, by: Option<Split>, at: &Targets, clock: RunClock) -> Result<Events, Error> {
        let mut events = Events::default();
        for tracee in &at.traced {
            events.add(tracee, tracee.read(by, clock)?);
        }
        events.since(&self.counts.first);
        Ok(events)
    }

    fn events(&self, at: &Targets, clock: RunClock) -> Result<Events, Error> {
        at.fetch_cpu_times();
        self.events_by(self.request.hit_split(), at, clock)
    }

    /// Returns how long the run counted.
    fn count_last(&mut self, at: &mut Targets, clock: RunClock) -> Result<Duration, Error> {
        let traced = at.traced.iter();
        traced.for_each(|one| one.agent.bury_dead_threads(&one.process));
        // Reading the address space also makes the agent find code that the program moved. The counts of moved code are
        // lower bounds.
        let spaces = at.traced.iter();
        let spaces = spaces.map(|one| one.process.address_space());
        self.report.spaces = spaces.collect();
        let events = self.events(at, clock)?;
        at.fetch_cpu_times();
        let mut elapsed = clock.elapsed();
        self.counts.end = Some(events);
        self.look_for_names(at);
        self.outside.look_for_children(at);
        if self.plan.locks() {
            elapsed = self.read_locks(self.request.user_lock_split(), at, clock)?;
        }
        let without = at.traced.iter();
        let without =
            without.filter_map(|tracee| tracee.scopes.without_scopes(&tracee.process, self.plan));
        self.report.notes.extend(without);
        if self.request.needs_scopes() {
            let cpu_ns = at.cpu_ns(elapsed);
            self.scopes.end = self.scopes.read(self.request, at, cpu_ns)?;
        }
        Ok(elapsed)
    }

    fn detach(&mut self, at: &mut Targets) {
        for tracee in &mut at.traced {
            let detached = match tracee.process.target.is_held() {
                true => Ok(()),
                false => tracee.process.detach(),
            };
            if let Err(error) = detached {
                let (process, why) = (session_target(&tracee.process.target), error.to_string());
                let note = ProcessNote::NotDetached { process, why };
                self.report.notes.push(note.into());
            }
        }
        at.traced.iter_mut().for_each(|one| one.kernel.close());
    }
}

impl Instrument for Probes<'_> {
    /// In a running process, counting began at the attach. Counts before the returned clock's start are subtracted.
    fn start(&mut self, at: &mut Targets) -> Result<RunClock, Error> {
        let is_held = at.counted().any(Attached::is_held);
        let is_command = self.request.is_command();
        let is_running = !is_command || self.plan.locks() && !is_held;
        // Several processes are attached one after another, so they get a common start. Waits for locks cannot be
        // subtracted.
        let is_common = at.traced.len() > 1 && !self.plan.locks();
        let first = at.traced.first().map(|tracee| tracee.process.since);
        // The first checks are made here, because a command may end before the first poll.
        look_at_copied(at);
        self.look_for_names(at);
        if let Some(first) = first.filter(|_| is_running)
            && (!is_common || self.broken_off.is_some())
        {
            return Ok(first);
        }
        let clock = at.start_clock();
        for tracee in &mut at.traced {
            tracee.process.since = clock;
        }
        if !is_held {
            self.counts.first = self.events(at, clock)?;
            if self.request.needs_scopes() {
                self.scopes.begin(self.request, at)?;
            }
            for tracee in &at.traced {
                let (agent, process) = (&tracee.agent, &tracee.process);
                agent.forget_longest_calls(process)?;
                drop(agent.take_calls());
                agent.forks.leave_out(&process.target);
            }
        }
        Ok(clock)
    }

    fn poll(&mut self, turn: &mut Turn<'_>) -> Result<Next, Error> {
        let (at, observer) = (&mut *turn.at, &mut *turn.observer);
        self.look_for_libraries(at, observer);
        let is_starting = self.catch_starts(at);
        let now = self.looks.clock.elapsed();
        if is_due(&mut self.looks.foreign, now, FOREIGN_TICK) {
            self.outside.look_for_foreign(at);
            self.outside.look_for_children(at);
            self.look_for_names(at);
        }
        if is_due(&mut self.looks.traps, now, TRAP_WINDOW) {
            self.look_at_traps(at, observer);
        }
        if is_due(&mut self.looks.ends, now, EXEC_TICK) {
            // CPU times must be read often, because the time since the last read is lost when a process ends.
            at.fetch_cpu_times();
            look_at_copied(at);
            let is_empty = at.traced.iter().all(|one| one.process.only_agent_left());
            if self.look_for_ends(at, observer) || is_empty {
                return Ok(Next::Ended);
            }
        }
        let traced = at.traced.iter();
        traced.for_each(|one| one.agent.refill_budgets(&one.process));
        self.throttle(at, observer);
        if self.request.calls.record && now >= self.looks.records {
            let took = recorded_calls::serve(at, turn.clock, (!turn.is_delay).then_some(observer));
            self.looks.records = now + recorded_calls::pause_after(took);
        }
        let tick = match (is_starting, self.request.calls.record) {
            (true, _) => START_PAUSE,
            (_, true) => READ_PAUSE,
            _ => TICK,
        };
        let looks = at.traced.iter();
        let looks = looks.filter_map(|one| one.kernel.next_throttle());
        let now = Instant::now();
        let pauses = looks.map(|look| look.saturating_duration_since(now));
        Ok(Next::Within(pauses.fold(tick, Duration::min)))
    }

    fn count_interval(&mut self, span: Span, turn: &mut Turn<'_>) -> Result<IntervalCounts, Error> {
        if self.request.reports_scopes() {
            self.report_scopes(span, turn)?;
            if self.plan.probes.is_empty() {
                return Ok(None);
            }
        }
        let is_end = self.counts.end.is_some();
        let read = (!is_end).then(|| self.events(turn.at, turn.clock));
        let read = read.transpose()?;
        let Some(now) = self.counts.end.as_ref().or(read.as_ref()) else {
            return Ok(None);
        };
        let count = |name: &String| {
            let earlier = self.counts.last.get(name).copied().unwrap_or_default();
            let reading = now.by_name.get(name)?.all.reading.since(earlier);
            let mut part = CountPart::new(name, reading.count);
            part.at_least = reading.at_least;
            Some(part)
        };
        let counts = now.order.iter().filter_map(count);
        let counts = counts.filter(|part| part.count > 0).collect();
        self.counts.last = now.readings();
        Ok(Some(counts))
    }

    fn reports_rest(&self) -> bool {
        self.request.reports_scopes()
    }

    fn progress(&mut self, cpu_ns: u64, turn: &mut Turn<'_>) -> Result<Option<Progress>, Error> {
        let waits = match self.plan.locks() {
            true => Some(self.waits_so_far(cpu_ns, turn.at)?),
            false => None,
        };
        if !self.plan.has_hits() {
            return Ok(waits);
        }
        let hits = self.hits_so_far(cpu_ns, turn.at, turn.clock)?;
        Ok(Some(match waits {
            Some(waits) => hits.plus(waits),
            None => hits,
        }))
    }

    fn stop(&mut self, turn: &mut Turn<'_>) -> Result<Duration, Error> {
        let (at, observer) = (&mut *turn.at, &mut *turn.observer);
        let counted = self.count_last(at, turn.clock);
        self.outside.look_for_foreign(at);
        let tracees = at.traced.iter();
        let notes = &mut self.report.notes;
        notes.extend(tracees.clone().filter_map(Tracee::came_and_went));
        notes.extend(tracees.filter_map(libraries::missed));
        recorded_calls::report_calls(at, observer);
        self.look_for_ends(at, observer);
        self.detach(at);
        counted
    }

    fn section(&mut self, _: &RunEnd, at: &Targets, session: &mut Session) -> Result<Cost, Error> {
        session.notes.append(&mut self.report.notes);
        session.refusals.append(&mut self.report.refusals);
        for (target, space) in session.targets.iter_mut().zip(&self.report.spaces) {
            target.address_space = *space;
        }
        session.slower_ns = self.request.calls.slower_ns;
        session.under = self.request.calls.under.map(|probe| probe.text.to_owned());
        let is_held = at.traced.iter().any(Tracee::has_budget);
        session.budget = self.request.budget.share().filter(|_| is_held);
        self.outside.note(at, session);
        session.scopes = self.scopes.take();
        let hits = self.plan.has_hits().then(|| self.add_events(at, session));
        let waits = self.locks.take();
        let waits = waits.map(|locks| self.add_locks(locks, at, session));
        let mut cost = match (hits, waits) {
            (Some(hits), Some(waits)) => hits.plus(waits),
            (hits, waits) => hits.or(waits).unwrap_or_default(),
        };
        event_section::price_forks(at, &mut cost, session.cpu_ns);
        Ok(cost)
    }
}
