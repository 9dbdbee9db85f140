//! The cost of a session for its target.

use serde::{Deserialize, Serialize};

/// How a cost was determined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Computed from the number of hits and the measured cost of one hit.
    #[default]
    Estimated,
    /// Measured by the kernel, or by comparing the target's speed with tracing on and off.
    Measured,
}

impl From<tiptoe_event::Basis> for Basis {
    fn from(basis: tiptoe_event::Basis) -> Basis {
        match basis {
            tiptoe_event::Basis::Estimated => Basis::Estimated,
            tiptoe_event::Basis::Measured => Basis::Measured,
        }
    }
}

/// When the prices (costs of one hit) were measured. If several variants apply, the last is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Calibration {
    /// All prices were measured in earlier runs since boot.
    Cached,
    /// At least one price was measured in this run.
    Now,
    /// At least one price may be wrong, because the speed of the CPUs changed during its measurement in this run.
    Unsteady,
}

/// The cost of tracing, as a share of the target's CPU time (1.0 is all of it), with an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Cost {
    /// The best estimate of the share.
    pub fraction: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
    /// How the cost was determined.
    pub basis: Basis,
    /// The number of hits.
    pub hits: u64,
    /// The mean cost of a hit.
    pub unit_ns: f64,
    /// The lower end of the interval of `unit_ns`.
    pub unit_low_ns: f64,
    /// The upper end of the interval of `unit_ns`.
    pub unit_high_ns: f64,
    /// The cost of a hit that a filter or `--under` rejected; absent without these options. All other numbers exclude
    /// rejected hits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected_unit_ns: Option<f64>,
    /// When the prices were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calibrated: Option<Calibration>,
    /// The forks of the target. A fork takes longer with tracing, because it also copies tiptoe's memory. This cost
    /// is in `fraction`, but not in `unit_ns`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forks: Option<Forks>,
    /// The kernel's measurement of tiptoe's BPF programs, if they caused the cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub programs: Option<Programs>,
}

/// What tracing added to the target's forks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Forks {
    /// How often the target forked.
    pub count: u64,
    /// The time that tracing added to each fork. The child's exit takes about as much longer, in CPU time of the
    /// child.
    pub unit_ns: f64,
}

/// The time of tiptoe's BPF programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Programs {
    /// How often the programs ran for the target.
    pub runs: u64,
    /// The time of the runs for the target, without the kernel's work before and after each run.
    pub run_ns: u64,
    /// How often the programs ran in any process, because the tracepoints run them in all. Absent if the kernel does
    /// not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_runs: Option<u64>,
    /// The time of `all_runs`, over all CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_run_ns: Option<u64>,
}

impl Programs {
    fn plus(self, other: Programs) -> Programs {
        let sum = |one: Option<u64>, other: Option<u64>| one.zip(other).map(|(a, b)| a + b);
        Programs {
            runs: self.runs + other.runs,
            run_ns: self.run_ns + other.run_ns,
            all_runs: sum(self.all_runs, other.all_runs),
            all_run_ns: sum(self.all_run_ns, other.all_run_ns),
        }
    }
}

impl Cost {
    /// Returns the estimate for `hits` that cost `total`, in a target that used `cpu_ns` of CPU time. The estimate is
    /// limited to `cpu_ns`, because prices measured on a busy machine may be far too high.
    pub fn estimated(hits: u64, total: tiptoe_event::Cost, cpu_ns: u64) -> Cost {
        let total = match cpu_ns {
            0 => total,
            cpu_ns => total.at_most(cpu_ns as f64),
        };
        let share = total.share_of(cpu_ns);
        let each = |ns: f64| if hits == 0 { 0.0 } else { ns / hits as f64 };
        Cost {
            fraction: share.fraction,
            low: share.low,
            high: share.high,
            hits,
            unit_ns: each(total.ns),
            unit_low_ns: each(total.low_ns),
            unit_high_ns: each(total.high_ns),
            ..Cost::default()
        }
    }

