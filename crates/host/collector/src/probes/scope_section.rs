//! The session's scopes, which are parts of a run that a program names.

use std::collections::BTreeMap;

use tiptoe_price::clock;
use tiptoe_session::{Scope, ScopeCounts, Scopes};
use tiptoe_sys::raw::monotonic_ns;

use super::Probes;
use crate::drive::{Span, Targets, Turn};
use crate::error::Error;
use crate::request::Request;
use crate::scopes::OUTSIDE;
use crate::tracee::{scope_names, scope_times};

#[derive(Default)]
struct ScopeSum {
    entries: u64,
    wall_ns: u64,
    away_ns: u64,
    counts: Vec<u64>,
}

impl ScopeSum {
    fn since(&mut self, earlier: &ScopeSum) {
        let sums = [
            (&mut self.entries, earlier.entries),
            (&mut self.wall_ns, earlier.wall_ns),
            (&mut self.away_ns, earlier.away_ns),
        ];
        let counts = self.counts.iter_mut().zip(earlier.counts.iter().copied());
        for (sum, before) in sums.into_iter().chain(counts) {
            *sum = sum.saturating_sub(before);
        }
    }

    fn is_empty(&self) -> bool {
        let mut all = [self.entries, self.wall_ns, self.away_ns].into_iter();
        all.all(|number| number == 0) && self.counts.iter().all(|count| *count == 0)
    }
}

#[derive(Default)]
struct NamedScopes {
    names: BTreeMap<String, ScopeSum>,
    events: Vec<String>,
    is_charged: bool,
    visits: u64,
}

impl NamedScopes {
    fn since(&mut self, earlier: &NamedScopes) {
        self.visits = self.visits.saturating_sub(earlier.visits);
        for (name, before) in &earlier.names {
            if let Some(sum) = self.names.get_mut(name) {
                sum.since(before);
                if sum.is_empty() {
                    self.names.remove(name);
                }
            }
        }
    }
}

#[derive(Default)]
pub(super) struct ScopeSection {
    pub(super) visits: u64,
    /// The sums at the start of counting, if the processes were attached before the start.
    first: NamedScopes,
    last: Option<Scopes>,
    /// The scopes at the end of the run, kept for the last interval's report.
    pub(super) end: Option<Scopes>,
}

impl Probes<'_> {
    pub(super) fn report_scopes(&mut self, span: Span, turn: &mut Turn<'_>) -> Result<(), Error> {
        let mut now = self.scopes.end.take();
        if now.is_none() {
            turn.at.fetch_cpu_times();
            let cpu_ns = turn.at.cpu_ns(span.end);
            now = self.scopes.read(self.request, turn.at, cpu_ns)?;
        }
        let Some(mut now) = now else { return Ok(()) };
        let last = self.scopes.last.take().unwrap_or_default();
        turn.observer.scopes(&ScopeCounts {
            at_ns: span.end.as_nanos() as u64,
            duration_ns: (span.end - span.start).as_nanos() as u64,
            events: now.events.clone(),
            rows: rows_since(&last.rows, &now.rows),
        });
        now.intervals = Some(last.intervals.unwrap_or(0) + 1);
        self.scopes.last = Some(now);
        Ok(())
    }
}

impl ScopeSection {
    pub(super) fn take(&mut self) -> Option<Scopes> {
        self.end.take().or(self.last.take())
    }

    pub(super) fn begin(&mut self, request: &Request, at: &Targets) -> Result<(), Error> {
        self.first = sums(request, at)?;
        Ok(())
    }

    /// If a thread is still in a scope, its time in the scope counts.
    pub(super) fn read(
        &mut self,
        request: &Request,
        at: &Targets,
        cpu_ns: u64,
    ) -> Result<Option<Scopes>, Error> {
        let mut now = sums(request, at)?;
        now.since(&self.first);
        self.visits = now.visits;
        Ok(request.reports_scopes().then(|| Scopes {
            events: now.events,
            rows: rows(now.names, now.is_charged, cpu_ns),
            intervals: None,
        }))
    }
}

