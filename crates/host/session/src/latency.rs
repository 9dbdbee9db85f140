//! The times of calls from their entry to their return.

use serde::{Deserialize, Serialize};
use tiptoe_event::{HISTOGRAM_SCALE, Histogram as Times, Latency as Reading};

/// The times of the calls of one event, or of a part of its count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Latency {
    /// The sum of the times from entry to return, over all calls in the histogram.
    pub total_ns: u64,
    /// `total_ns` without the time in probed callees.
    pub self_ns: u64,
    /// The times of all timed calls; with `--slower`, only of calls that took longer than the option's limit.
    pub histogram: Histogram,
}

impl Latency {
    /// Returns a latency with these sums and times.
    pub fn new(reading: Reading, times: &Times) -> Latency {
        Latency {
            total_ns: reading.total_ns,
            self_ns: reading.self_ns,
            histogram: Histogram::new(times, reading.max_ns),
        }
    }

    /// Returns the mean time of a call; 0 if no call was timed.
    pub fn mean_ns(&self) -> f64 {
        match self.histogram.total() {
            0 => 0.0,
            timed => self.total_ns as f64 / timed as f64,
        }
    }
}

/// Times in OTLP's base-2 exponential buckets: `counts[k]` of the times were in `(2^(i/2^scale), 2^((i+1)/2^scale)]`
/// ns, with `i` = `offset + k`. Percentiles are interpolated within their bucket; the longest time is exact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Histogram {
    /// Each doubling of the time has 2^scale buckets.
    pub scale: u8,
    /// The number of times of 0 ns, which are in no bucket.
    pub zero_count: u64,
    /// The index of the first bucket in `counts`.
    pub offset: i32,
    /// The counts from the first to the last bucket that is not empty.
    pub counts: Vec<u64>,
    /// The median.
    pub p50_ns: u64,
    /// The 90th percentile.
    pub p90_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The longest time.
    pub max_ns: u64,
}

impl Histogram {
    /// Returns the histogram of `times`, of which `max_ns` is the longest.
    pub fn new(times: &Times, max_ns: u64) -> Histogram {
        let (offset, counts) = numbered_as_otlp(times);
        Histogram {
            scale: HISTOGRAM_SCALE,
            zero_count: times.zero_count,
            offset,
            counts,
            p50_ns: times.percentile(50.0, max_ns),
            p90_ns: times.percentile(90.0, max_ns),
            p99_ns: times.percentile(99.0, max_ns),
            max_ns,
        }
    }

    /// Returns how many durations were recorded.
    pub fn total(&self) -> u64 {
        let counts = self.counts.iter();
        counts.fold(self.zero_count, |sum, count| sum.saturating_add(*count))
    }
}

/// Returns the offset and the counts by OTLP's numbers. tiptoe's bucket 0 holds 1 ns, which is in OTLP's bucket -1.
/// OTLP's bucket 0 contains no whole nanosecond.
fn numbered_as_otlp(times: &Times) -> (i32, Vec<u64>) {
    let [one_ns, longer @ ..] = times.counts();
    let mut counts = vec![*one_ns, 0];
    counts.extend_from_slice(longer);
    let Some(first) = counts.iter().position(|count| *count != 0) else {
        return (0, Vec::new());
    };
    counts.drain(..first);
    while counts.pop_if(|count| *count == 0).is_some() {}
    (first as i32 - 1, counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(times: &[u64], offset: i32, counts: &[u64]) {
        let mut counted = Times::default();
        times.iter().for_each(|ns| counted.record(*ns));
        let histogram = Histogram::new(&counted, times.iter().copied().max().unwrap_or(0));
        assert_eq!((histogram.offset, &*histogram.counts), (offset, counts));
        assert_eq!(histogram.total(), times.len() as u64);
    }

    #[test]
    fn buckets_have_the_numbers_of_otlp() {
        check(&[], 0, &[]);
        check(&[0, 0], 0, &[]);
        check(&[1, 1], -1, &[2]);
        check(&[1, 2], -1, &[1, 0, 0, 0, 0, 0, 0, 0, 1]);
        check(&[2, 2, 2], 7, &[3]);
        check(&[1024, 1025, 1200], 79, &[1, 1, 1]);
        check(&[u64::MAX], 335, &[1]);
    }
}
