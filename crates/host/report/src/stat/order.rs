//! Chooses the printed cgroups: those with the highest counts of the first event. The other cgroups are summed.

use std::collections::{BTreeMap, BTreeSet};

use tiptoe_session::{Count, CountState};

use crate::{Options, grid};

#[derive(Debug)]
pub(super) struct ShownCounts {
    /// The counts of the whole target and of the largest cgroups, and the sums over the other cgroups.
    pub(super) counts: Vec<Count>,
    /// How many cgroups the sums contain.
    pub(super) others: usize,
}

pub(super) const CGROUP: &str = "cgroup";

pub(super) fn shown(counts: &[Count], options: &Options) -> ShownCounts {
    let all = CountsByCgroup::of(counts);
    let (largest, rest) = largest(&all.sizes(), options);
    all.shown(&largest, &rest)
}

/// Returns an interval's printed counts. The printed cgroups have the highest counts since the start, so that
/// intervals print the same cgroups, in the session's order. `totals` has the sum so far of each cgroup of the last
/// interval, by path.
pub(super) fn shown_in_interval(
    counts: &[Count],
    totals: &mut BTreeMap<String, f64>,
    options: &Options,
) -> ShownCounts {
    let all = CountsByCgroup::of(counts);
    let before = std::mem::take(totals);
    for (cgroup, size) in all.cgroups.iter().zip(all.sizes()) {
        let path = path(cgroup);
        let total = totals.entry(path.to_owned());
        *total.or_insert_with(|| before.get(path).copied().unwrap_or(0.0)) += size;
    }
    let sizes = all.cgroups.iter().map(|cgroup| totals[path(cgroup)]);
    let (mut largest, rest) = largest(&sizes.collect::<Vec<_>>(), options);
    largest.sort_unstable();
    all.shown(&largest, &rest)
}

/// Returns the indexes of the largest sizes, largest first, and the indexes of the others. For a file or pipe without
/// `--top`, the first list has all indexes, because programs that read perf's format expect all cgroups.
fn largest(sizes: &[f64], options: &Options) -> (Vec<usize>, Vec<usize>) {
    let mut ranked: Vec<usize> = (0..sizes.len()).collect();
    ranked.sort_by(|one, other| sizes[*other].total_cmp(&sizes[*one]));
    let shown = match (options.top, options.width) {
        (None, None) => ranked.len(),
        _ => options.shown(ranked.len()),
    };
    let rest = ranked.split_off(shown);
    (ranked, rest)
}

struct CountsByCgroup<'a> {
    whole: &'a [Count],
    cgroups: Vec<&'a [Count]>,
}

impl CountsByCgroup<'_> {
    /// Groups counts by cgroup. The whole target's counts must be first, and all cgroups must have the same events.
    fn of(counts: &[Count]) -> CountsByCgroup<'_> {
        let is_whole = |count: &&Count| count.cgroup.is_none();
        let events = counts.iter().take_while(is_whole).count();
        let (whole, cgroups) = counts.split_at(events);
        CountsByCgroup {
            whole,
            cgroups: cgroups.chunks(events.max(1)).collect(),
        }
    }

    /// Returns each cgroup's count of the first counted event.
    fn sizes(&self) -> Vec<f64> {
        let first = self.whole.iter().find(|count| is_counted(count));
        let is_first = |count: &&Count| first.is_some_and(|first| first.event == count.event);
        let size = |cgroup: &&[Count]| {
            let same = cgroup.iter().filter(is_first);
            same.filter(|count| is_counted(count))
                .map(|count| count.value)
                .sum()
        };
        self.cgroups.iter().map(size).collect()
    }

    fn shown(&self, places: &[usize], rest: &[usize]) -> ShownCounts {
        let mut counts = self.whole.to_vec();
        counts.extend(places.iter().flat_map(|at| self.cgroups[*at]).cloned());
        counts.extend(self.sums(rest));
        ShownCounts {
            counts,
            others: rest.len(),
        }
    }

    /// Returns each event's sum over these cgroups. A cgroup inside another cgroup adds nothing, because the outer
    /// cgroup's row or sum includes it.
    fn sums(&self, places: &[usize]) -> Vec<Count> {
        let Some(&first) = places.first() else {
            return Vec::new();
        };
        let paths: BTreeSet<&str> = self.cgroups.iter().map(|cgroup| path(cgroup)).collect();
        let is_outer =
            |at: &&usize| !ancestors(path(self.cgroups[**at])).any(|outer| paths.contains(outer));
        let outer: Vec<usize> = places.iter().filter(is_outer).copied().collect();
        let name = grid::sum_name(places.len(), CGROUP);
        let none = |count: &Count| Count {
            cgroup: Some(name.clone()),
            is_removed: false,
            spread: None,
            value: 0.0,
            time_enabled_ns: 0,
            time_running_ns: 0,
            ..count.clone()
        };
        let first = outer.first().copied().unwrap_or(first);
        let mut sums: Vec<Count> = self.cgroups[first].iter().map(none).collect();
        for at in outer {
            for (sum, count) in sums.iter_mut().zip(self.cgroups[at]) {
                add(sum, count);
            }
        }
        sums
    }
}