/// Returns the sums since each process was attached.
fn sums(request: &Request, at: &Targets) -> Result<NamedScopes, Error> {
    let ns_per_tick = u128::from(clock::ns_per_tick());
    // Both clocks must be read at one moment, because a sleeping thread's time away (in ns) is subtracted from its time
    // in the scope (in ticks).
    let (now, now_ns) = (clock::ticks(), monotonic_ns());
    let mut all = NamedScopes {
        is_charged: true,
        ..NamedScopes::default()
    };
    let names = &mut all.names;
    for tracee in &at.traced {
        let sums = scope_times(&tracee.process, now)?;
        all.visits += sums.visits();
        if !request.reports_scopes() {
            continue;
        }
        let tree = scope_names(&tracee.process)?;
        for (number, scope) in sums.iter() {
            let sum = names.entry(tree.name(number.into())).or_default();
            sum.entries = sum.entries.saturating_add(scope.entries);
            let ns = (u128::from(scope.ticks) * ns_per_tick) >> 32;
            sum.wall_ns = sum.wall_ns.saturating_add(ns as u64);
        }
        let Some((charged_events, charged)) = tracee.scopes.charged(now_ns)? else {
            all.is_charged = false;
            continue;
        };
        for (number, charged) in (0..).zip(&charged) {
            let nothing = charged.away_ns == 0 && charged.events.iter().all(|n| *n == 0);
            if nothing && !names.contains_key(&tree.name(number)) {
                continue;
            }
            let sum = names.entry(tree.name(number)).or_default();
            sum.away_ns = sum.away_ns.saturating_add(charged.away_ns);
            sum.counts.resize(charged_events.len(), 0);
            let counts = sum.counts.iter_mut().zip(charged.events);
            counts.for_each(|(sum, count)| *sum = sum.saturating_add(count));
        }
        all.events = charged_events;
    }
    Ok(all)
}

fn rows_since(before: &[Scope], now: &[Scope]) -> Vec<Scope> {
    let none = Scope::default();
    let since = |row: &Scope| {
        let mut earlier = before.iter();
        let earlier = earlier.find(|one| one.name == row.name).unwrap_or(&none);
        let ns = |now: Option<u64>, before: Option<u64>| {
            now.map(|now| now.saturating_sub(before.unwrap_or(0)))
        };
        let before = earlier.counts.iter().copied().chain(std::iter::repeat(0));
        let counts = row.counts.iter().zip(before);
        Scope {
            name: row.name.clone(),
            entries: row.entries.saturating_sub(earlier.entries),
            wall_ns: ns(row.wall_ns, earlier.wall_ns),
            cpu_ns: ns(row.cpu_ns, earlier.cpu_ns),
            counts: counts
                .map(|(now, before)| now.saturating_sub(before))
                .collect(),
        }
    };
    let is_used = |row: &Scope| {
        let times = [row.wall_ns, row.cpu_ns].into_iter().flatten();
        let mut all = times.chain([row.entries]).chain(row.counts.iter().copied());
        all.any(|number| number > 0)
    };
    let mut rows: Vec<Scope> = now.iter().map(since).filter(is_used).collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.cpu_ns, row.wall_ns)));
    rows
}

