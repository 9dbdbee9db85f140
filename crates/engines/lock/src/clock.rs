//! The clock of waits and holds: the CPU's time stamp counter, because a slower clock would prolong critical sections.
//! If the counter's rate is not constant, the system's clock is used.

#[cfg(feature = "std")]
mod system {
    use std::sync::OnceLock;
    use std::time::Instant;

    pub(crate) fn now() -> u64 {
        static FIRST: OnceLock<Instant> = OnceLock::new();
        let since = FIRST.get_or_init(Instant::now).elapsed();
        since.as_secs() * 1_000_000_000 + u64::from(since.subsec_nanos())
    }
}

/// The system's clock; always 0 without std.
#[cfg(not(all(feature = "std", target_arch = "x86_64", not(miri))))]
mod ticks {
    #[cfg(feature = "std")]
    pub(crate) use super::system::now;

    #[cfg(not(feature = "std"))]
    pub(crate) fn now() -> u64 {
        0
    }

    pub(crate) fn ns(ticks: u64) -> u64 {
        ticks
    }
}

#[cfg(all(feature = "std", target_arch = "x86_64", not(miri)))]
mod ticks {
    use core::arch::x86_64::{__cpuid, _rdtsc};
    use core::sync::atomic::AtomicU64;
    use core::sync::atomic::Ordering::Relaxed;

    use super::system;

    /// Nanoseconds per tick, times 2^32; 0 until measured. Relaxed: orders nothing.
    static TICK: AtomicU64 = AtomicU64::new(0);
    /// The value of [`TICK`] for the system's clock, whose ticks are nanoseconds.
    const SYSTEM: u64 = 1 << 32;
    /// The shortest time over which the two clocks are compared. Reading both may take 50 ns, so the error is 0.1%.
    const COMPARED_NS: u64 = 50_000;

    #[inline]
    pub(crate) fn now() -> u64 {
        let tick = match TICK.load(Relaxed) {
            0 => find_slow(),
            tick => tick,
        };
        match tick {
            SYSTEM => system::now(),
            _ => ticks(),
        }
    }

    #[inline]
    pub(crate) fn ns(ticks: u64) -> u64 {
        let tick = u128::from(TICK.load(Relaxed));
        ((u128::from(ticks) * tick) >> 32) as u64
    }

    #[inline]
    fn ticks() -> u64 {
        // SAFETY: every x86-64 CPU has the instruction, and Linux lets programs execute it.
        unsafe { _rdtsc() }
    }

    #[cold]
    fn find_slow() -> u64 {
        let tick = if is_even() { compare() } else { SYSTEM };
        // All threads must use the first result, because ticks of two clocks cannot be subtracted.
        match TICK.compare_exchange(0, tick, Relaxed, Relaxed) {
            Ok(_) => tick,
            Err(first) => first,
        }
    }

    /// Returns whether the counter's rate is constant in all power states.
    fn is_even() -> bool {
        let has = __cpuid(0x8000_0000).eax >= 0x8000_0007;
        has && __cpuid(0x8000_0007).edx & (1 << 8) != 0
    }

    fn compare() -> u64 {
        let (first, begin) = (system::now(), ticks());
        loop {
            let (now, end) = (system::now(), ticks());
            let (ns, ticks) = (now - first, end.saturating_sub(begin));
            if ns >= COMPARED_NS {
                let tick = (u128::from(ns) << 32).checked_div(ticks.into());
                let tick = tick.and_then(|tick| u64::try_from(tick).ok());
                // The counter is not used if it stopped, or if its tick equals `SYSTEM`.
                return tick
                    .filter(|tick| ![0, SYSTEM].contains(tick))
                    .unwrap_or(SYSTEM);
            }
            core::hint::spin_loop();
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn both_clocks_agree() {
            let (first, begin) = (system::now(), now());
            std::thread::sleep(core::time::Duration::from_millis(20));
            let (system, own) = (system::now() - first, ns(now() - begin));
            // Another thread may run between the readings, so only the lower bound is certain.
            assert!(own >= 20_000_000 * 98 / 100, "{own} of {system}");
        }
    }
}

pub(crate) use ticks::{now, ns};
