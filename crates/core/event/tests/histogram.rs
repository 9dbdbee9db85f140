//! Checks buckets exactly: a time is in `(2^(i/8), 2^((i+1)/8)]` if its eighth power is in `(2^i, 2^(i+1)]`.

use proptest::prelude::*;
use tiptoe_event::histogram::{THRESHOLDS, lower_ns, upper_ns};
use tiptoe_event::{HISTOGRAM_BUCKETS, Histogram, bucket_of};

const LAST: usize = HISTOGRAM_BUCKETS - 1;

fn bits_below_eighth_power(number: u64) -> usize {
    let mut words = [0_u64; 9];
    words[0] = 1;
    for _ in 0..8 {
        let mut carry = 0;
        for word in &mut words {
            carry += u128::from(*word) * u128::from(number);
            *word = carry as u64;
            carry >>= 64;
        }
    }
    for word in &mut words {
        *word = word.wrapping_sub(1);
        if *word != u64::MAX {
            break; // no borrow from the next word
        }
    }
    let high = words.iter().rposition(|word| *word != 0);
    high.map_or(0, |at| at * 64 + 64 - words[at].leading_zeros() as usize)
}

/// Saturates, because bucket 0 also holds 1 ns.
fn exact_bucket(ns: u64) -> usize {
    let index = bits_below_eighth_power(ns).saturating_sub(1);
    index.min(LAST)
}

#[test]
fn each_threshold_is_exact_to_the_last_bit() {
    for (part, threshold) in THRESHOLDS[..7].iter().enumerate() {
        let power = 63 * 8 + part + 1;
        assert!(bits_below_eighth_power(*threshold) <= power);
        assert!(bits_below_eighth_power(threshold + 1) > power);
    }
}

#[test]
fn both_sides_of_every_boundary() {
    for bucket in (0..LAST).step_by(if cfg!(miri) { 16 } else { 1 }) {
        let end = upper_ns(bucket);
        for ns in [end.saturating_sub(1).max(1), end, end + 1] {
            assert_eq!(bucket_of(ns), exact_bucket(ns), "{ns} ns");
        }
        assert!(bucket_of(end) <= bucket && bucket_of(end + 1) > bucket);
        assert_eq!(lower_ns(bucket + 1), end);
    }
    for exponent in 1..42 {
        assert_eq!(bucket_of(1 << exponent), 8 * exponent - 1);
    }
}

#[test]
fn small_and_large_times() {
    for ns in 1..if cfg!(miri) { 100 } else { 100_000 } {
        assert_eq!(bucket_of(ns), exact_bucket(ns), "{ns} ns");
    }
    assert_eq!((bucket_of(0), bucket_of(1), lower_ns(0)), (0, 0, 0));
    assert_eq!((bucket_of(1 << 42), bucket_of(u64::MAX)), (LAST, LAST));
    assert_eq!((upper_ns(LAST), upper_ns(usize::MAX)), (1 << 42, 1 << 42));
}

fn filled(times: &[u64]) -> Histogram {
    let mut histogram = Histogram::default();
    times.iter().for_each(|ns| histogram.record(*ns));
    histogram
}

#[test]
fn percentiles_of_a_few() {
    let empty = Histogram::default();
    assert_eq!((empty.total(), empty.percentile(99.0, 0)), (0, 0));
    let one = filled(&[1000]);
    assert_eq!([50.0, 99.0].map(|p| one.percentile(p, 1000)), [1000; 2]);
    let zeros = filled(&[0, 0, 0, 1]);
    let shown = [0.0, 50.0, 75.0, 76.0, 100.0].map(|p| zeros.percentile(p, 1));
    assert_eq!(shown, [0, 0, 0, 1, 1]);
    let day = 86_400_000_000_000;
    assert_eq!(filled(&[day]).percentile(50.0, day), day);
}

#[test]
fn impossible_counts_do_not_panic() {
    let mut histogram = Histogram::default();
    histogram.add_counts(u64::MAX, &[u64::MAX; HISTOGRAM_BUCKETS + 1]);
    assert_eq!(histogram.total(), u64::MAX);
    for percent in [-1.0, 0.0, 50.0, 1000.0, f64::NAN, f64::INFINITY] {
        assert!(histogram.percentile(percent, 7) <= 7);
    }
    histogram.add_counts(2, &[2]);
    assert_eq!((histogram.zero_count, histogram.counts()[0]), (1, 1));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 4096,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// The shifts make all magnitudes equally likely.
    #[test]
    #[cfg_attr(miri, ignore = "generating the times takes minutes")]
    fn a_bucket_is_exact(ns in any::<u64>(), shift in 0_u32..64) {
        let ns = (ns >> shift).max(1);
        prop_assert_eq!(bucket_of(ns), exact_bucket(ns), "{} ns", ns);
    }

    #[test]
    #[cfg_attr(miri, ignore = "generating the times takes minutes")]
    fn percentiles_are_near_the_true_ones(
        mut times in prop::collection::vec((any::<u64>(), 22_u32..64).prop_map(|(ns, by)| ns >> by), 1..200),
        percent in 0.0_f64..=100.0,
    ) {
        times.sort_unstable();
        let max = *times.last().expect("one at least");
        let nth = (percent / 100.0 * times.len() as f64).ceil() as usize;
        let exact = times[nth.clamp(1, times.len()) - 1];
        let shown = filled(&times).percentile(percent, max);
        prop_assert!(shown <= max);
        let off = shown.abs_diff(exact) as f64;
        prop_assert!(off <= exact as f64 * 0.0906, "{} for {}", shown, exact);
    }

    #[test]
    #[cfg_attr(miri, ignore = "generating the times takes minutes")]
    fn since_undoes_merge(one in prop::collection::vec(any::<u64>(), 0..50), other in prop::collection::vec(any::<u64>(), 0..50)) {
        let (one, other) = (filled(&one), filled(&other));
        let mut both = one.clone();
        both.merge(&other);
        prop_assert_eq!(both.total(), one.total() + other.total());
        prop_assert_eq!(both.since(&one), other);
    }
}
