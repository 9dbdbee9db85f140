//! The kernel's probes are paid for. A hit costs a microsecond and more there, also where nobody reads the count, so
//! a probe that passes the budget is closed, and opened again once the budget has been earned: it counts in windows.
//!
//! Within a window a program runs slower by the hits themselves, by how much depends on them: no factor leads from a
//! window's count to that of the whole. So such a count is a lower bound, never scaled.
//!
//! INVARIANT: over any time, hits times their price are at most the share of the CPU time that the process used (or of
//! [`LEAST_USED`] of one CPU), one second's share more, and what is hit within one [`LOOK`] and the 0.2 ms of a closing.

use std::collections::VecDeque;
use std::fs::File;
use std::time::{Duration, Instant};

use super::{Counter, Source, Tracee};
use crate::driver::TICK;

/// A process that uses less of a CPU may cost as if it used this part of one.
const LEAST_USED: f64 = 0.1;
/// No more than this time's share of one CPU is saved up.
const SAVED: Duration = Duration::from_secs(1);
/// What there is at the start, and what must be there before a probe is opened again, as a part of that.
const ENOUGH: f64 = 0.5;
/// What was so long ago says nothing of how often a probe is hit.
const MEMORY: Duration = Duration::from_millis(200);
/// How soon the counts are looked at after a probe was opened, of which it is not known how often it is hit.
const LOOK: Duration = Duration::from_millis(1);
/// For how long after that.
const FRESH: Duration = Duration::from_millis(20);
/// Looking takes no more than one part in so many of one CPU's time.
const OWN_SHARE: u32 = 8;

/// What the kernel's probes of a process may cost, and did.
pub struct Throttle {
    /// The files of the probes, which are opened again by these descriptors.
    _files: Vec<File>,
    /// The next look.
    next: Instant,
    /// When a probe was opened last.
    opened: Instant,
    account: Account,
}

/// Earnings and spending.
struct Account {
    /// The part of the CPU time that may be spent.
    share: f64,
    /// What a hit of each probe costs, in nanoseconds.
    prices: Vec<f64>,
    /// At the last look: when it was, the process's CPU time, the probes' counts.
    at: Instant,
    used: Duration,
    counts: Vec<u64>,
    /// What may be spent; less than nothing after a flood.
    saved_ns: f64,
    /// What was earned lately, and what each probe spent.
    earned_ns: f64,
    spent_ns: Vec<f64>,
    /// Probes that are closed, the one that was closed first in front.
    closed: VecDeque<usize>,
}

/// What is to be done after a look.
#[derive(Debug, Default, PartialEq, Eq)]
struct Turn {
    close: Vec<usize>,
    open: Option<usize>,
}

impl Throttle {
    /// For probes whose hits cost this much, by their place in the set.
    pub fn new(share: f64, prices: Vec<f64>, files: Vec<File>) -> Throttle {
        let now = Instant::now();
        Throttle {
            _files: files,
            next: now,
            opened: now,
            account: Account::new(share, prices, now),
        }
    }

    /// Leaves a part of the budget to others in the same process.
    pub fn leave(&mut self, part: f64) {
        self.account.share *= 1.0 - part;
    }

    /// When the counts are to be looked at next.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Sets the time of the next look, after one that took so long.
    fn plan(&mut self, now: Instant, took: Duration) {
        let is_fresh = now.saturating_duration_since(self.opened) < FRESH;
        let pause = if is_fresh { LOOK } else { TICK };
        self.next = now + pause.max(took * OWN_SHARE);
    }
}

impl Account {
    fn new(share: f64, prices: Vec<f64>, now: Instant) -> Account {
        Account {
            share,
            at: now,
            used: Duration::ZERO,
            counts: vec![0; prices.len()],
            saved_ns: ENOUGH * share * SAVED.as_nanos() as f64,
            earned_ns: 0.0,
            spent_ns: vec![0.0; prices.len()],
            prices,
            closed: VecDeque::new(),
        }
    }

