//! What tracing cost.

/// How a cost is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Basis {
    /// From counts and calibrated unit costs.
    #[default]
    Estimated,
    /// From the target's own speed with tracing on and off.
    Measured,
}

impl Basis {
    /// Returns `estimated` or `measured`.
    pub const fn word(self) -> &'static str {
        match self {
            Basis::Estimated => "estimated",
            Basis::Measured => "measured",
        }
    }
}

impl core::fmt::Display for Basis {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.word())
    }
}

/// Nanoseconds added to the target, with an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// The best estimate.
    pub ns: f64,
    /// The interval's lower end.
    pub low_ns: f64,
    /// The interval's upper end.
    pub high_ns: f64,
}

impl Cost {
    /// Returns a cost from an estimate and two bounds in either order.
    pub fn between(one: f64, ns: f64, other: f64) -> Cost {
        Cost {
            ns,
            low_ns: one.min(other).min(ns),
            high_ns: one.max(other).max(ns),
        }
    }

    /// Returns the cost of `hits` hits with this cost each. The interval grows in proportion, because each hit has the
    /// same error.
    pub fn times(self, hits: u64) -> Cost {
        let hits = hits as f64;
        Cost {
            ns: self.ns * hits,
            low_ns: self.low_ns * hits,
            high_ns: self.high_ns * hits,
        }
    }

    /// Returns the sum.
    pub fn plus(self, other: Cost) -> Cost {
        Cost {
            ns: self.ns + other.ns,
            low_ns: self.low_ns + other.low_ns,
            high_ns: self.high_ns + other.high_ns,
        }
    }

    /// Returns the cost, with each figure limited to `ns`.
    #[must_use]
    pub fn at_most(self, ns: f64) -> Cost {
        Cost {
            ns: self.ns.min(ns),
            low_ns: self.low_ns.min(ns),
            high_ns: self.high_ns.min(ns),
        }
    }

    /// Returns the cost's share of `cpu_ns`; 0 if `cpu_ns` is 0.
    pub fn share_of(self, cpu_ns: u64) -> Share {
        if cpu_ns == 0 {
            return Share::default();
        }
        let cpu = cpu_ns as f64;
        Share {
            fraction: self.ns / cpu,
            low: self.low_ns / cpu,
            high: self.high_ns / cpu,
        }
    }
}

/// A share of CPU time, up to 1.0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// The best estimate.
    pub fraction: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_times_unit_as_a_share() {
        let unit = Cost::between(2.0, 1.5, 1.0);
        let share = unit.times(1_000).share_of(1_000_000);
        assert!((share.fraction - 0.0015).abs() < 1e-12);
        assert!((share.low - 0.001).abs() < 1e-12);
        assert!((share.high - 0.002).abs() < 1e-12);
        assert_eq!(unit.share_of(0), Share::default());
        assert_eq!(unit.at_most(1.2), Cost::between(1.0, 1.2, 1.2));
    }
}