fn is_counted(count: &Count) -> bool {
    count.state == CountState::Counted
}

fn path(cgroup: &[Count]) -> &str {
    let path = cgroup.first().and_then(|count| count.cgroup.as_deref());
    path.unwrap_or_default()
}

fn add(sum: &mut Count, count: &Count) {
    if is_counted(count) {
        sum.state = CountState::Counted;
        sum.value += count.value;
        sum.time_enabled_ns += count.time_enabled_ns;
        sum.time_running_ns += count.time_running_ns;
    }
}

fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    let root = (path != "/").then_some("/");
    root.into_iter()
        .chain(path.match_indices('/').map(|(at, _)| &path[..at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(cgroup: Option<&str>, event: &str, value: f64) -> Count {
        Count {
            event: event.into(),
            cgroup: cgroup.map(str::to_owned),
            value,
            time_enabled_ns: 10,
            time_running_ns: 10,
            ..Count::default()
        }
    }

    fn counts(cgroups: &[(&str, f64)]) -> Vec<Count> {
        let whole = [("cs", 100.0), ("faults", 9.0)];
        let whole = whole.map(|(event, value)| count(None, event, value));
        let of = |(name, value): &(&str, f64)| {
            [("cs", *value), ("faults", 2.0)].map(|(event, value)| count(Some(name), event, value))
        };
        whole
            .into_iter()
            .chain(cgroups.iter().flat_map(of))
            .collect()
    }

    fn top(top: usize) -> Options {
        Options {
            top: Some(top),
            ..Options::default()
        }
    }

    fn rows(shown: &ShownCounts) -> Vec<(&str, f64, f64)> {
        let pairs = shown.counts[2..].chunks(2);
        let rows = pairs.map(|pair| (path(pair), pair[0].value, pair[1].value));
        rows.collect()
    }

    #[track_caller]
    fn check(cgroups: &[(&str, f64)], limit: usize, expected: &[(&str, f64, f64)]) {
        let shown = shown(&counts(cgroups), &top(limit));
        assert_eq!(rows(&shown), expected);
        let others = match limit {
            0 => 0,
            limit => cgroups.len().saturating_sub(limit),
        };
        assert_eq!(shown.others, others);
    }

    #[test]
    fn the_largest_cgroups_are_first_and_the_others_are_summed() {
        let all = &[("a", 3.0), ("b", 50.0), ("c", 7.0), ("d", 3.0)];
        let largest = [
            ("b", 50.0, 2.0),
            ("c", 7.0, 2.0),
            ("a", 3.0, 2.0),
            ("d", 3.0, 2.0),
        ];
        check(all, 0, &largest);
        check(all, 9, &largest);
        let two = [
            ("b", 50.0, 2.0),
            ("c", 7.0, 2.0),
            ("2 more cgroups", 6.0, 4.0),
        ];
        check(all, 2, &two);
        check(&[], 2, &[]);
    }

    #[test]
    fn a_file_has_all_cgroups() {
        let names: Vec<String> = (0..30).map(|at| format!("c{at}")).collect();
        let cgroups: Vec<(&str, f64)> = names.iter().map(|name| (&**name, 1.0)).collect();
        let others = |options: &Options| shown(&counts(&cgroups), options).others;
        let terminal = Options {
            width: Some(80),
            ..Options::default()
        };
        assert_eq!(others(&Options::default()), 0);
        assert_eq!((others(&terminal), others(&top(3))), (10, 27));
    }

    #[test]
    fn an_interval_has_the_cgroups_of_the_last_one() {
        let mut totals = BTreeMap::new();
        let mut names = |cgroups: &[(&str, f64)]| {
            let shown = shown_in_interval(&counts(cgroups), &mut totals, &top(2));
            let names = rows(&shown).into_iter().map(|row| row.0.to_owned());
            names.collect::<Vec<_>>().join(" ")
        };
        // A session has cgroups in the order of the patterns, then later cgroups in the order of their creation.
        let first = [("z", 9.0), ("b", 1.0), ("a", 20.0)];
        assert_eq!(names(&first), "z a 1 more cgroup");
        let other = [("z", 1.0), ("b", 7.0), ("a", 0.0)];
        assert_eq!(names(&other), "z a 1 more cgroup");
        // b has 10 since the start. z was removed, and a new z has 2.
        assert_eq!(names(&[("b", 2.0), ("a", 0.0)]), "b a");
        let new = [("b", 0.0), ("a", 0.0), ("z", 2.0)];
        assert_eq!(names(&new), "b a 1 more cgroup");
    }

    #[test]
    fn a_cgroup_inside_another_is_in_the_sum_once() {
        let nested = &[
            ("x", 50.0),
            ("a", 7.0),
            ("a/b", 3.0),
            ("a/b/c", 1.0),
            ("ab", 1.0),
        ];
        let sum = [("x", 50.0, 2.0), ("4 more cgroups", 8.0, 4.0)];
        check(nested, 1, &sum);
        let root = &[("x", 50.0), ("/", 7.0), ("a/b", 3.0)];
        let sum = [("x", 50.0, 2.0), ("2 more cgroups", 7.0, 2.0)];
        check(root, 1, &sum);
    }

    #[test]
    fn a_cgroup_inside_a_printed_one_is_not_in_the_sum() {
        let nested = &[("a", 50.0), ("a/b", 40.0), ("c", 7.0)];
        check(nested, 1, &[("a", 50.0, 2.0), ("2 more cgroups", 7.0, 2.0)]);
        let all_inside = &[("a", 50.0), ("a/b", 40.0)];
        let sum = [("a", 50.0, 2.0), ("1 more cgroup", 0.0, 0.0)];
        check(all_inside, 1, &sum);
    }

    #[test]
    fn counts_of_events_that_were_not_counted_add_nothing() {
        let mut all = counts(&[("a", 5.0), ("b", 9.0), ("c", 7.0)]);
        for at in [0, 2, 4, 6] {
            all[at].state = CountState::NotSupported;
        }
        all[5].state = CountState::NotCounted;
        all[7].value = 4.0;
        let shown = shown(&all, &top(1));
        let [c, sum] = [&shown.counts[2], &shown.counts[4]];
        assert_eq!(
            (c.cgroup.as_deref(), sum.state),
            (Some("c"), CountState::NotSupported)
        );
        assert_eq!(
            (shown.counts[5].state, shown.counts[5].value),
            (CountState::Counted, 2.0)
        );
        // A cgroup without a count must add no time.
        assert_eq!(shown.counts[5].time_enabled_ns, 10);
    }
}
