//! Sums counts over CPUs or threads, scales them if they counted for part of the time, and averages over runs.

use std::collections::BTreeMap;
use std::time::Duration;

use tiptoe_event::Counter;
use tiptoe_kernel::CounterSet;
use tiptoe_kernel::cgroups::Times;
use tiptoe_kernel::counters::Support;
use tiptoe_price::own::CpuUse;
use tiptoe_session::{Count, CountState, Stat, StatNote};
use tiptoe_sys::host::perf::Counts;

use crate::error::Error;

pub(super) trait CountSource {
    fn enable(&mut self) -> Result<(), Error>;

    fn disable(&mut self) -> Result<(), Error>;

    fn sums(&mut self, per_cpu: bool) -> Result<Sums, Error>;

    /// Returns whether no thread was missed while the events were opened.
    fn is_complete(&self) -> bool {
        true
    }

    /// Frees what is no longer needed. The run's loop calls this after each wait.
    fn tidy(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Returns those of the requested events that the kernel exchanges at context switches.
    fn at_switches<'c>(&self, groups: &[Vec<Counter<'c>>]) -> Vec<Vec<Counter<'c>>> {
        groups.to_vec()
    }

    /// Returns notes and the BPF programs' times; `None` if no BPF program counts.
    fn finish(&self) -> Result<Option<(Vec<StatNote>, Times)>, Error> {
        Ok(None)
    }
}

impl CountSource for CounterSet {
    fn enable(&mut self) -> Result<(), Error> {
        Ok(CounterSet::enable(self)?)
    }

    fn disable(&mut self) -> Result<(), Error> {
        Ok(CounterSet::disable(self)?)
    }

    fn sums(&mut self, per_cpu: bool) -> Result<Sums, Error> {
        Sums::of(self, per_cpu)
    }

    fn is_complete(&self) -> bool {
        CounterSet::is_complete(self)
    }
}

#[derive(Debug, Default)]
pub(super) struct Sums(pub(super) Vec<EventSum>);

/// Identifies a row in several readings. A row's index may change, because cgroups are created and removed between
/// readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CountKey {
    pub(super) cgroup: Option<u64>,
    pub(super) event: usize,
    pub(super) cpu: Option<u32>,
}

#[derive(Clone, Debug)]
pub(super) struct EventSum {
    pub(super) key: CountKey,
    pub(super) event: String,
    pub(super) cgroup: Option<String>,
    pub(super) is_removed: bool,
    pub(super) unit: String,
    pub(super) scale: f64,
    pub(super) is_supported: bool,
    pub(super) is_tracepoint: bool,
    pub(super) places: Vec<(usize, Option<Counts>)>,
}

impl Sums {
    pub(super) fn of(set: &CounterSet, per_cpu: bool) -> Result<Sums, Error> {
        let cpus = set.cpus().filter(|_| per_cpu);
        let mut rows = Vec::new();
        for (event, ((resolved, support), places)) in set.events().zip(set.read()?).enumerate() {
            let narrowed = match support {
                Support::OnlyUser => ":u",
                _ => "",
            };
            let row = EventSum {
                key: CountKey {
                    event,
                    ..CountKey::default()
                },
                event: format!("{}{narrowed}", resolved.name),
                cgroup: None,
                is_removed: false,
                unit: resolved.unit.clone(),
                scale: resolved.scale,
                is_supported: support != Support::None,
                is_tracepoint: resolved.is_tracepoint(),
                places,
            };
            let Some(cpus) = cpus else {
                rows.push(row);
                continue;
            };
            let cpus = cpus.iter().enumerate();
            rows.extend(cpus.map(|(at, cpu)| row.of_cpu(at, *cpu)));
        }
        Ok(Sums(rows))
    }

    /// Each cgroup must have its own `number`.
    pub(super) fn add(&mut self, of_cgroup: Sums, number: u64, name: &str) {
        self.0.extend(of_cgroup.0.into_iter().map(|row| EventSum {
            key: CountKey {
                cgroup: Some(number),
                ..row.key
            },
            cgroup: Some(name.to_owned()),
            ..row
        }));
    }

    pub(super) fn counts(&self, before: Option<&Sums>) -> Vec<Count> {
        let before = before.iter().flat_map(|before| &before.0);
        let before: BTreeMap<CountKey, &EventSum> = before.map(|row| (row.key, row)).collect();
        let rows = self.0.iter();
        rows.map(|row| row.count(before.get(&row.key).copied()))
            .collect()
    }

    pub(super) fn raw(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(EventSum::raw)
    }

