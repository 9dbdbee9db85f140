//! Keeps the cost of the kernel's probes within the budget. A hit of an open probe costs at least 1 us, even if its
//! count is never read. So a probe that exceeds the budget is closed until enough budget has been earned. Such a
//! probe counts in windows, the times in which it is open.
//!
//! The sum over windows is a lower bound, and must never be scaled to the whole time. Hits slow the program, so the
//! rate of hits outside the windows is unknown.
//!
//! INVARIANT: over any period, the cost of the hits is at most the sum of:
//! - the budget's share of the process's CPU time, or of [`LEAST_USED`] of one CPU if that is more;
//! - the budget's share of [`SAVED`];
//! - the hits between two looks (readings of the counts), and in the 0.2 ms that closing takes.

use std::collections::VecDeque;
use std::fs::File;
use std::time::{Duration, Instant};

use tiptoe_attach::Attached;
use tiptoe_kernel::UprobeSet;

use crate::clock::TICK;

/// A process is assumed to use at least this part of a CPU.
const LEAST_USED: f64 = 0.1;
/// Unspent budget is saved up to the budget's share of one CPU over this time.
const SAVED: Duration = Duration::from_secs(1);
/// This part of the limit [`SAVED`] is available at the start. A closed probe is opened again once this part is saved.
const ENOUGH: f64 = 0.5;
/// How long hits are remembered. Older hits do not predict a probe's rate.
const MEMORY: Duration = Duration::from_millis(200);
/// The pause between two looks while an opened probe's rate is unknown.
const LOOK: Duration = Duration::from_millis(1);
/// How long a probe's rate is unknown after its opening.
const FRESH: Duration = Duration::from_millis(20);
/// Looks take at most 1/`OWN_SHARE` of one CPU's time.
const OWN_SHARE: u32 = 8;

pub struct Uprobes {
    pub set: UprobeSet,
    pub throttle: Option<Throttle>,
    pub is_throttled: bool,
}

pub struct Throttle {
    /// Must stay open, because a probe is opened again by its file's descriptor.
    _files: Vec<File>,
    pub next: Instant,
    opened: Instant,
    account: Account,
}

struct Account {
    share: f64,
    /// The cost of a hit in ns, by probe.
    prices: Vec<f64>,
    /// The last look: its time, the process's CPU time, the probes' counts.
    at: Instant,
    used: Duration,
    counts: Vec<u64>,
    /// The unspent budget, negative after a burst of hits.
    saved_ns: f64,
    /// The recent earnings, and the recent spending of each probe.
    earned_ns: f64,
    spent_ns: Vec<f64>,
    closed: VecDeque<usize>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct ThrottleStep {
    close: Vec<usize>,
    open: Option<usize>,
}

impl Throttle {
    /// `used` is the process's CPU time so far.
    pub fn new(share: f64, prices: Vec<f64>, files: Vec<File>, used: Duration) -> Throttle {
        let now = Instant::now();
        Throttle {
            _files: files,
            next: now,
            opened: now,
            account: Account::new(share, prices, now, used),
        }
    }

    pub fn halve_budget(&mut self) {
        self.account.share /= 2.0;
    }

    fn plan(&mut self, now: Instant, took: Duration) {
        let is_fresh = now.saturating_duration_since(self.opened) < FRESH;
        let pause = if is_fresh { LOOK } else { TICK };
        self.next = now + pause.max(took * OWN_SHARE);
    }
}

impl Account {
    fn new(share: f64, prices: Vec<f64>, now: Instant, used: Duration) -> Account {
        Account {
            share,
            at: now,
            used,
            counts: vec![0; prices.len()],
            saved_ns: ENOUGH * share * SAVED.as_nanos() as f64,
            earned_ns: 0.0,
            spent_ns: vec![0.0; prices.len()],
            prices,
            closed: VecDeque::new(),
        }
    }

    fn settle(&mut self, now: Instant, used: Duration, counts: Vec<u64>) -> ThrottleStep {
        let passed = now.saturating_duration_since(self.at);
        let ran = used.saturating_sub(self.used).as_nanos() as f64;
        let earned = self.share * ran.max(LEAST_USED * passed.as_nanos() as f64);
        let keep = 1.0 - (passed.as_secs_f64() / MEMORY.as_secs_f64()).min(1.0);
        let mut spent = 0.0;
        for (place, (now, then)) in counts.iter().zip(&self.counts).enumerate() {
            let ns = now.saturating_sub(*then) as f64 * self.prices[place];
            self.spent_ns[place] = self.spent_ns[place] * keep + ns;
            spent += ns;
        }
        self.earned_ns = self.earned_ns * keep + earned;
        let most = self.share * SAVED.as_nanos() as f64;
        self.saved_ns = (self.saved_ns + earned).min(most) - spent;
        (self.at, self.used, self.counts) = (now, used.max(self.used), counts);
        let mut turn = ThrottleStep::default();
        if self.saved_ns >= ENOUGH * most {
            turn.open = self.closed.pop_front();
        } else if self.saved_ns < 0.0 {
            turn.close = self.dearest(-most);
            self.closed.extend(&turn.close);
        }
        turn
    }

