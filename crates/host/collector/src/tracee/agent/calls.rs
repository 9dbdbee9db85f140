//! Reads the counters of a function whose calls are followed (their returns are counted too) or recorded.

use tiptoe_event::{Ends, Histogram, Latency, Reading, Records};
use tiptoe_wire::calls::words;
use tiptoe_wire::ring;

use crate::planner::Follow;

/// If returns are requested, the count is that of returns.
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

/// Calls without a known end count as `inside` (unfinished).
fn ends(calls: u64, word: impl Fn(u32) -> u64) -> Ends {
    let ended = Ends {
        returns: word(words::RETURNS),
        // The word is below 0 for a moment if a call was counted as left (ended without a return) and returns later.
        left: (word(words::LEFT) as i64).max(0) as u64,
        only_counted: word(words::ONLY_COUNTED),
        inside: 0,
    };
    Ends {
        // The words are read at different times, so a call may return in between.
        inside: calls.saturating_sub(ended.calls()),
        ..ended
    }
}

/// Moves the calls of an ended process from `inside` to `left`.
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

pub fn histogram(values: &[u64], slot: u32, follow: Follow) -> Option<Box<Histogram>> {
    if !follow.is_timed() {
        return None;
    }
    let from = (slot + words::DURATIONS) as usize;
    let durations = values.get(from..from + words::DURATION_COUNT as usize)?;
    let (zero, buckets) = durations.split_first()?;
    let mut histogram = Box::new(Histogram::default());
    // This count is below 0 for a moment, because a thread stores the duration of its last call as pending before it
    // counts the previous call.
    histogram.add_counts((*zero as i64).max(0) as u64, buckets);
    Some(histogram)
}
