//! What the counters of a followed function say.

use tiptoe_event::{Histogram, Latency, Reading};
use tiptoe_wire::calls::words;

use crate::planner::Follow;

/// The counts of a probe, from its slot on. A function that is followed for its
/// returns counts these.
pub fn reading(values: &[u64], slot: u32, follow: Follow) -> Reading {
    let word = |word: u32| values.get((slot + word) as usize).copied().unwrap_or(0);
    let [calls, returns, left, only_counted] = [
        words::CALLS,
        words::RETURNS,
        words::LEFT,
        words::ONLY_COUNTED,
    ]
    .map(word);
    match follow {
        Follow::No => Reading {
            count: calls,
            ..Reading::default()
        },
        Follow::Returns => Reading {
            count: returns,
            lost: only_counted,
            ..Reading::default()
        },
        Follow::Times => Reading {
            count: calls,
            latency: Some(Latency {
                returns,
                left,
                only_counted,
                // Each is read at another moment: a call may return in between.
                inside: calls.saturating_sub(returns.wrapping_add(left).wrapping_add(only_counted)),
                total_ns: word(words::TOTAL),
                self_ns: word(words::OWN),
                max_ns: word(words::LONGEST),
            }),
            ..Reading::default()
        },
    }
}

/// How long its calls took, where they are timed.
pub fn histogram(values: &[u64], slot: u32, follow: Follow) -> Option<Box<Histogram>> {
    if follow != Follow::Times {
        return None;
    }
    let slot = slot as usize;
    let end = (slot + words::ALL as usize).min(values.len());
    let zero = values.get(slot + words::ZERO as usize).copied()?;
    let mut histogram = Box::new(Histogram::default());
    histogram.add_counts(zero, values.get(slot + words::BUCKETS as usize..end)?);
    Some(histogram)
}
