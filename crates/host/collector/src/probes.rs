//! A run in progress: its loop and its records.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use tiptoe_event::Cost;
use tiptoe_price::{PriceCache, UnitCosts, own, scope_visit, unit_costs};
use tiptoe_session::{CountPart, Event, Interval, KernelNote, Note, ProcessNote, Refusal, Session};

use crate::drive::{TICK, Timers, session_target, unix_ns};
use crate::module::Cache;
use crate::request::{Budget, By, Error, Observer, Request, RequestTarget};
use crate::tracee::{Plan, RecordedCall, TRAP_WINDOW, Tracee};

mod event_sums;
mod gate_notes;
mod libraries;
mod lock_section;
mod outside_findings;
mod pace;
mod prices;
mod progress;
mod scope_section;

use event_sums::Events;
use outside_findings::OutsideFindings;
use pace::{Pace, TURN};
use prices::Prices;
use progress::RunPrices;

/// The pause between two checks whether a target called exec, or runs as another user.
const EXEC_TICK: Duration = Duration::from_millis(20);
/// The pause between two checks whether another tracer probes the same functions.
const FOREIGN_TICK: Duration = Duration::from_millis(500);

/// A BPF program's call and return may cost as much as the program itself.
const CALLED: f64 = 2.0;

/// A run in progress.
pub struct Run<'a> {
    request: &'a Request,
    plan: &'a Plan<'a>,
    cache: Cache,
    pub tracees: Vec<Tracee>,
    pub session: Session,
    start: Instant,
    baseline: Events,
    /// When counting will begin; `None` once it has begun.
    begin: Option<Instant>,
    /// When the last interval ended, since the start.
    last_interval_end: Duration,
    /// How often threads entered and left scopes.
    scope_visits: u64,
    outside_findings: OutsideFindings,
    pace: Pace,
}

/// Sets the duration and the targets' CPU time of the counts that were just read.
fn stop_clocks(session: &mut Session, start: Instant, tracees: &[Tracee]) {
    session.duration_ns = start.elapsed().as_nanos() as u64;
    session.cpu_ns = cpu_ns(tracees);
}

/// Reports a note now, and in the session.
fn add(session: &mut Session, note: impl Into<Note>, observer: &mut dyn Observer) {
    let note = note.into();
    observer.note(&note);
    session.notes.push(note);
}

/// Returns the CPU time of all targets in the reported time.
fn cpu_ns(tracees: &[Tracee]) -> u64 {
    let times = tracees.iter().map(Tracee::reported_cpu_time);
    times.sum::<Duration>().as_nanos() as u64
}

impl<'a> Run<'a> {
    pub fn new(
        (request, plan): (&'a Request, &'a Plan<'a>),
        (tracees, cache): (Vec<Tracee>, Cache),
        started_at: SystemTime,
    ) -> Run<'a> {
        let command = tracees.first().map(|tracee| tracee.target.command.clone());
        let mut session = Session::new(command.unwrap_or_default());
        session.started_unix_ns = unix_ns(started_at);
        for tracee in &tracees {
            session.targets.push(session_target(&tracee.target));
            session.notes.extend(tracee.notes.iter().cloned());
            let refusal = |(event, why): &(String, String)| Refusal::new(event, why);
            session.refusals.extend(tracee.refused.iter().map(refusal));
        }
        let start = tracees
            .first()
            .map_or_else(Instant::now, |tracee| tracee.since);
        let baseline = Events::default();
        Run {
            request,
            plan,
            cache,
            tracees,
            session,
            start,
            baseline,
            begin: None,
            last_interval_end: Duration::ZERO,
            scope_visits: 0,
            outside_findings: OutsideFindings::default(),
            pace: Pace::new(start),
        }
    }

