//! Notes (sentences on limits of the results) that the report derives from a session's numbers.

use tiptoe_session::Severity::{Plain, Warning};
use tiptoe_session::{
    Dropped, Event, EventNote, FunctionNote, Locks, Note, Now, Placement, Process, ProcessNote,
    Reservations, Session, Waits, Watch,
};

use super::NoteLine;
use crate::columns::{joined, whole};
use crate::number::{counted, grouped, short_percent, time};
use crate::{Options, event_name, locks, printable};

pub(super) fn notes(session: &Session, options: &Options) -> Vec<NoteLine<'static>> {
    let mut notes = Vec::new();
    if options.all_notes {
        notes.extend(session.targets.iter().filter_map(lookups));
    }
    of_restrictions(session, &mut notes);
    notes.extend(never_hit(session));
    of_calls(session, &mut notes);
    if let Some(waits) = &session.waits {
        of_waits(waits, &mut notes);
    }
    if let Some(locks) = &session.locks {
        of_locks(locks, session.budget, &mut notes);
    }
    if let Some(watch) = &session.watch {
        of_watch(watch, &mut notes);
    }
    if let Some(now) = &session.now {
        of_moment(now, &mut notes);
    }
    notes
}

/// Returns a note on how the probes of a process's traps (breakpoint bytes) were looked up; `None` if no trap was
/// hit.
fn lookups(target: &Process) -> Option<NoteLine<'static>> {
    let space = target.address_space?;
    let ways = [
        (space.speculative, "without a lock"),
        (space.locked, "under the lock"),
        (
            space.missed,
            "by its address, because no probe was known there",
        ),
        (
            space.unsure,
            "by its address, because the mappings were changing",
        ),
    ];
    let ways = ways.into_iter().filter(|(count, _)| *count > 0);
    let ways: Vec<String> = ways
        .map(|(count, way)| format!("{} {way}", counted(count, "time")))
        .collect();
    let of = whole(&format!("{} (pid {})", target.comm, target.pid));
    let text = format!("the probe of a trap in {of} was found {}", ways.join(", "));
    (!ways.is_empty()).then(|| plain(text))
}

fn plain(text: String) -> NoteLine<'static> {
    NoteLine::new(Plain, text)
}

fn warning(text: String) -> NoteLine<'static> {
    NoteLine::new(Warning, text)
}

fn of_restrictions(session: &Session, notes: &mut Vec<NoteLine<'static>>) {
    if let Some(function) = &session.under {
        let function = printable(function);
        notes.push(plain(format!("only calls below {function} were counted")));
    }
    if let Some(ns) = session.slower_ns {
        let ns = time(ns as f64);
        notes.push(plain(format!(
            "only calls that took longer than {ns} are in the times and the histograms"
        )));
    }
}

/// If some events were hit and more than this number were not, a glob probably requested them. Then no note reports the
/// events without a hit.
const FEW_IDLE: usize = 3;

/// Returns the note on events without a hit, unless another note explains them.
fn never_hit(session: &Session) -> Option<NoteLine<'static>> {
    let is_idle = |event: &&Event| {
        let is_inside = event.ends.is_some_and(|ends| ends.inside > 0);
        event.count == 0 && event.lost == 0 && !event.at_least && !is_inside
    };
    let idle: Vec<&Event> = session.events.iter().filter(is_idle).collect();
    let is_glob = idle.len() > FEW_IDLE && idle.len() < session.events.len();
    let is_probe = session.stat.is_none()
        && session.scopes.is_none()
        && session.waits.is_none()
        && session.watch.is_none()
        && session.locks.is_none();
    if !is_probe || idle.is_empty() || is_glob || session.notes.iter().any(explains_no_hit) {
        return None;
    }
    let what = match &idle[..] {
        [event] => format!("{} was", joined(&event_name(&event.event))),
        some => format!("{} were", counted(some.len() as u64, "event")),
    };
    let is_inlined = |note: &Note| matches!(note, Note::Event(EventNote::Inlined { .. }));
    let mut notes = idle.iter().flat_map(|event| &event.notes);
    let inlined = notes.any(is_inlined).then(|| "inlined copies".to_owned());
    let children = match session.cost.forks.map_or(0, |forks| forks.count) {
        0 => None,
        1 => Some("the child that was started meanwhile".to_owned()),
        some => Some(format!(
            "the {} children that were started meanwhile",
            grouped(some)
        )),
    };
    let untraced: Vec<String> = inlined.into_iter().chain(children).collect();
    let untraced = match untraced[..] {
        [] => String::new(),
        _ => format!("; not traced: {}", untraced.join(", ")),
    };
    let text = format!("{what} never hit: no such call was made in this time{untraced}");
    Some(plain(text))
}

