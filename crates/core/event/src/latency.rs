//! How long timed calls took.

/// The times of one event's calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Latency {
    /// The sum of the times from entry to return.
    pub total_ns: u64,
    /// The same sum without the time in probed callees.
    pub self_ns: u64,
    /// The longest time.
    pub max_ns: u64,
}

impl Latency {
    /// Returns the sum, and the larger maximum.
    #[must_use]
    pub fn plus(self, other: Latency) -> Latency {
        Latency {
            total_ns: self.total_ns.wrapping_add(other.total_ns),
            self_ns: self.self_ns.wrapping_add(other.self_ns),
            max_ns: self.max_ns.max(other.max_ns),
        }
    }

    /// Returns what was added since an earlier state. `max_ns` stays the current maximum.
    #[must_use]
    pub fn since(self, earlier: Latency) -> Latency {
        Latency {
            total_ns: self.total_ns.wrapping_sub(earlier.total_ns),
            self_ns: self.self_ns.wrapping_sub(earlier.self_ns),
            max_ns: self.max_ns,
        }
    }
}
