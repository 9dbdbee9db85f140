//! What is known of calls that were timed from their entry to their return.

/// One event's calls, in numbers. With the event's count of entries:
/// `count = returns + left + inside + only_counted`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Latency {
    /// Calls that returned.
    pub returns: u64,
    /// Calls that were left without a return: by longjmp, by an exception, or
    /// because their thread ended.
    pub left: u64,
    /// Calls that still run.
    pub inside: u64,
    /// Calls that found no credit or no room, and were counted, not timed.
    pub only_counted: u64,
    /// The time between entry and return, over all timed calls.
    pub total_ns: u64,
    /// That time less the part that was spent in callees that are probed too.
    pub self_ns: u64,
    /// The longest time of all.
    pub max_ns: u64,
}

impl Latency {
    /// Both together, as of two threads or two processes.
    #[must_use]
    pub fn plus(self, other: Latency) -> Latency {
        Latency {
            inside: self.inside.wrapping_add(other.inside),
            max_ns: self.max_ns.max(other.max_ns),
            ..self.sums(other, u64::wrapping_add)
        }
    }

    /// What was added since an earlier state of the same event. What is a state
    /// itself, and no sum, stays: the calls that still run, and the longest time.
    #[must_use]
    pub fn since(self, earlier: Latency) -> Latency {
        self.sums(earlier, u64::wrapping_sub)
    }

    fn sums(self, other: Latency, join: fn(u64, u64) -> u64) -> Latency {
        Latency {
            returns: join(self.returns, other.returns),
            left: join(self.left, other.left),
            only_counted: join(self.only_counted, other.only_counted),
            total_ns: join(self.total_ns, other.total_ns),
            self_ns: join(self.self_ns, other.self_ns),
            ..self
        }
    }
}