    /// Runs until the target ends, the duration is over, or the user stops it.
    pub fn watch(&mut self, observer: &mut dyn Observer) -> Result<(), Error> {
        let delay = match self.request.target {
            RequestTarget::Command(_) => self.request.options.delay,
            RequestTarget::Pids(_) => None,
        };
        self.begin = delay.map(|delay| self.start + delay);
        if self.tracees.len() > 1 && !self.plan.locks && !self.plan.scopes {
            // The targets were attached one after another, but are counted from the same moment on.
            self.begin = Some(Instant::now());
        }
        let first = self.begin.unwrap_or(self.start);
        let mut timers = Timers::new(self.request.options.interval, self.request.options.duration);
        let mut next_exec_look = self.start + EXEC_TICK;
        let mut next_foreign_look = self.start + FOREIGN_TICK;
        let mut next_trap_look = self.start;
        let mut last = Events::default();
        let mut prices = RunPrices::default();
        self.look_for_names();
        self.tracees.iter().for_each(Tracee::look_at_copied);
        let wants_calls = observer.wants_calls();
        self.tracees
            .iter()
            .for_each(|tracee| tracee.set_reports_calls(wants_calls));
        let tick = if self.request.record { TURN } else { TICK };
        if self.begin.is_none() {
            self.notify_ready();
        }
        loop {
            self.look_for_libraries(observer);
            let now = Instant::now();
            if self.begin.is_some_and(|begin| now >= begin) {
                self.begin()?;
            }
            let elapsed = now.saturating_duration_since(first);
            if timers.take_interval(elapsed).is_some() {
                last = self.report_interval(&last, observer)?;
            }
            if now >= next_foreign_look {
                next_foreign_look = now + FOREIGN_TICK;
                self.look_for_foreign();
                self.look_for_names();
                self.look_for_children();
            }
            if now >= next_trap_look {
                next_trap_look = now + TRAP_WINDOW;
                self.look_at_traps(observer);
            }
            if now >= next_exec_look {
                next_exec_look = now + EXEC_TICK;
                // Must be read often, because an ended process's time is the last one read.
                self.tracees.iter().for_each(|tracee| {
                    tracee.target.fetch_cpu_time();
                    tracee.look_at_copied();
                });
                let empty = self.tracees.iter().all(Tracee::only_agent_left);
                let ended = self.all_ended(observer);
                self.look_for_ends(observer);
                if empty || ended {
                    return Ok(());
                }
            }
            self.tracees.iter().for_each(Tracee::refill_budgets);
            self.throttle(observer);
            if self.request.record && self.pace.reads_records(now) {
                self.serve_records(now, observer);
            }
            self.report_progress(&mut prices, observer)?;
            let stopped = self.request.options.stop.load(Ordering::Relaxed);
            let ended = self.tracees.iter().all(|one| one.target.has_ended());
            if stopped || ended || timers.is_over(elapsed) {
                return Ok(());
            }
            let looks = self.tracees.iter().filter_map(Tracee::next_throttle).min();
            let wake = [self.begin, looks].into_iter().flatten().min();
            let pause = wake.map_or(tick, |at| at.saturating_duration_since(now).min(tick));
            let pause = pause.min(timers.pause(elapsed));
            self.sleep(pause.max(Duration::from_micros(100)));
        }
    }

    /// Reads the recorded calls, and reports them.
    fn serve_records(&mut self, now: Instant, observer: &mut dyn Observer) {
        let before = own::thread();
        for tracee in &self.tracees {
            tracee.read_records(self.start);
        }
        self.report_calls(observer);
        self.pace
            .has_read(now, own::thread().saturating_sub(before));
    }

    /// Reports the calls that were read, if counting has begun.
    pub fn report_calls(&mut self, observer: &mut dyn Observer) {
        let tracees = self.tracees.iter();
        let mut calls: Vec<RecordedCall> = tracees.flat_map(Tracee::take_calls).collect();
        if calls.is_empty() || self.begin.is_some() {
            return;
        }
        calls.sort_by_key(RecordedCall::at_ns);
        let calls: Vec<_> = calls.iter().map(RecordedCall::call).collect();
        observer.calls(&calls);
    }

    /// Discards the counts until now, and starts all clocks.
    fn begin(&mut self) -> Result<(), Error> {
        self.begin = None;
        self.start = Instant::now();
        let start = self.start;
        let tracees = self.tracees.iter_mut();
        tracees.for_each(|tracee| tracee.start_clock(start));
        self.baseline = self.events()?;
        let tracees = self.tracees.iter();
        tracees.for_each(|tracee| {
            drop(tracee.take_calls());
            tracee.leave_out_forks();
        });
        self.notify_ready();
        Ok(())
    }