    pub(super) fn tracepoint_hits(&self) -> u64 {
        let is_whole = |row: &&EventSum| row.is_tracepoint && row.cgroup.is_none();
        let tracepoints = self.0.iter().filter(is_whole);
        tracepoints.map(EventSum::raw).sum()
    }
}

impl EventSum {
    pub(super) fn of_cpu(&self, place: usize, cpu: u32) -> EventSum {
        let places = self.places.iter().filter(|(at, _)| *at == place);
        EventSum {
            key: CountKey {
                cpu: Some(cpu),
                ..self.key
            },
            event: self.event.clone(),
            cgroup: self.cgroup.clone(),
            unit: self.unit.clone(),
            places: places.copied().collect(),
            ..*self
        }
    }

    fn raw(&self) -> u64 {
        let counts = self.places.iter().filter_map(|(_, counts)| *counts);
        counts.map(|counts| counts.count).sum()
    }

    fn count(&self, before: Option<&EventSum>) -> Count {
        let mut count = Count {
            event: self.event.clone(),
            cgroup: self.cgroup.clone(),
            is_removed: self.is_removed,
            cpu: self.key.cpu,
            unit: self.unit.clone(),
            state: CountState::NotSupported,
            ..Count::default()
        };
        if !self.is_supported {
            return count;
        }
        for (at, (_, counts)) in self.places.iter().enumerate() {
            let Some(counts) = counts else { continue };
            let before = before.and_then(|before| before.places.get(at)?.1);
            let before = before.unwrap_or_default();
            let enabled = counts
                .time_enabled_ns
                .saturating_sub(before.time_enabled_ns);
            let running = counts
                .time_running_ns
                .saturating_sub(before.time_running_ns);
            count.time_enabled_ns += enabled;
            count.time_running_ns += running;
            if running > 0 {
                let more = counts.count.saturating_sub(before.count) as f64;
                let wanted = enabled.max(running) as f64 / running as f64;
                count.value += more * wanted * self.scale;
            }
        }
        count.state = match count.time_running_ns {
            0 => CountState::NotCounted,
            _ => CountState::Counted,
        };
        count
    }
}

#[derive(Debug, Default)]
pub(super) struct Runs {
    counts: Vec<Vec<Count>>,
    elapsed_ns: Vec<f64>,
    user_ns: Vec<f64>,
    sys_ns: Vec<f64>,
    tracepoint_hits: u64,
}

impl Runs {
    pub(super) fn add(&mut self, sums: &Sums, elapsed: Duration, used: Option<CpuUse>) {
        self.counts.push(sums.counts(None));
        self.tracepoint_hits += sums.tracepoint_hits();
        self.elapsed_ns.push(elapsed.as_nanos() as f64);
        if let Some(used) = used {
            self.user_ns.push(used.user_ns as f64);
            self.sys_ns.push(used.sys_ns as f64);
        }
    }

    pub(super) fn finish(self, stat: &mut Stat) {
        let all = self.counts.len();
        stat.runs = all as u32;
        stat.elapsed_ns = mean(&self.elapsed_ns);
        stat.elapsed_spread = spread(&self.elapsed_ns);
        let whole = self.user_ns.len() == all;
        stat.user_ns = whole.then(|| mean(&self.user_ns));
        stat.sys_ns = whole.then(|| mean(&self.sys_ns));
        stat.tracepoint_hits = self.tracepoint_hits;
        for of_row in rows(&self.counts) {
            let counted: Vec<&Count> = of_row
                .iter()
                .copied()
                .filter(|count| count.state == CountState::Counted)
                .collect();
            let Some(one) = counted.first() else {
                stat.counts.extend(of_row.first().copied().cloned());
                continue;
            };
            let values: Vec<f64> = counted.iter().map(|count| count.value).collect();
            let each = |times: fn(&Count) -> u64| {
                counted.iter().map(|count| times(count)).sum::<u64>() / values.len() as u64
            };
            stat.counts.push(Count {
                value: mean(&values),
                spread: spread(&values),
                time_enabled_ns: each(|count| count.time_enabled_ns),
                time_running_ns: each(|count| count.time_running_ns),
                ..(*one).clone()
            });
        }
    }
}