/// Returns a row for each scope, and a row with the CPU time outside all scopes.
fn rows(names: BTreeMap<String, ScopeSum>, is_charged: bool, cpu_ns: u64) -> Vec<Scope> {
    let mut left = cpu_ns;
    let mut rows: Vec<Scope> = Vec::new();
    let mut outside = Scope {
        name: OUTSIDE.to_owned(),
        ..Scope::default()
    };
    for (name, sum) in names {
        if name == OUTSIDE {
            outside.counts = sum.counts;
            continue;
        }
        let cpu = sum.wall_ns.saturating_sub(sum.away_ns);
        left = left.saturating_sub(cpu);
        rows.push(Scope {
            name,
            entries: sum.entries,
            wall_ns: Some(sum.wall_ns),
            cpu_ns: is_charged.then_some(cpu),
            counts: sum.counts,
        });
    }
    if rows.is_empty() {
        return rows;
    }
    outside.cpu_ns = is_charged.then_some(left);
    rows.push(outside);
    rows.sort_by_key(|row| std::cmp::Reverse((row.cpu_ns, row.wall_ns)));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_what_was_added() {
        let row = |name: &str, entries, ns: u64, counts: &[u64]| Scope {
            name: name.to_owned(),
            entries,
            wall_ns: (name != OUTSIDE).then_some(2 * ns),
            cpu_ns: Some(ns),
            counts: counts.to_vec(),
        };
        let before = [row("a", 2, 50, &[3]), row("b", 1, 10, &[0])];
        let now = [
            row("a", 3, 60, &[5]),
            row(OUTSIDE, 0, 40, &[]),
            row("b", 1, 10, &[0]),
            row("c", 4, 30, &[1]),
        ];
        let expected = [
            row(OUTSIDE, 0, 40, &[]),
            row("c", 4, 30, &[1]),
            row("a", 1, 10, &[2]),
        ];
        assert_eq!(rows_since(&before, &now), expected);
        assert_eq!(rows_since(&now, &now), []);
        // The times of a thread that has just ended may go back between two reads.
        assert_eq!(
            rows_since(&[row("a", 9, 90, &[9])], &[row("a", 3, 60, &[5])]),
            []
        );
    }

    #[test]
    fn what_was_charged_before_the_start_is_subtracted() {
        let sum = |[entries, wall_ns, away_ns, count]: [u64; 4]| ScopeSum {
            entries,
            wall_ns,
            away_ns,
            counts: vec![count],
        };
        let sums = |sums: &[(&str, [u64; 4])], visits| NamedScopes {
            names: sums
                .iter()
                .map(|(name, of)| ((*name).to_owned(), sum(*of)))
                .collect(),
            visits,
            ..NamedScopes::default()
        };
        let first = sums(&[("a", [1, 50, 20, 3]), ("b", [1, 9, 9, 0])], 4);
        let mut now = sums(
            &[
                ("a", [3, 90, 30, 3]),
                ("b", [1, 9, 9, 0]),
                ("c", [1, 2, 0, 5]),
            ],
            9,
        );
        now.since(&first);
        let found = now.names.iter();
        let found: Vec<_> = found
            .map(|(name, sum)| {
                (
                    name.as_str(),
                    sum.entries,
                    sum.wall_ns,
                    sum.away_ns,
                    sum.counts[0],
                )
            })
            .collect();
        assert_eq!(found, [("a", 2, 40, 10, 0), ("c", 1, 2, 0, 5)]);
        assert_eq!(now.visits, 5);
    }

    #[test]
    fn cpu_time_outside_all_scopes_is_the_rest() {
        let sum = |wall_ns, away_ns| ScopeSum {
            entries: 1,
            wall_ns,
            away_ns,
            counts: vec![2],
        };
        let names = [
            ("a", sum(100, 40)),
            ("b", sum(10, 50)),
            (OUTSIDE, sum(70, 0)),
        ];
        let names = || {
            names
                .iter()
                .map(|(name, s)| ((*name).to_owned(), sum(s.wall_ns, s.away_ns)))
        };
        let found = rows(names().collect(), true, 200);
        let found: Vec<_> = found
            .iter()
            .map(|row| (row.name.as_str(), row.cpu_ns))
            .collect();
        assert_eq!(
            found,
            [(OUTSIDE, Some(140)), ("a", Some(60)), ("b", Some(0))]
        );
        let found = rows(names().collect(), false, 200);
        assert!(found.iter().all(|row| row.cpu_ns.is_none()));
        assert_eq!(found[0].name, "a");
        assert!(rows(BTreeMap::new(), true, 200).is_empty());
    }
}
