//! How often tasks begin and end, on which the cheaper way to count depends.
//!
//! By tasks a program runs at each birth and each end. At switches programs run at switches instead.

use std::time::Instant;

use tiptoe_sys::host::procfs::{births_of_all, switches_of_all};

/// What a task's birth and end cost more by tasks, and a switch at switches. `tiptoe-dev bench cgroup` measures both on a
/// machine. Rough values suffice, because they only choose the way.
const LIFE_NS: u64 = 800;
const SWITCH_NS: u64 = 100;
/// The share of a CPU's time, one in this many, up to which births and ends may cost more.
const SHARE: u64 = 100;

/// What all CPUs did in some time.
#[derive(Clone, Copy, Debug)]
struct Lives {
    births: u64,
    switches: u64,
    ns: u64,
}

impl Lives {
    /// Returns whether programs at switches cost less, and programs at births too much.
    fn are_many(self) -> bool {
        let births_ns = self.births.saturating_mul(LIFE_NS);
        let switches_ns = self.switches.saturating_mul(SWITCH_NS);
        births_ns > switches_ns && births_ns > self.ns / SHARE
    }
}

/// Measures births and switches from its creation on.
#[derive(Debug)]
pub(super) struct LivesMeter {
    begun: Option<[u64; 2]>,
    since: Instant,
}

impl LivesMeter {
    pub(super) fn start() -> LivesMeter {
        LivesMeter {
            begun: counts(),
            since: Instant::now(),
        }
    }

    /// Returns whether tasks begin and end so often that counting at switches costs less.
    pub(super) fn are_many(&self) -> bool {
        let both = self.begun.zip(counts());
        both.is_some_and(|([births, switches], now)| {
            let lives = Lives {
                births: now[0].saturating_sub(births),
                switches: now[1].saturating_sub(switches),
                ns: self.since.elapsed().as_nanos() as u64,
            };
            lives.are_many()
        })
    }
}

fn counts() -> Option<[u64; 2]> {
    Some([births_of_all().ok()?, switches_of_all().ok()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn births_choose_the_way_only_if_they_are_many_and_switches_are_few() {
        let cases = [
            // An idle machine, a compiler, a shell that forks 1,000 times a second.
            (0, 100, false),
            (50, 20_000, false),
            (100, 500, false),
            // 30,000 threads a second, with two switches each, and beside a busy server.
            (3_000, 6_000, true),
            (3_000, 60_000, false),
        ];
        for (births, switches, expected) in cases {
            let lives = Lives {
                births,
                switches,
                ns: 100_000_000,
            };
            assert_eq!(lives.are_many(), expected, "{lives:?}");
        }
    }
}