    fn notify_ready(&self) {
        let counted = self.tracees.iter().map(|tracee| tracee.target.counted());
        self.request
            .options
            .ready
            .notify(&counted.collect::<Vec<_>>());
    }

    /// Notes the traces that ended before their programs; returns whether all did.
    pub fn all_ended(&mut self, observer: &mut dyn Observer) -> bool {
        let mut all = true;
        for tracee in &self.tracees {
            let Some(cause) = tracee.ended_by() else {
                all = false;
                continue;
            };
            let process = session_target(&tracee.target);
            let is_it = |note: &Note| match note {
                Note::Process(ProcessNote::TraceEnded {
                    process: who,
                    cause: why,
                    ..
                }) => (who, *why) == (&process, cause),
                _ => false,
            };
            if !self.session.notes.iter().any(is_it) {
                let after_ns = tracee.since.elapsed().as_nanos() as u64;
                let note = ProcessNote::TraceEnded {
                    process,
                    cause,
                    after_ns,
                };
                add(&mut self.session, note, observer);
            }
        }
        all
    }

    /// Notes attached processes that have ended.
    pub fn look_for_ends(&mut self, observer: &mut dyn Observer) {
        let attached = self.tracees.iter().filter(|one| !one.target.is_command());
        for tracee in attached {
            if let Some(note) = tracee.end() {
                add(&mut self.session, note, observer);
            }
        }
    }

    /// Switches off traps that are hit too often, unless the budget is off.
    fn look_at_traps(&mut self, observer: &mut dyn Observer) {
        if self.request.budget == Budget::Off {
            return;
        }
        let notes = self.tracees.iter().map(Tracee::switch_off_hot_traps);
        for note in notes.flatten() {
            add(&mut self.session, note, observer);
        }
    }

    /// Closes the kernel's probes that exceed the budget, and opens those that may count again.
    fn throttle(&mut self, observer: &mut dyn Observer) {
        for tracee in &mut self.tracees {
            if let Some(note) = tracee.throttle(Instant::now()) {
                add(&mut self.session, note, observer);
            }
        }
    }

    fn events(&self) -> Result<Events, Error> {
        for tracee in &self.tracees {
            tracee.target.fetch_cpu_time();
        }
        self.events_by(self.request.by)
    }

    /// Returns the counts since the baseline, grouped by `by`.
    fn events_by(&self, by: Option<By>) -> Result<Events, Error> {
        let mut events = Events::default();
        for tracee in &self.tracees {
            events.add(tracee, tracee.read(by, self.start)?);
        }
        events.since(&self.baseline);
        Ok(events)
    }

    /// Returns the events' prices for targets that have used this much CPU time.
    fn prices(&self, costs: UnitCosts, cpu_ns: u64) -> Prices {
        Prices {
            costs,
            filtered: self.request.filter.is_some(),
            under: self.request.under.is_some(),
            cpu_ns,
        }
    }

    fn report_interval(
        &mut self,
        last: &Events,
        observer: &mut dyn Observer,
    ) -> Result<Events, Error> {
        if self.request.scopes.is_some() {
            self.report_scopes(observer)?;
            return Ok(Events::default());
        }
        let now = self.events()?;
        let at = self.start.elapsed();
        let took = at.saturating_sub(std::mem::replace(&mut self.last_interval_end, at));
        let before = last.readings();
        let count = |name: &String| {
            let earlier = before.get(name).copied().unwrap_or_default();
            let total = now.by_name.get(name)?;
            let reading = total.all.reading.since(earlier);
            let mut part = CountPart::new(name, reading.count);
            part.at_least = reading.at_least;
            Some(part)
        };
        let counts = now.order.iter().filter_map(count);
        let interval = Interval {
            at_ns: at.as_nanos() as u64,
            duration_ns: took.as_nanos() as u64,
            counts: counts.filter(|part| part.count > 0).collect(),
        };
        observer.interval(&interval);
        self.session.intervals.push(interval);
        Ok(now)
    }

