//! How long timed calls took, from entry to return.

/// The times of one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Latency {
    /// The sum of the times between entry and return, over all timed calls.
    pub total_ns: u64,
    /// The sum of these times, without the time in probed callees.
    pub self_ns: u64,
    /// The longest time.
    pub max_ns: u64,
}

impl Latency {
    /// Returns the sum of two threads or processes, and the larger maximum.
    #[must_use]
    pub fn plus(self, other: Latency) -> Latency {
        Latency {
            total_ns: self.total_ns.wrapping_add(other.total_ns),
            self_ns: self.self_ns.wrapping_add(other.self_ns),
            max_ns: self.max_ns.max(other.max_ns),
        }
    }

    /// Returns what was added since an earlier state of the same event. `max_ns` is no sum, so it
    /// stays: where counting begins, the collector sets it to zero.
    #[must_use]
    pub fn since(self, earlier: Latency) -> Latency {
        Latency {
            total_ns: self.total_ns.wrapping_sub(earlier.total_ns),
            self_ns: self.self_ns.wrapping_sub(earlier.self_ns),
            max_ns: self.max_ns,
        }
    }
}