    /// Returns the sum of two costs of one target. The cost of a hit is the mean over all hits.
    #[must_use]
    pub fn plus(self, other: Cost) -> Cost {
        let hits = self.hits.saturating_add(other.hits);
        let parts = [self.hits, other.hits].map(|part| part as f64 / (hits as f64).max(1.0));
        let mean = |of: fn(&Cost) -> f64| of(&self) * parts[0] + of(&other) * parts[1];
        let sum = |of: fn(&Cost) -> f64| (of(&self) + of(&other)).min(1.0);
        Cost {
            fraction: sum(|cost| cost.fraction),
            low: sum(|cost| cost.low),
            high: sum(|cost| cost.high),
            basis: match (self.basis, other.basis) {
                (Basis::Measured, Basis::Measured) => Basis::Measured,
                _ => Basis::Estimated,
            },
            hits,
            unit_ns: mean(|cost| cost.unit_ns),
            unit_low_ns: mean(|cost| cost.unit_low_ns),
            unit_high_ns: mean(|cost| cost.unit_high_ns),
            rejected_unit_ns: self.rejected_unit_ns.or(other.rejected_unit_ns),
            calibrated: self.calibrated.max(other.calibrated),
            forks: self.forks.or(other.forks),
            programs: match (self.programs, other.programs) {
                (Some(one), Some(another)) => Some(one.plus(another)),
                (one, another) => one.or(another),
            },
        }
    }

    /// Adds `count` forks that cost `each`.
    pub fn add_forks(&mut self, count: u64, each: tiptoe_event::Cost, cpu_ns: u64) {
        let share = each.times(count).share_of(cpu_ns);
        self.fraction = (self.fraction + share.fraction).min(1.0);
        self.low = (self.low + share.low).min(1.0);
        self.high = (self.high + share.high).min(1.0);
        let unit_ns = each.ns;
        self.forks = Some(Forks { count, unit_ns });
    }

    /// Returns the cost of BPF programs. The interval's upper end is the programs' time for all processes.
    pub fn measured(programs: Programs, cpu_ns: u64) -> Cost {
        let ns = programs.run_ns as f64;
        let all = programs.all_run_ns.map_or(ns, |all| all as f64);
        let cost = tiptoe_event::Cost::between(ns, ns, all.max(ns));
        Cost {
            basis: Basis::Measured,
            programs: Some(programs),
            ..Cost::estimated(programs.runs, cost, cpu_ns)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_of_two_instruments_add_up() {
        let unit = |ns| tiptoe_event::Cost::between(ns / 2.0, ns, ns * 2.0);
        let probes = Cost::estimated(300, unit(10.0).times(300), 1_000_000);
        let programs = Programs {
            runs: 100,
            run_ns: 9_000,
            ..Programs::default()
        };
        let sum = probes.clone().plus(Cost::measured(programs, 1_000_000));
        assert_eq!((sum.hits, sum.basis), (400, Basis::Estimated));
        assert!((sum.fraction - 0.012).abs() < 1e-9, "{sum:?}");
        assert!((sum.unit_ns - 30.0).abs() < 1e-9, "{sum:?}");
        assert_eq!(sum.programs, Some(programs));
        let whole = Cost {
            fraction: 1.0,
            ..probes.clone()
        };
        assert!(whole.plus(probes).fraction <= 1.0);
    }

    #[test]
    fn a_cost_was_more_than_all_time() {
        let unit = tiptoe_event::Cost::between(180.0, 24_400.0, 97_240.0);
        let cost = Cost::estimated(1_000, unit.times(1_000), 1_000_000);
        assert_eq!((cost.fraction, cost.high), (1.0, 1.0), "{cost:?}");
        assert!((cost.low - 0.18).abs() < 1e-9, "{cost:?}");
        assert!((cost.unit_ns - 1_000.0).abs() < 1e-9, "{cost:?}");
    }
}
