//! Reports what the processes of a run did in their scopes.

use std::collections::BTreeMap;

use tiptoe_price::clock;
use tiptoe_session::{Scope, Scopes};
use tiptoe_sys::raw::monotonic_ns;

use super::Run;
use crate::request::Error;
use crate::scopes::OUTSIDE;

/// The sums of one name.
#[derive(Default)]
struct Sum {
    entries: u64,
    wall_ns: u64,
    away_ns: u64,
    counts: Vec<u64>,
}

impl Run<'_> {
    /// Adds the scopes to the session, if they are requested; scopes that threads are still in
    /// count until now.
    pub(super) fn add_scopes(&mut self) -> Result<(), Error> {
        if !self.plan.scopes {
            return Ok(());
        }
        let ns_per_tick = u128::from(clock::ns_per_tick());
        // Both clocks must be read at one moment: a sleeping thread is away for as long as it is in
        // its scope.
        let (now, now_ns) = (clock::ticks(), monotonic_ns());
        let mut names: BTreeMap<String, Sum> = BTreeMap::new();
        let (mut events, mut is_charged) = (Vec::new(), true);
        for tracee in &self.tracees {
            let sums = tracee.scope_sums(now)?;
            self.scope_visits += sums.visits();
            if self.request.scopes.is_none() {
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
        if self.request.scopes.is_some() {
            self.session.scopes = Some(Scopes {
                events,
                rows: rows(names, is_charged, self.session.cpu_ns),
            });
        }
        Ok(())
    }
}

/// Returns the rows; the CPU time that is left belongs to no scope.
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