fn explains_no_hit(note: &Note) -> bool {
    matches!(
        note,
        Note::Process(
            ProcessNote::EndedInDelay
                | ProcessNote::TraceEnded { .. }
                | ProcessNote::BrokenOff { .. }
                | ProcessNote::FunctionsMissing { .. }
        ) | Note::Function(FunctionNote::NeverCalled { .. })
    )
}

fn of_calls(session: &Session, notes: &mut Vec<NoteLine<'static>>) {
    let budget = session.budget.map(short_percent);
    let spent = budget.map(|budget| format!("the budget of {budget}% was spent, or "));
    let spent = spent.unwrap_or_default();
    // The note lists reasons, because the session does not count these calls by reason.
    let why = "they were nested too deeply, or called from too many places or from generated code";
    let ways = [
        (
            Plain,
            calls(session, |event| Some(event.ends?.only_counted)),
            format!("not followed to their return: {spent}{why}"),
        ),
        (
            Plain,
            calls(session, |event| Some(event.ends?.left)),
            "left without a return: by longjmp, an exception, or the end of their thread"
                .to_owned(),
        ),
        (
            Plain,
            calls(session, |event| Some(event.ends?.inside)),
            "still running when the trace ended".to_owned(),
        ),
        (
            Warning,
            calls(session, |event| Some(event.records?.only_counted)),
            format!(
                "only counted, not recorded: {spent}there was no room for the records of their thread"
            ),
        ),
        (
            Warning,
            calls(session, |event| Some(event.records?.lost)),
            "not recorded: they came faster than tiptoe read them".to_owned(),
        ),
    ];
    for (severity, calls, what) in ways {
        notes.extend(calls.map(|calls| NoteLine::new(severity, format!("{calls} {what}"))));
    }
}

/// Returns `3 calls of EVENT were`; `None` without such calls.
fn calls(session: &Session, number: impl Fn(&Event) -> Option<u64>) -> Option<String> {
    let events = session.events.iter();
    let counts = events.filter_map(|event| Some((event, number(event)?)));
    let counts: Vec<(&Event, u64)> = counts.filter(|(_, count)| *count > 0).collect();
    let (most, most_count) = counts.iter().max_by_key(|(_, count)| count)?;
    let sum = counts
        .iter()
        .fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
    let event = joined(&event_name(&most.event));
    let whose = match sum == *most_count {
        true => format!("of {event}"),
        false => format!("(most of {event})"),
    };
    let verb = if sum == 1 { "was" } else { "were" };
    Some(format!("{} {whose} {verb}", counted(sum, "call")))
}

fn of_waits(waits: &Waits, notes: &mut Vec<NoteLine<'static>>) {
    notes.extend(unfinished(waits.unfinished));
    notes.extend(waits.drops.iter().map(not_counted));
}

fn not_counted(dropped: &Dropped) -> NoteLine<'static> {
    let events = counted(dropped.count, "event");
    let reason = printable(&dropped.reason);
    warning(format!("{events} not counted: {reason}"))
}

/// This note is no warning, because some waits are in progress whenever a trace ends.
fn unfinished(count: u64) -> Option<NoteLine<'static>> {
    let was = if count == 1 { "was" } else { "were" };
    (count > 0).then(|| {
        let waits = counted(count, "wait");
        plain(format!(
            "{waits} {was} not over when the trace ended, and {was} not counted"
        ))
    })
}

fn of_locks(locks: &Locks, budget: Option<f64>, notes: &mut Vec<NoteLine<'static>>) {
    notes.extend(thinned(locks, budget));
    notes.extend(unfinished(locks::without_row(locks)));
    let left = locks.rows.iter().map(|row| row.left);
    let left = left.fold(0, u64::saturating_add);
    if left > 0 {
        let waits = counted(left, "wait");
        notes.push(plain(format!(
            "{waits} never returned, because the thread was cancelled or jumped out: tiptoe checks twice a second, \
             and counts the time up to the last check that saw the wait (>=)"
        )));
    }
    if locks.others > 0 {
        let calls = counted(locks.others, "call");
        notes.push(warning(format!(
            "no row includes {calls} of threads that had no room for more locks"
        )));
    }
    notes.extend(locks.drops.iter().map(not_counted));
}

