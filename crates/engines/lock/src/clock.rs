//! The clock by which waits and holds are timed, in ticks of its own.
//!
//! Reading it stands between having a lock and working with it, so it is the processor's own
//! counter where that runs evenly, and what a tick is is found out once.

/// The operating system's.
#[cfg(feature = "std")]
mod system {
    use std::sync::OnceLock;
    use std::time::Instant;

    /// Nanoseconds since the clock was first read.
    pub(crate) fn now() -> u64 {
        static FIRST: OnceLock<Instant> = OnceLock::new();
        let since = FIRST.get_or_init(Instant::now).elapsed();
        since.as_secs() * 1_000_000_000 + u64::from(since.subsec_nanos())
    }
}

/// The system's where there is no other, and none without std.
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

/// The processor's counter.
#[cfg(all(feature = "std", target_arch = "x86_64", not(miri)))]
mod ticks {
    use core::arch::x86_64::{__cpuid, _rdtsc};
    use core::sync::atomic::AtomicU64;
    use core::sync::atomic::Ordering::Relaxed;

    use super::system;

    /// Nanoseconds of a tick, times 2^32; 0 before anybody asked. It orders nothing.
    static TICK: AtomicU64 = AtomicU64::new(0);
    /// What stands there where ticks are the system's nanoseconds.
    const SYSTEM: u64 = 1 << 32;
    /// For how long the two clocks are compared: they are read 50 ns apart at most.
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
        // SAFETY: every x86-64 processor has it, and Linux lets programs read it.
        unsafe { _rdtsc() }
    }

    #[cold]
    fn find_slow() -> u64 {
        let tick = if is_even() { compare() } else { SYSTEM };
        // Whoever comes first is right for all, as ticks of one clock are no time of the other.
        match TICK.compare_exchange(0, tick, Relaxed, Relaxed) {
            Ok(_) => tick,
            Err(first) => first,
        }
    }

    /// Whether the counter runs at one speed, whatever the processor does.
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
                // A counter that stands still, or one of a tick that would be the system's.
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
            // Between the two readings anybody may run: the shorter one lies within.
            assert!(own >= 20_000_000 * 98 / 100, "{own} of {system}");
        }
    }
}

pub(crate) use ticks::{now, ns};
