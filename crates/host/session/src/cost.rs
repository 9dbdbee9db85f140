//! What a session cost its target.

use serde::{Deserialize, Serialize};

/// How a cost is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// From counts and calibrated unit costs.
    #[default]
    Estimated,
    /// From the target's own speed with tracing on and off, or from the kernel's own measurement.
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

/// When the price of a hit was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Calibration {
    /// All or some of it in this run.
    Now,
    /// In earlier runs, since the machine started.
    Cached,
}

/// The cost of tracing, as a share of the target's CPU time (1.0 is all of it)
/// with an interval. Each event holds its own part of it, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cost {
    /// The best estimate.
    pub fraction: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// How it is known.
    pub basis: Basis,
    /// How many hits it stands for.
    pub hits: u64,
    /// What one hit cost, the mean over all of them.
    pub unit_ns: f64,
    /// The lower end of that.
    pub unit_low_ns: f64,
    /// The upper end of that.
    pub unit_high_ns: f64,
    /// What a hit cost that a filter, or `--under`, rejected, where there was one: nobody counts
    /// them, so they are in none of the numbers above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected_unit_ns: Option<f64>,
    /// When the prices were measured of which there is a cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calibrated: Option<Calibration>,
    /// What the kernel measured of our BPF programs, where it is they that cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub programs: Option<Programs>,
}

/// What our BPF programs took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Programs {
    /// How often they ran for the target.
    pub runs: u64,
    /// How long that took. The way into a program and out of it is not in it.
    pub run_ns: u64,
    /// How often they ran at all: a tracepoint is everybody's. None where the kernel did not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_runs: Option<u64>,
    /// How long that took, on all CPUs together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_run_ns: Option<u64>,
}

impl Cost {
    /// The estimate for `hits` that together cost `total`, of a target that used
    /// `cpu_ns` of CPU time.
    pub fn estimated(hits: u64, total: tiptoe_event::Cost, cpu_ns: u64) -> Cost {
        let share = total.share_of(cpu_ns);
        let each = |ns: f64| if hits == 0 { 0.0 } else { ns / hits as f64 };
        Cost {
            fraction: share.fraction,
            low: share.low,
            high: share.high,
            basis: Basis::Estimated,
            hits,
            unit_ns: each(total.ns),
            unit_low_ns: each(total.low_ns),
            unit_high_ns: each(total.high_ns),
            rejected_unit_ns: None,
            calibrated: None,
            programs: None,
        }
    }

    /// What BPF programs took, of a target that used `cpu_ns` of CPU time: at most all that they took.
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