    /// Ends the measurement: reads the last counts.
    pub fn stop(&mut self) -> Result<Events, Error> {
        if self.begin.is_some() {
            self.begin()?;
            self.session.notes.push(ProcessNote::EndedInDelay.into());
        }
        self.tracees.iter().for_each(Tracee::bury_dead_threads);
        let events = self.events()?;
        stop_clocks(&mut self.session, self.start, &self.tracees);
        self.look_for_names();
        self.look_for_children();
        self.add_locks()?;
        let without = self.tracees.iter();
        let without = without.filter_map(|tracee| tracee.without_scopes(self.plan));
        self.session.notes.extend(without);
        for (target, tracee) in self.session.targets.iter_mut().zip(&self.tracees) {
            target.address_space = tracee.address_space();
        }
        self.add_scopes()?;
        self.session.slower_ns = self.request.slower_ns;
        self.session.under.clone_from(&self.request.under);
        let held = self.tracees.iter().any(Tracee::has_budget);
        self.session.budget = self.request.budget.share().filter(|_| held);
        Ok(events)
    }

    /// Computes the cost of the last counts and adds it to the session.
    pub fn finish(&mut self, events: &Events) {
        self.note_outside_findings();
        if !self.price_locks() {
            self.price_events(events);
        }
        self.price_forks();
    }

    /// Adds the cost of the targets' forks.
    fn price_forks(&mut self) {
        let forks = self.tracees.iter().map(|tracee| (tracee, tracee.forks()));
        let forked: Vec<_> = forks.filter(|(_, forks)| *forks > 0).collect();
        let count: u64 = forked.iter().map(|(_, forks)| forks).sum();
        // Targets are mostly copies of one program, so one price serves for all: that of the target
        // with the most forks.
        let most = forked.iter().max_by_key(|(_, forks)| *forks);
        if let Some(each) = most.and_then(|(tracee, _)| tracee.fork_cost()) {
            let cpu_ns = self.session.cpu_ns;
            self.session.cost.add_forks(count, each, cpu_ns);
        }
    }

    fn price_events(&mut self, events: &Events) {
        let kept = PriceCache::of_this_user();
        let costs = unit_costs(self.prices_wanted(), &kept);
        let prices = self.prices(costs, self.session.cpu_ns);
        let mut sum = Cost::default();
        let mut hits = 0;
        for total in events.gates.values() {
            sum = sum.plus(prices.of(total));
            hits += total.all.reading.hits();
        }
        self.note_gates(events);
        for name in &events.order {
            let Some(total) = events.by_name.get(name) else {
                continue;
            };
            let cost = prices.of(total);
            sum = sum.plus(cost);
            hits += total.all.reading.hits();
            let mut event = Event::new(name, total.via, total.all.reading);
            if let Some(times) = &total.all.times {
                event = event.with_histogram(times);
            }
            event.cost_ns = cost.ns;
            event.names = total.names.clone();
            event.notes = total.notes();
            let parts = total.parts.iter();
            event.by = parts.map(|(key, part)| part.part(key)).collect();
            event.by.sort_by_key(|part| std::cmp::Reverse(part.count));
            self.session.events.push(event);
        }
        let part = prices.payable_part(sum);
        for event in &mut self.session.events {
            event.cost_ns *= part;
        }
        if self.scope_visits > 0 {
            sum = sum.plus(scope_visit(&kept).times(self.scope_visits));
            hits += self.scope_visits;
        }
        let charged = self.tracees.iter().filter_map(Tracee::charging_times);
        for (own, all) in charged {
            let ns = own.run_ns as f64;
            sum = sum.plus(Cost::between(ns, ns, CALLED * ns));
            hits += own.runs;
            let others = all.map_or(0, |all| all.run_ns.saturating_sub(own.run_ns));
            if others > own.run_ns {
                let note = KernelNote::OthersCost { ns: others };
                self.session.notes.push(note.into());
            }
        }
        self.session.cost =
            tiptoe_session::Cost::estimated(hits, prices.sum(sum), self.session.cpu_ns);
        self.session.cost.calibrated = kept.calibrated();
        self.session.cost.rejected_unit_ns = prices.of_rejected(events).map(|cost| cost.ns);
    }
}