/// Returns the note that only a sample of the waits was timed, to keep the budget.
fn thinned(locks: &Locks, budget: Option<f64>) -> Option<NoteLine<'static>> {
    let rows = locks.rows.iter();
    let rows = rows.filter_map(|row| Some((row.slept, row.timed?)));
    let (slept, timed) = rows.reduce(|(slept, timed), (more, more_timed)| {
        (slept.saturating_add(more), timed.saturating_add(more_timed))
    })?;
    let budget = budget.map_or_else(String::new, |share| {
        format!(" of {}%", short_percent(share))
    });
    Some(plain(format!(
        "~: times and blame are estimates, because only {} of {} waits that slept were timed, a random sample to \
         keep the budget{budget}; numbers of waits are exact (`--budget off` times all)",
        grouped(timed),
        grouped(slept)
    )))
}

fn of_watch(watch: &Watch, notes: &mut Vec<NoteLine<'static>>) {
    let mut warn = |text: String| notes.push(warning(text));
    if let Some(allowance) = watch.allowance.filter(|allowance| allowance.used_up > 0) {
        warn(format!(
            "the watch reached its limit ({} hits in {}) in {} of {} windows, and rested until the end of each: \
             totals are lower bounds (shares are right; `--budget` sets the limit)",
            grouped(allowance.hits),
            time(allowance.window_ns as f64),
            grouped(allowance.used_up),
            grouped(allowance.windows),
        ));
    }
    if watch.rows.iter().any(|row| row.racy > 0) {
        warn(
            "racy: the value was read from memory after the store, so another thread may have stored it".to_owned(),
        );
    }
    let unknown: u64 = watch.rows.iter().map(|row| row.old_unknown).sum();
    if unknown > 0 {
        warn(format!(
            "?: the value before {} is not known, because earlier stores were missed (the watch rested, was \
             closed or watched another variable); these hits do not count as changes",
            counted(unknown, "hit")
        ));
    }
    if !watch.sees_kernel {
        warn(
            "writes by system calls were not seen: only the kernel's breakpoints see them (run as root, without \
             `--via agent`)"
                .to_owned(),
        );
    }
    if watch.foreign > 0 {
        let hits = counted(watch.foreign, "hit");
        warn(format!(
            "{hits} of other processes at the same addresses were not counted, but slowed those processes like \
             counted hits"
        ));
    }
    for dropped in &watch.drops {
        let hits = counted(dropped.count, "hit");
        warn(format!("{hits}: {}", printable(&dropped.reason)));
    }
    notes.extend(placement(&watch.form));
    notes.extend(reservations(watch));
}

fn placement(form: &Placement) -> Option<NoteLine<'static>> {
    let attached = form.attached?;
    let threads = counted(attached.threads.into(), "thread");
    let took = time(attached.took_ns as f64);
    let why = form.why.as_ref().map(|why| format!(": {}", printable(why)));
    let why = why.unwrap_or_default();
    let without = match attached.without {
        0 => String::new(),
        without => format!(
            "; {} ended before a breakpoint could be set",
            counted(without.into(), "thread")
        ),
    };
    let whose = match &*form.by {
        "agent" => "the agent's breakpoints in",
        _ => "breakpoints of",
    };
    Some(plain(format!(
        "watched by {whose} {threads} and the threads that they started, set in {took}{why}{without}"
    )))
}

fn reservations(watch: &Watch) -> impl Iterator<Item = NoteLine<'static>> {
    let sides = watch.reservations.iter().flatten();
    let line = |side: &Reservations| {
        let whose = match &*side.side {
            "cpu" => "whole CPUs",
            _ => "threads",
        };
        let waited = match side.waited {
            0 => "without a wait".to_owned(),
            waited => format!(
                "{} after a wait, {} in all",
                counted(waited, "time"),
                time(side.waited_ns as f64)
            ),
        };
        let without = match side.unreserved {
            0 => String::new(),
            registers => format!(", {} held without one", counted(registers, "register")),
        };
        plain(format!(
            "debug registers of {whose}: {}{without}; the lock was taken {}, {waited}",
            counted(side.reservations, "reservation"),
            counted(side.holds, "time"),
        ))
    };
    sides.map(line)
}

fn of_moment(now: &Now, notes: &mut Vec<NoteLine<'static>>) {
    if now.waits.iter().any(|wait| wait.asleep_ns.is_some()) {
        let since = "waits are timed from when the thread last ran: a signal, SIGSTOP or an attach restarts the time";
        notes.push(plain(since.to_owned()));
    }
}