    /// Takes what was spent since the last look, and says which probes are to be closed and opened.
    fn settle(&mut self, now: Instant, used: Duration, counts: Vec<u64>) -> Turn {
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
        let mut turn = Turn::default();
        if self.saved_ns >= ENOUGH * most {
            turn.open = self.closed.pop_front();
        } else if self.saved_ns < 0.0 {
            turn.close = self.dearest(-most);
            self.closed.extend(&turn.close);
        }
        turn
    }

    /// The open probes that spend most, as many as leave to the others no more than is earned: not those that were hit a
    /// few times before much was earned, unless the debt is beyond `deep`.
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

impl Tracee {
    /// Closes the kernel's probes that pass the budget, and opens one that may be hit again. What to tell the user, at the
    /// first that is closed.
    pub fn throttle(&mut self, now: Instant) -> Option<String> {
        if self.is_gone() {
            return None;
        }
        let used = self.cpu_time();
        let (throttle, set) = (self.throttle.as_mut()?, self.kernel.as_mut()?);
        if now < throttle.next {
            return None;
        }
        // What cannot be read is looked at again.
        let counts = set.counts().ok()?;
        let is_first = !self.is_throttled;
        let Turn { close, open } = throttle.account.settle(now, used, counts);
        if !close.is_empty() {
            set.close(&close);
            self.is_throttled = true;
        }
        throttle.plan(now, now.elapsed());
        if let Some(place) = open {
            if set.open_again(place) {
                throttle.opened = Instant::now();
                throttle.next = throttle.opened;
            } else {
                throttle.account.closed.push_back(place);
            }
        }
        let dearest = close.first().filter(|_| is_first);
        dearest.map(|place| {
            let is_it = |counter: &&Counter| match counter.source {
                Source::Kernel(at) => at.index == *place,
                Source::Agent { .. } => false,
            };
            let event = self
                .counters
                .iter()
                .find(is_it)
                .map(|counter| &*counter.event);
            format!(
                "the kernel counts {} in windows: all its hits would cost more than the budget \
                 (`--budget off` counts all)",
                event.unwrap_or_default()
            )
        })
    }

    /// When [`Tracee::throttle`] is to be called next, if at all.
    pub fn next_throttle(&self) -> Option<Instant> {
        self.throttle.as_ref().map(Throttle::next)
    }

    /// Closes all of the kernel's probes: their counts stay.
    pub fn close_probes(&mut self) {
        if let Some(set) = &mut self.kernel {
            set.close_all();
        }
        self.throttle = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARE: f64 = 0.01;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Spends on probes of 1 us a hit, one look each 10 ms in which one CPU was used.
    struct Run {
        account: Account,
        start: Instant,
        looks: u64,
    }

    impl Run {
        fn of(probes: usize) -> Run {
            let start = Instant::now();
            Run {
                account: Account::new(SHARE, vec![1_000.0; probes], start),
                start,
                looks: 0,
            }
        }

        fn hit(&mut self, hits: &[u64]) -> Turn {
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

    fn close(places: &[usize]) -> Turn {
        Turn {
            close: places.to_vec(),
            open: None,
        }
    }

    #[test]
    fn only_the_probe_that_passes_the_budget_is_closed_and_then_opened_again() {
        let mut run = Run::of(3);
        // 0.1 ms is earned in 10 ms; 5 ms are there.
        assert_eq!(run.hit(&[40, 1_000, 2]), Turn::default());
        assert_eq!(run.hit(&[40, 9_000, 2]), close(&[1]));
        let mut quiet = 0;
        loop {
            let turn = run.hit(&[40, 0, 2]);
            quiet += 1;
            if turn.open.is_some() {
                assert_eq!(
                    turn,
                    Turn {
                        close: Vec::new(),
                        open: Some(1)
                    }
                );
                break;
            }
            assert_eq!(turn, Turn::default(), "{quiet}");
        }
        // 4.884 ms of debt and 5 ms anew, at 58 us in each look.
        assert_eq!(quiet, 171);
        assert_eq!(run.hit(&[40, 500, 2]), Turn::default());
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
        // 100 s: one is earned, half of a second's share was there, and one look may be too much.
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
        let mut throttle = Throttle::new(SHARE, Vec::new(), Vec::new());
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
