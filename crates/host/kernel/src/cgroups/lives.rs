//! Measures how often tasks begin and end, to choose whether counting by tasks or at switches is cheaper.

use std::time::Instant;

use tiptoe_sys::host::procfs::{births_of_all, switches_of_all};

/// The rough cost of a task's birth and end if counting is by tasks, and of a switch if counting is at switches
/// (`tiptoe-dev bench cgroup`).
const LIFE_NS: u64 = 800;
const SWITCH_NS: u64 = 100;
/// Births and ends that cost less than 1/`SHARE` of a CPU's time are not many.
const SHARE: u64 = 100;

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

    pub(super) fn are_many(&self) -> bool {
        let both = self.begun.zip(counts());
        both.is_some_and(|([births, switches], now)| {
            let births = now[0].saturating_sub(births);
            let switches = now[1].saturating_sub(switches);
            are_many(births, switches, self.since.elapsed().as_nanos() as u64)
        })
    }
}

fn are_many(births: u64, switches: u64, ns: u64) -> bool {
    let births_ns = births.saturating_mul(LIFE_NS);
    births_ns > switches.saturating_mul(SWITCH_NS) && births_ns > ns / SHARE
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
            // An idle machine, a compiler, a shell with 1,000 forks a second.
            (0, 100, false),
            (50, 20_000, false),
            (100, 500, false),
            // 30,000 threads a second with two switches each, without and with a busy server.
            (3_000, 6_000, true),
            (3_000, 60_000, false),
        ];
        for (births, switches, expected) in cases {
            let are_many = are_many(births, switches, 100_000_000);
            assert_eq!(are_many, expected, "{births} births, {switches} switches");
        }
    }
}
