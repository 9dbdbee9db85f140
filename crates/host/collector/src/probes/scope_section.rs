//! The session's scopes.

use std::collections::BTreeMap;

use tiptoe_price::clock;
use tiptoe_session::{Scope, ScopeCounts, Scopes};
use tiptoe_sys::raw::monotonic_ns;

use super::Probes;
use crate::drive::{Span, Targets, Turn};
use crate::request::{Error, Request};
use crate::scopes::OUTSIDE;

/// The sums of a scope's name.
#[derive(Default)]
struct Sum {
    entries: u64,
    wall_ns: u64,
    away_ns: u64,
    counts: Vec<u64>,
}

/// The scopes at earlier moments.
#[derive(Default)]
pub(super) struct ScopeSection {
    /// How often threads entered and left scopes.
    visits: u64,
    /// When the last interval ended.
    last: Option<Scopes>,
    /// At the end, until the last interval is reported.
    end: Option<Scopes>,
}

impl Probes<'_> {
    /// Reports the counts since the last interval.
    pub(super) fn report_scopes(&mut self, span: Span, turn: Turn<'_>) -> Result<(), Error> {
        let now = match self.scopes.end.take() {
            Some(end) => Some(end),
            None => {
                turn.at.fetch_cpu_times();
                let cpu_ns = turn.at.cpu_ns(span.end);
                self.scopes.read(self.request, turn.at, cpu_ns)?
            }
        };
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
    pub(super) fn visits(&self) -> u64 {
        self.visits
    }

    /// Reads the last counts.
    pub(super) fn end(
        &mut self,
        request: &Request,
        at: &Targets,
        cpu_ns: u64,
    ) -> Result<(), Error> {
        self.end = self.read(request, at, cpu_ns)?;
        Ok(())
    }

    /// Returns the scopes at the end, if they were requested.
    pub(super) fn take(&mut self) -> Option<Scopes> {
        self.end.take().or(self.last.take())
    }

    /// Returns the scopes, if they are requested. Scopes that threads are still in count until now.
    fn read(
        &mut self,
        request: &Request,
        at: &Targets,
        cpu_ns: u64,
    ) -> Result<Option<Scopes>, Error> {
        let ns_per_tick = u128::from(clock::ns_per_tick());
        // Both clocks must be read at one moment, because a sleeping thread's time away is
        // subtracted from its time in the scope.
        let (now, now_ns) = (clock::ticks(), monotonic_ns());
        self.visits = 0;
        let mut names: BTreeMap<String, Sum> = BTreeMap::new();
        let (mut events, mut is_charged) = (Vec::new(), true);
        for tracee in &at.traced {
            let sums = tracee.scope_sums(now)?;
            self.visits += sums.visits();
            if request.scopes.is_none() {
                continue;
            }
            let tree = tracee.scope_names()?;
            for (number, scope) in sums.iter() {
                let sum = names.entry(tree.name(number.into())).or_default();
                sum.entries = sum.entries.saturating_add(scope.entries);
                let ns = (u128::from(scope.ticks) * ns_per_tick) >> 32;
                sum.wall_ns = sum.wall_ns.saturating_add(ns as u64);
            }
            let Some((charged_events, charged)) = tracee.charged(now_ns)? else {
                is_charged = false;
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
            events = charged_events;
        }
        Ok(request.scopes.as_ref().map(|_| Scopes {
            events,
            rows: rows(names, is_charged, cpu_ns),
            intervals: None,
        }))
    }
}

/// Returns what rows have counted since an earlier time. Leaves out those without counts.
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

/// Returns the rows. CPU time in no scope has a row of its own.
fn rows(names: BTreeMap<String, Sum>, is_charged: bool, cpu_ns: u64) -> Vec<Scope> {
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
    fn cpu_time_outside_all_scopes_is_the_rest() {
        let sum = |wall_ns, away_ns| Sum {
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
