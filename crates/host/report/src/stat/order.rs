//! Which cgroups are printed: those with the most of the first event, the largest first, and the sum of the others.

use std::collections::BTreeSet;

use tiptoe_session::{Count, CountState};

use crate::{Options, grid};

/// The order of cgroups that are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CgroupOrder {
    /// The largest first.
    Largest,
    /// As in the session, so that each interval has the same.
    Stable,
}

/// The counts of a table.
#[derive(Debug)]
pub(super) struct Shown {
    /// Those of the whole target, of the largest cgroups, and the sums of the other cgroups.
    pub(super) counts: Vec<Count>,
    /// How many cgroups the sums are of.
    pub(super) others: usize,
}

/// The noun of [`grid::sum_name`].
pub(super) const CGROUP: &str = "cgroup";

/// Returns the counts that are printed. All cgroups must have the events of the whole target, which is first.
pub(super) fn shown(counts: &[Count], order: CgroupOrder, options: &Options) -> Shown {
    let is_whole = |count: &&Count| count.cgroup.is_none();
    let events = counts.iter().take_while(is_whole).count();
    let (whole, cgroups) = counts.split_at(events);
    let cgroups: Vec<&[Count]> = cgroups.chunks(events.max(1)).collect();
    let first = whole.iter().find(|count| is_counted(count));
    let size = |at: &usize| {
        let same = cgroups[*at].iter().filter(|count| {
            let is_first = first.is_some_and(|first| first.event == count.event);
            is_first && is_counted(count)
        });
        same.map(|count| count.value).sum::<f64>()
    };
    let mut ranked: Vec<usize> = (0..cgroups.len()).collect();
    ranked.sort_by(|one, other| size(other).total_cmp(&size(one)));
    let rest = ranked.split_off(options.shown(ranked.len()));
    if order == CgroupOrder::Stable {
        ranked.sort_unstable();
    }
    let mut counts = whole.to_vec();
    counts.extend(ranked.iter().flat_map(|at| cgroups[*at]).cloned());
    let others: Vec<&[Count]> = rest.iter().map(|at| cgroups[*at]).collect();
    counts.extend(sums(&others));
    Shown {
        counts,
        others: others.len(),
    }
}

fn is_counted(count: &Count) -> bool {
    count.state == CountState::Counted
}

/// Returns the sum of each event over these cgroups. One inside another adds nothing, because the outer cgroup's counts
/// include it.
fn sums(cgroups: &[&[Count]]) -> Vec<Count> {
    let path = |cgroup: &&[Count]| cgroup.first()?.cgroup.clone();
    let paths: BTreeSet<String> = cgroups.iter().filter_map(path).collect();
    let is_outer = |cgroup: &&&[Count]| {
        path(cgroup).is_none_or(|path| !ancestors(&path).any(|outer| paths.contains(outer)))
    };
    let mut outer = cgroups.iter().filter(is_outer);
    let Some(first) = outer.next() else {
        return Vec::new();
    };
    let name = grid::sum_name(cgroups.len(), CGROUP);
    let sum = |count: &Count| Count {
        cgroup: Some(name.clone()),
        is_removed: false,
        spread: None,
        ..count.clone()
    };
    let mut sums: Vec<Count> = first.iter().map(sum).collect();
    for cgroup in outer {
        for (sum, count) in sums.iter_mut().zip(*cgroup) {
            add(sum, count);
        }
    }
    sums
}

fn add(sum: &mut Count, count: &Count) {
    if is_counted(count) {
        sum.state = CountState::Counted;
        sum.value += count.value;
    }
    sum.time_enabled_ns += count.time_enabled_ns;
    sum.time_running_ns += count.time_running_ns;
}

/// Returns the paths of the cgroups that contain this one.
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

    /// Returns the counts of a system and its cgroups: each has `cs`, then `faults`.
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

    #[track_caller]
    fn check(
        cgroups: &[(&str, f64)],
        top: usize,
        order: CgroupOrder,
        expected: &[(&str, f64, f64)],
    ) {
        let options = Options {
            top: Some(top),
            ..Options::default()
        };
        let shown = shown(&counts(cgroups), order, &options);
        assert_eq!(
            shown.others,
            cgroups
                .len()
                .saturating_sub(top.max(cgroups.len() * usize::from(top == 0)))
        );
        let rows: Vec<(&str, f64, f64)> = shown.counts[2..]
            .chunks(2)
            .map(|pair| {
                (
                    pair[0].cgroup.as_deref().expect("a cgroup"),
                    pair[0].value,
                    pair[1].value,
                )
            })
            .collect();
        assert_eq!(rows, expected);
    }

    /// Cgroups had the order of their names, and of hundreds all were printed.
    #[test]
    fn the_largest_cgroups_are_first_and_the_others_are_summed() {
        let all = &[("a", 3.0), ("b", 50.0), ("c", 7.0), ("d", 3.0)];
        let largest = [
            ("b", 50.0, 2.0),
            ("c", 7.0, 2.0),
            ("a", 3.0, 2.0),
            ("d", 3.0, 2.0),
        ];
        check(all, 0, CgroupOrder::Largest, &largest);
        check(all, 9, CgroupOrder::Largest, &largest);
        let two = [
            ("b", 50.0, 2.0),
            ("c", 7.0, 2.0),
            ("2 more cgroups", 6.0, 4.0),
        ];
        check(all, 2, CgroupOrder::Largest, &two);
        let stable = [
            ("a", 3.0, 2.0),
            ("b", 50.0, 2.0),
            ("c", 7.0, 2.0),
            ("1 more cgroup", 3.0, 2.0),
        ];
        check(all, 3, CgroupOrder::Stable, &stable);
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
        check(nested, 1, CgroupOrder::Largest, &sum);
        let root = &[("x", 50.0), ("/", 7.0), ("a/b", 3.0)];
        let sum = [("x", 50.0, 2.0), ("2 more cgroups", 7.0, 2.0)];
        check(root, 1, CgroupOrder::Largest, &sum);
    }

    #[test]
    fn what_was_not_counted_has_no_place_and_adds_nothing() {
        let mut all = counts(&[("a", 5.0), ("b", 9.0), ("c", 7.0)]);
        for at in [0, 2, 4, 6] {
            all[at].state = CountState::NotSupported;
        }
        all[5].state = CountState::NotCounted;
        all[7].value = 4.0;
        let options = Options {
            top: Some(1),
            ..Options::default()
        };
        let shown = shown(&all, CgroupOrder::Largest, &options);
        let [c, sum] = [&shown.counts[2], &shown.counts[4]];
        assert_eq!(
            (c.cgroup.as_deref(), sum.state),
            (Some("c"), CountState::NotSupported)
        );
        assert_eq!(
            (shown.counts[5].state, shown.counts[5].value),
            (CountState::Counted, 2.0)
        );
        assert_eq!(counts(&[]).len(), 2);
    }
}
