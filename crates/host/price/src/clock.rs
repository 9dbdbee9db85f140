//! Measures the time stamp counter's rate.

use std::arch::x86_64::_rdtsc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tiptoe_sys::raw::monotonic_ns;

const FIRST_SPAN: Duration = Duration::from_millis(1);
/// The rate over this time is used, even if reading the clocks is slow.
const SPAN: Duration = Duration::from_millis(20);
/// Reading both clocks, at the begin and the end, must take at most 1/`PART` of the time in between, for an error of
/// the rate below 0.01%.
const PART: u32 = 10_000;

/// Returns the nanoseconds of a tick, times 2^32. The first call takes 1 to 2 ms, or 20 to 40 ms if reading the
/// clocks is slow.
pub fn ns_per_tick() -> u64 {
    static MEASURED: OnceLock<u64> = OnceLock::new();
    *MEASURED.get_or_init(|| {
        let from = clock_pair();
        let mut span = FIRST_SPAN;
        loop {
            std::thread::sleep(span);
            let to = clock_pair();
            let passed = to.at.duration_since(from.at);
            if (from.took + to.took) * PART > passed && passed < SPAN {
                span = passed;
                continue;
            }
            let ticks = to.ticks.wrapping_sub(from.ticks);
            return ((passed.as_nanos() << 32) / u128::from(ticks).max(1)) as u64;
        }
    })
}

struct ClockPair {
    at: Instant,
    ticks: u64,
    /// `ticks` was read at most this long after `at`.
    took: Duration,
}

/// Returns the time stamp counter.
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 has the instruction.
    unsafe { _rdtsc() }
}

/// Returns how many ns it takes to read the counter, in the fastest of several runs.
pub fn reading_ns() -> f64 {
    const TIMES: u32 = 1000;
    let run = || {
        let from = Instant::now();
        // SAFETY: every x86-64 has the instruction.
        let sum = (0..TIMES).fold(0u64, |sum, _| sum ^ unsafe { _rdtsc() });
        std::hint::black_box(sum);
        from.elapsed().as_nanos() as f64 / f64::from(TIMES)
    };
    (0..9).map(|_| run()).fold(f64::INFINITY, f64::min)
}

/// Returns the fastest of several readings of both clocks.
fn clock_pair() -> ClockPair {
    let read = || {
        let at = Instant::now();
        // SAFETY: every x86-64 has the instruction.
        let ticks = unsafe { _rdtsc() };
        let took = at.elapsed();
        ClockPair { at, ticks, took }
    };
    let more = (1..16).map(|_| read());
    more.fold(
        read(),
        |best, next| {
            if next.took < best.took { next } else { best }
        },
    )
}

/// A moment by CLOCK_MONOTONIC and by the counter.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    at_ns: u64,
    ticks: u64,
    ns_per_tick: u64,
}

impl Moment {
    /// Returns the present moment. The first call also measures the counter's rate.
    pub fn now() -> Moment {
        let ns_per_tick = ns_per_tick();
        let ClockPair { at, ticks, .. } = clock_pair();
        let passed = at.elapsed().as_nanos() as u64;
        Moment {
            at_ns: monotonic_ns().saturating_sub(passed),
            ticks,
            ns_per_tick,
        }
    }

    /// Returns CLOCK_MONOTONIC, in ns, at the counter's value `ticks`; 0 if that was before the clock's zero.
    pub fn monotonic_ns(&self, ticks: u64) -> u64 {
        let passed = i128::from(ticks.wrapping_sub(self.ticks) as i64);
        let passed = (passed * i128::from(self.ns_per_tick)) >> 32;
        u64::try_from(i128::from(self.at_ns) + passed).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_about_as_long_as_processors_make_it() {
        let ns = ns_per_tick() as f64 / 2f64.powi(32);
        assert!((0.1..2.0).contains(&ns), "{ns} ns a tick");
    }

    #[test]
    fn moments_are_placed_by_their_ticks() {
        let now = Moment::now();
        let ticks = |s: u64| {
            u64::try_from((u128::from(s) << 32) * 1_000_000_000 / u128::from(ns_per_tick()))
        };
        let [second, ten] = [1, 10].map(|s| ticks(s).expect("ten seconds fit in a word"));
        let five = Moment {
            at_ns: 5_000_000_000,
            ..now
        };
        let near = |ns: u64, s: f64| (ns as f64 / 1e9 - s).abs() < 1e-6;
        assert!(near(five.monotonic_ns(now.ticks), 5.0));
        assert!(near(five.monotonic_ns(now.ticks + ten), 15.0));
        assert!(near(five.monotonic_ns(now.ticks - second), 4.0));
        assert_eq!(five.monotonic_ns(now.ticks - ten), 0);
    }
}