/// Groups the counts of all runs by cgroup, event and CPU, in the order of first appearance. If a run has several
/// counts in a group, the n-th is in the group's n-th row.
fn rows(runs: &[Vec<Count>]) -> Vec<Vec<&Count>> {
    let mut places = BTreeMap::new();
    let mut rows: Vec<Vec<&Count>> = Vec::new();
    for run in runs {
        let mut seen = BTreeMap::new();
        for count in run {
            let name = (&count.cgroup, &count.event, count.cpu);
            let times = seen.entry(name).or_insert(0);
            let place = *places.entry((name, *times)).or_insert(rows.len());
            *times += 1;
            match rows.get_mut(place) {
                Some(row) => row.push(count),
                None => rows.push(vec![count]),
            }
        }
    }
    rows
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Returns the standard error of the mean, relative to the mean; `None` for a single value.
fn spread(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let n = values.len() as f64;
    let deviation = (squares / (n - 1.0) / n).sqrt();
    Some(if mean == 0.0 {
        0.0
    } else {
        deviation / mean.abs()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event_sum(places: &[Option<(u64, u64, u64)>]) -> EventSum {
        let counts = |(count, time_enabled_ns, time_running_ns)| Counts {
            count,
            time_enabled_ns,
            time_running_ns,
        };
        let places = places.iter().map(|place| place.map(counts));
        EventSum {
            key: CountKey::default(),
            event: "x".into(),
            cgroup: None,
            is_removed: false,
            unit: String::new(),
            scale: 1.0,
            is_supported: true,
            is_tracepoint: false,
            places: places.enumerate().collect(),
        }
    }

    #[test]
    fn tracepoint_hits_of_all_runs_were_those_of_the_last() {
        let mut runs = Runs::default();
        for hits in [10, 30] {
            let sum = EventSum {
                is_tracepoint: true,
                ..event_sum(&[Some((hits, 1, 1))])
            };
            runs.add(&Sums(vec![sum]), Duration::ZERO, None);
        }
        let mut stat = Stat::default();
        runs.finish(&mut stat);
        assert_eq!((stat.runs, stat.tracepoint_hits), (2, 40));
    }

    #[test]
    fn counts_for_a_part_of_the_time_are_scaled() {
        for (places, state, value, enabled, running) in [
            (
                &[Some((10, 100, 100))][..],
                CountState::Counted,
                10.0,
                100,
                100,
            ),
            (
                &[Some((10, 100, 25)), Some((5, 50, 50))],
                CountState::Counted,
                45.0,
                150,
                75,
            ),
            (&[Some((0, 100, 0))], CountState::NotCounted, 0.0, 100, 0),
            (&[Some((0, 0, 0))], CountState::NotCounted, 0.0, 0, 0),
            (&[None], CountState::NotCounted, 0.0, 0, 0),
            (&[None, Some((3, 10, 10))], CountState::Counted, 3.0, 10, 10),
        ] {
            let count = event_sum(places).count(None);
            assert_eq!((count.state, count.value), (state, value), "{places:?}");
            assert_eq!(
                (count.time_enabled_ns, count.time_running_ns),
                (enabled, running)
            );
        }
        let missing = EventSum {
            is_supported: false,
            ..event_sum(&[])
        };
        assert_eq!(missing.count(None).state, CountState::NotSupported);
    }

    #[test]
    fn runs_are_joined_by_cgroup_event_and_cpu() {
        let count = |cgroup: Option<&str>, value: f64| Count {
            event: "cs".into(),
            cgroup: cgroup.map(str::to_owned),
            value,
            ..Count::default()
        };
        let runs = [
            vec![
                count(None, 1.0),
                count(Some("b"), 2.0),
                count(Some("b"), 3.0),
            ],
            vec![
                count(None, 4.0),
                count(Some("a"), 5.0),
                count(Some("b"), 6.0),
            ],
        ];
        let values = |row: Vec<&Count>| row.iter().map(|count| count.value).collect::<Vec<_>>();
        let rows: Vec<Vec<f64>> = rows(&runs).into_iter().map(values).collect();
        assert_eq!(rows, [vec![1.0, 4.0], vec![2.0, 6.0], vec![3.0], vec![5.0]]);
    }

    #[test]
    fn an_interval_is_a_difference() {
        let (before, now) = (
            event_sum(&[Some((10, 100, 50))]),
            event_sum(&[Some((16, 200, 100))]),
        );
        let count = now.count(Some(&before));
        assert_eq!((count.value, count.time_enabled_ns), (12.0, 100));
        assert_eq!(now.count(Some(&now)).state, CountState::NotCounted);
    }

    #[test]
    fn the_spread_is_of_the_mean() {
        assert_eq!(spread(&[3.0]), None);
        assert_eq!(spread(&[0.0, 0.0]), Some(0.0));
        assert!((spread(&[1.0, 3.0]).unwrap() - 0.5).abs() < 1e-12);
    }
}
