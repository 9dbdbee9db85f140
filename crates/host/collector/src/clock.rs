//! How fast the time stamp counter runs.

use std::arch::x86_64::_rdtsc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Long enough for an error below 0.01%: each end is read to within a microsecond.
const SPAN: Duration = Duration::from_millis(20);

/// Nanoseconds in a tick, times 2^32. Measured once, in 20 ms.
pub fn ns_per_tick() -> u64 {
    static MEASURED: OnceLock<u64> = OnceLock::new();
    *MEASURED.get_or_init(|| {
        let from = both();
        std::thread::sleep(SPAN);
        let to = both();
        let ns = to.0.duration_since(from.0).as_nanos();
        ((ns << 32) / u128::from(to.1.wrapping_sub(from.1)).max(1)) as u64
    })
}

/// The counter.
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 has the instruction.
    unsafe { _rdtsc() }
}

/// What reading the counter costs, in nanoseconds: the least of several runs.
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

/// Both clocks at one moment: of several readings the one that was least disturbed.
fn both() -> (Instant, u64) {
    let read = || {
        let before = Instant::now();
        // SAFETY: every x86-64 has the instruction.
        let ticks = unsafe { _rdtsc() };
        (before.elapsed(), before, ticks)
    };
    let best = (0..16).map(|_| read()).min_by_key(|(took, ..)| *took);
    best.map_or_else(|| (Instant::now(), 0), |(_, at, ticks)| (at, ticks))
}

/// A moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    at: Instant,
    ticks: u64,
    ns_per_tick: u64,
}

impl Moment {
    /// This one; the first time, 20 ms later.
    pub fn now() -> Moment {
        let ns_per_tick = ns_per_tick();
        let (at, ticks) = both();
        Moment {
            at,
            ticks,
            ns_per_tick,
        }
    }

    /// How long after `start` the counter stood at `ticks`, in nanoseconds; 0 where that
    /// was before.
    pub fn ns_from(&self, start: Instant, ticks: u64) -> u64 {
        let passed = i128::from(ticks.wrapping_sub(self.ticks) as i64);
        let passed = (passed * i128::from(self.ns_per_tick)) >> 32;
        let since = match self.at.checked_duration_since(start) {
            Some(after) => after.as_nanos() as i128,
            None => -(start.duration_since(self.at).as_nanos() as i128),
        };
        u64::try_from(since + passed).unwrap_or(0)
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
        let [second, ten] = [1, 10].map(|s| ticks(s).expect("not so many"));
        let early = now.at - Duration::from_secs(5);
        let near = |ns: u64, s: f64| (ns as f64 / 1e9 - s).abs() < 1e-6;
        assert!(near(now.ns_from(early, now.ticks), 5.0));
        assert!(near(now.ns_from(early, now.ticks + ten), 15.0));
        assert!(near(now.ns_from(early, now.ticks - second), 4.0));
        assert_eq!(now.ns_from(early, now.ticks - ten), 0);
    }
}
