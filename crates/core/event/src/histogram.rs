//! Times in a base-2 exponential histogram: OpenTelemetry's buckets at scale 3.
//!
//! Bucket `i` holds the times in `(2^(i/8), 2^((i+1)/8)]` ns, so every bucket is 9% wide.
//!
//! The bucket is computed exactly, without a logarithm or a float. `e` is the number of the time's highest bit; `m` is
//! the time, shifted so that this bit is bit 63. The next three bits, `s`, number eight equal parts between `2^e` and
//! `2^(e+1)`. In each part but the last, one bucket ends at `THRESHOLDS[s]`. For a time > 0:
//!
//! ```text
//! m      = ns << (63 - e)
//! s      = (m >> 60) & 7
//! bucket = 8 * e + s + (m > THRESHOLDS[s]) - (m << 1 == 0)      never below 0
//! ```
//!
//! The last term is 1 for powers of two, because each ends its bucket. Bucket 0 has 1 ns instead, because `(1, 1.09]`
//! contains no whole number.

/// Buckets per doubling: `2^HISTOGRAM_SCALE`.
pub const HISTOGRAM_SCALE: u8 = 3;
/// Buckets up to `2^42` ns (73 minutes); the last also holds longer times.
pub const HISTOGRAM_BUCKETS: usize = 42 << HISTOGRAM_SCALE;

/// The ends of the buckets in a doubling: `2^(1/8)` to `2^(7/8)`, times `2^63`, rounded down.
pub const THRESHOLDS: [u64; 8] = [
    0x8b95_c1e3_ea8b_d6e6,
    0x9837_f051_8db8_a96f,
    0xa5fe_d6a9_b151_38ea,
    0xb504_f333_f9de_6484,
    0xc567_2a11_5506_dadd,
    0xd744_fcca_d69d_6af4,
    0xeac0_c6e7_dd24_392e,
    u64::MAX,
];

/// Returns the bucket of a time; 0 ns counts as 1 ns.
#[inline]
pub const fn bucket_of(ns: u64) -> usize {
    if ns <= 1 {
        return 0;
    }
    let exponent = 63 - ns.leading_zeros();
    let mantissa = ns << ns.leading_zeros();
    let eighth = (mantissa >> 60 & 7) as usize;
    let above = (mantissa > THRESHOLDS[eighth]) as usize;
    let power_of_two = (mantissa << 1 == 0) as usize;
    let bucket = 8 * exponent as usize + eighth + above - power_of_two;
    if bucket < HISTOGRAM_BUCKETS {
        bucket
    } else {
        HISTOGRAM_BUCKETS - 1
    }
}

/// Returns the longest time of a bucket; for the last, `2^42`.
pub const fn upper_ns(bucket: usize) -> u64 {
    let end = if bucket < HISTOGRAM_BUCKETS {
        bucket + 1
    } else {
        HISTOGRAM_BUCKETS
    };
    let mantissa = match end % 8 {
        0 => 1 << 63,
        part => THRESHOLDS[part - 1],
    };
    mantissa >> (63 - end / 8)
}

/// Returns the time above which a bucket begins.
pub const fn lower_ns(bucket: usize) -> u64 {
    match bucket {
        0 => 0,
        _ => upper_ns(bucket - 1),
    }
}

/// Counts of times by bucket. [`crate::Latency`] has the exact maximum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// Times below the clock's resolution.
    pub zero_count: u64,
    counts: [u64; HISTOGRAM_BUCKETS],
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            zero_count: 0,
            counts: [0; HISTOGRAM_BUCKETS],
        }
    }
}

impl Histogram {
    /// Returns each bucket's count.
    pub fn counts(&self) -> &[u64; HISTOGRAM_BUCKETS] {
        &self.counts
    }

    /// Counts one time.
    pub fn record(&mut self, ns: u64) {
        let count = match ns {
            0 => &mut self.zero_count,
            _ => &mut self.counts[bucket_of(ns)],
        };
        *count = count.wrapping_add(1);
    }

    /// Adds counts by bucket; ignores counts after the last bucket.
    pub fn add_counts(&mut self, zero_count: u64, counts: &[u64]) {
        self.zero_count = self.zero_count.wrapping_add(zero_count);
        for (sum, count) in self.counts.iter_mut().zip(counts) {
            *sum = sum.wrapping_add(*count);
        }
    }

    /// Adds another thread's or process's counts.
    pub fn merge(&mut self, other: &Histogram) {
        self.add_counts(other.zero_count, &other.counts);
    }

    /// Returns what was added since an earlier state.
    #[must_use]
    pub fn since(mut self, earlier: &Histogram) -> Histogram {
        self.zero_count = self.zero_count.wrapping_sub(earlier.zero_count);
        for (count, before) in self.counts.iter_mut().zip(&earlier.counts) {
            *count = count.wrapping_sub(*before);
        }
        self
    }

    /// Returns the number of times.
    pub fn total(&self) -> u64 {
        let counts = self.counts.iter();
        counts.fold(self.zero_count, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the time that `percent` of all times do not exceed; 0 without times. The result is interpolated, with an
    /// error below 9.1%, and at most `max_ns`, the longest time.
    pub fn percentile(&self, percent: f64, max_ns: u64) -> u64 {
        let mut left = rank(self.total(), percent);
        if left <= self.zero_count {
            return 0;
        }
        left -= self.zero_count;
        for (bucket, &count) in self.counts.iter().enumerate() {
            if left <= count {
                return within(bucket, left, count, max_ns);
            }
            left -= count;
        }
        max_ns
    }
}

fn rank(total: u64, percent: f64) -> u64 {
    let exact = total as f64 * percent / 100.0;
    let whole = exact as u64;
    let rank = whole.saturating_add(u64::from((whole as f64) < exact));
    rank.max(1).min(total)
}

fn within(bucket: usize, nth: u64, count: u64, max_ns: u64) -> u64 {
    let last = bucket == HISTOGRAM_BUCKETS - 1;
    let end = if last { u64::MAX } else { upper_ns(bucket) };
    let end = end.min(max_ns);
    let start = lower_ns(bucket).min(end);
    // Rounded up, because the start itself belongs to the bucket before.
    let part = (u128::from(end - start) * u128::from(nth)).div_ceil(u128::from(count));
    start + part as u64
}
