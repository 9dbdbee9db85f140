//! What the counters of a function say that is followed or recorded.

use tiptoe_event::{Ends, Histogram, Latency, Reading, Records};
use tiptoe_wire::calls::words;
use tiptoe_wire::ring;

use crate::planner::Follow;

/// The counts of a probe, from its slot on. A function that is followed for its
/// returns counts these.
pub fn reading(values: &[u64], slot: u32, follow: Follow) -> Reading {
    let word = |word: u32| values.get((slot + word) as usize).copied().unwrap_or(0);
    let calls = match follow {
        Follow::Record => return recorded(word),
        _ if !follow.is_followed() => word(words::CALLS),
        _ => word(words::CALLS).wrapping_add(word(words::ONLY_COUNTED)),
    };
    let ends = follow.is_followed().then(|| ends(calls, word));
    Reading {
        count: match (follow, ends) {
            (Follow::Returns, Some(ends)) => ends.returns,
            _ => calls,
        },
        ends,
        latency: follow.is_timed().then(|| Latency {
            total_ns: word(words::TOTAL),
            self_ns: word(words::OWN),
            max_ns: word(words::LONGEST),
        }),
        ..Reading::default()
    }
}

/// What became of calls that are recorded.
fn recorded(word: impl Fn(u32) -> u64) -> Reading {
    let records = Records {
        recorded: word(ring::words::RECORDED),
        lost: word(ring::words::LOST),
        only_counted: word(ring::words::ONLY_COUNTED),
    };
    Reading {
        count: records.calls(),
        records: Some(records),
        ..Reading::default()
    }
}

/// How the calls ended that entered; those of which no end is known still run.
fn ends(calls: u64, word: impl Fn(u32) -> u64) -> Ends {
    let ended = Ends {
        returns: word(words::RETURNS),
        // Below 0 for a moment, where a call that was taken for left returned.
        left: (word(words::LEFT) as i64).max(0) as u64,
        only_counted: word(words::ONLY_COUNTED),
        inside: 0,
    };
    Ends {
        // Each is read at another moment: a call may return in between.
        inside: calls.saturating_sub(ended.calls()),
        ..ended
    }
}

/// Where the process is no more, what it was still in is left.
pub fn at_the_end(reading: Reading) -> Reading {
    let left = |ends: Ends| Ends {
        left: ends.left + ends.inside,
        inside: 0,
        ..ends
    };
    Reading {
        ends: reading.ends.map(left),
        ..reading
    }
}

/// How long its calls took, where they are timed.
pub fn histogram(values: &[u64], slot: u32, follow: Follow) -> Option<Box<Histogram>> {
    if !follow.is_timed() {
        return None;
    }
    let from = (slot + words::DURATIONS) as usize;
    let durations = values.get(from..from + words::DURATION_COUNT as usize)?;
    let (zero, buckets) = durations.split_first()?;
    let mut histogram = Box::new(Histogram::default());
    // Below 0 for a moment, between the exchange of what is pending and its count.
    histogram.add_counts((*zero as i64).max(0) as u64, buckets);
    Some(histogram)
}