    /// Returns the open probes to close, the dearest first. The recent spending of the probes that stay open is then
    /// within the recent earnings. While `saved_ns` is at least `deep`, at least the budget's share of [`MEMORY`] is
    /// allowed, so that a few early hits close no probe.
    fn dearest(&self, deep: f64) -> Vec<usize> {
        let allowed = match self.saved_ns < deep {
            true => self.earned_ns,
            false => self.earned_ns.max(self.share * MEMORY.as_nanos() as f64),
        };
        let open = (0..self.prices.len()).filter(|place| !self.closed.contains(place));
        let mut open: Vec<(usize, f64)> = open.map(|place| (place, self.spent_ns[place])).collect();
        open.sort_by(|one, other| other.1.total_cmp(&one.1));
        let mut rest: f64 = open.iter().map(|(_, ns)| ns).sum();
        let mut close = Vec::new();
        for (place, ns) in open {
            if rest <= allowed || ns <= 0.0 {
                break;
            }
            rest -= ns;
            close.push(place);
        }
        close
    }
}

impl Uprobes {
    /// At the first closing, returns the dearest probe's index.
    pub fn keep_budget(&mut self, target: &Attached, now: Instant) -> Option<usize> {
        if target.has_ended() {
            return None;
        }
        let used = target.fetch_total_cpu_time();
        let throttle = self.throttle.as_mut()?;
        if now < throttle.next {
            return None;
        }
        // On failure the hits are counted at the next look.
        let counts = self.set.counts().ok()?;
        let is_first = !self.is_throttled;
        let ThrottleStep { close, open } = throttle.account.settle(now, used, counts);
        if !close.is_empty() {
            self.set.close(&close);
            self.is_throttled = true;
        }
        throttle.plan(now, now.elapsed());
        if let Some(place) = open {
            if self.set.open_again(place) {
                throttle.opened = Instant::now();
                throttle.next = throttle.opened;
            } else {
                throttle.account.closed.push_back(place);
            }
        }
        close.first().copied().filter(|_| is_first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARE: f64 = 0.01;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Simulates probes of 1 us a hit, with a look every 10 ms in which one CPU was used.
    struct Run {
        account: Account,
        start: Instant,
        looks: u64,
    }

    impl Run {
        fn of(probes: usize) -> Run {
            let start = Instant::now();
            Run {
                account: Account::new(SHARE, vec![1_000.0; probes], start, Duration::ZERO),
                start,
                looks: 0,
            }
        }

        fn hit(&mut self, hits: &[u64]) -> ThrottleStep {
            self.looks += 1;
            let counts = self
                .account
                .counts
                .iter()
                .zip(hits)
                .map(|(count, hits)| count + hits);
            let counts = counts.collect();
            let passed = ms(10) * self.looks as u32;
            self.account.settle(self.start + passed, passed, counts)
        }
    }

    fn close(places: &[usize]) -> ThrottleStep {
        ThrottleStep {
            close: places.to_vec(),
            open: None,
        }
    }

    #[test]
    fn only_the_probe_that_passes_the_budget_is_closed_and_then_opened_again() {
        let mut run = Run::of(3);
        assert_eq!(run.hit(&[40, 1_000, 2]), ThrottleStep::default());
        assert_eq!(run.hit(&[40, 9_000, 2]), close(&[1]));
        let mut quiet = 0;
        loop {
            let turn = run.hit(&[40, 0, 2]);
            quiet += 1;
            if turn.open.is_some() {
                assert_eq!(
                    turn,
                    ThrottleStep {
                        close: Vec::new(),
                        open: Some(1)
                    }
                );
                break;
            }
            assert_eq!(turn, ThrottleStep::default(), "{quiet}");
        }
        // 4.884 ms of debt and 5 ms to save, at 58 us in each look.
        assert_eq!(quiet, 171);
        assert_eq!(run.hit(&[40, 500, 2]), ThrottleStep::default());
    }

    #[test]
    fn what_is_spent_is_bounded_however_often_a_probe_is_hit() {
        let mut run = Run::of(1);
        let (mut is_open, mut spent) = (true, 0);
        for _ in 0..10_000 {
            let hits = if is_open { 10_000 } else { 0 };
            spent += hits;
            let turn = run.hit(&[hits]);
            is_open = (is_open || turn.open.is_some()) && turn.close.is_empty();
        }
        // 100 s earn one second of hits, half a second's share was available, and one look may overspend.
        let most_us = 1_000_000 + 5_000 + 10_000;
        assert!((900_000..=most_us).contains(&spent), "{spent}");
    }

    #[test]
    fn an_idle_process_may_cost_a_tenth_of_a_cpus_share() {
        let mut run = Run::of(1);
        run.account.saved_ns = 0.0;
        let now = run.start + ms(1_000);
        run.account.settle(now, Duration::ZERO, vec![0]);
        assert_eq!(run.account.saved_ns, 1e6);
    }

    #[test]
    fn a_fresh_probe_is_looked_at_sooner_and_looks_take_a_part_of_the_time() {
        let mut throttle = Throttle::new(SHARE, Vec::new(), Vec::new(), Duration::ZERO);
        let start = throttle.opened;
        for (now, took, pause) in [
            (ms(0), ms(0), LOOK),
            (FRESH, ms(0), TICK),
            (FRESH, TICK, TICK * OWN_SHARE),
        ] {
            throttle.plan(start + now, took);
            assert_eq!(throttle.next, start + now + pause);
        }
    }
}
