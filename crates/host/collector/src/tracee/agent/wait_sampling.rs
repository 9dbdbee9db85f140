//! Keeps the cost of watching waits for locks within the budget. Computes how many waits each thread counts without
//! timing them, between two timed waits (`tiptoe_futex::gaps`).
//!
//! The cost of counting is subtracted from the budget first. The rest, but at least a tenth of the budget, is for
//! timing, in equal parts for all threads. If a thread needs less than its part, all its waits are timed, and the other
//! threads share the surplus.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tiptoe_attach::link::Link;
use tiptoe_futex::activities::Activities;
use tiptoe_futex::gaps::{Beginning, Gaps, MOST};
use tiptoe_price::clock;
use tiptoe_wire::Words;
use tiptoe_wire::futex::{WIDTH, activity, head};

use crate::tracee::Plan;

/// The costs of a wait that is only counted, and of a wake.
const COUNTED_NS: f64 = 15.0;
const WAKE_NS: f64 = 9.0;
/// The additional cost of timing a wait, without its two readings of the clock.
const TIMED_NS: f64 = 5.0;
/// A process is assumed to use at least this part of a CPU.
const LEAST_USED: f64 = 0.1;
const LEAST_TIMED: f64 = 0.1;
/// Waits and earnings before this time do not affect sampling. Must be below a second, because the cost must stay
/// within the budget over each second.
const MEMORY: Duration = Duration::from_millis(200);

pub struct Thinning {
    pub share: f64,
    timed_ns: f64,
    known: RefCell<BudgetState>,
}

struct BudgetState {
    /// The time of the last look, and the ticks of the last two looks.
    at: Instant,
    ticks: [u64; 2],
    used: Duration,
    earned_ns: f64,
    threads: BTreeMap<u32, Waiter>,
}

/// A thread, identified by its slab (the thread's counters).
#[derive(Default)]
struct Waiter {
    /// Totals at the last look.
    waits: u64,
    wakes: u64,
    /// Decaying sums, in which older waits and wakes weigh less.
    recent_waits: f64,
    recent_wakes: f64,
    thinned: bool,
    gap: u64,
    /// The waits in progress at the last look, identified by their beginnings.
    on: [Option<u64>; activity::DEPTH as usize],
}

impl Thinning {
    /// `used` is the process's CPU time so far. `None` if waits are not watched, or their cost is unlimited.
    pub fn of(plan: &Plan, used: Duration) -> Option<Thinning> {
        let share = plan.request.budget_share().filter(|_| plan.locks())?;
        let now = clock::ticks();
        let known = BudgetState {
            at: Instant::now(),
            ticks: [now; 2],
            used,
            earned_ns: 0.0,
            threads: BTreeMap::new(),
        };
        Some(Thinning {
            share,
            timed_ns: TIMED_NS + 2.0 * clock::reading_ns(),
            known: RefCell::new(known),
        })
    }

    pub fn look(&self, used: Duration, link: &Link) {
        let (at, now) = (Instant::now(), clock::ticks());
        let mut known = self.known.borrow_mut();
        let passed = at.saturating_duration_since(known.at);
        let keep = 1.0 - (passed.as_secs_f64() / MEMORY.as_secs_f64()).min(1.0);
        let used_ns = used.saturating_sub(known.used).as_nanos() as f64;
        let base = used_ns.max(LEAST_USED * passed.as_nanos() as f64);
        known.earned_ns = known.earned_ns * keep + base * self.share;
        let data = link.data();
        let words = data.entered().filter_map(|slab| {
            let words = data.slab_words(slab, link.lock_slot, WIDTH)?;
            Some((slab, words))
        });
        let before = known.ticks;
        for (slab, words) in words.clone() {
            let waiter = known.threads.entry(slab).or_default();
            waiter.look(words, keep);
            waiter.find_again(words, before);
        }
        let fair = known.fair(self.timed_ns);
        for (slab, words) in words {
            if let Some(waiter) = known.threads.get_mut(&slab) {
                waiter.widen(words, fair);
            }
        }
        (known.at, known.used) = (at, used);
        known.ticks = [before[1], now];
    }
}

impl BudgetState {
    /// Returns how many recent waits of each thread may be timed, if timing a wait costs `timed_ns`.
    fn fair(&self, timed_ns: f64) -> f64 {
        let waiters = || self.threads.values();
        let counted = waiters()
            .map(|waiter| waiter.recent_waits * COUNTED_NS + waiter.recent_wakes * WAKE_NS)
            .sum::<f64>();
        let left = (self.earned_ns - counted).max(LEAST_TIMED * self.earned_ns);
        let waits = waiters().map(|waiter| waiter.recent_waits);
        level(waits.collect(), left / timed_ns)
    }
}

/// Returns how much each thread may get, so that all threads together get at most `all`.
fn level(mut wanted: Vec<f64>, all: f64) -> f64 {
    wanted.sort_by(f64::total_cmp);
    let (mut left, count) = (all, wanted.len());
    for (served, wants) in wanted.into_iter().enumerate() {
        let each = left / (count - served) as f64;
        if wants > each {
            return each;
        }
        left -= wants;
    }
    f64::INFINITY
}

impl Waiter {
    fn look(&mut self, words: Words, keep: f64) {
        let [waits, wakes] = [head::WAITS, head::WAKES].map(|word| words.load(word as usize));
        let more = |now: u64, then: u64| now.saturating_sub(then) as f64;
        self.recent_waits = self.recent_waits * keep + more(waits, self.waits);
        self.recent_wakes = self.recent_wakes * keep + more(wakes, self.wakes);
        (self.waits, self.wakes) = (waits, wakes);
    }

    /// Marks the waits that the last look also found. If sampling skipped the beginning of such a wait, the beginning
    /// was between the last two looks (`before`), whose middle is the best estimate.
    fn find_again(&mut self, words: Words, before: [u64; 2]) {
        if !self.thinned {
            return;
        }
        let activities = Activities::new(words);
        let found = activities.beginnings();
        let middle = before[0] + before[1].saturating_sub(before[0]) / 2;
        for (index, (now, then)) in found.iter().zip(&self.on).enumerate() {
            let Some(word) = now.filter(|_| now == then) else {
                continue;
            };
            match Beginning::of(word) {
                Beginning::At(_) => activities.mark_seen(index, word, word),
                Beginning::Unknown => activities.mark_seen(index, word, middle),
                Beginning::LongAgo(_) => {}
            }
        }
        self.on = found;
    }

    fn widen(&mut self, words: Words, fair: f64) {
        let gap = gap(self.recent_waits, fair);
        // A gap is written even if unchanged, because a thread that took over the slab starts without a gap.
        if gap != self.gap || gap > 0 {
            Gaps::new(words).widen(gap);
        }
        self.gap = gap;
        self.thinned |= gap > 0;
    }
}

/// Returns how many waits to skip for each timed wait, so that about `fair` of `waits` are timed.
fn gap(waits: f64, fair: f64) -> u64 {
    match waits > fair {
        true => (waits / fair - 1.0).ceil().min(MOST as f64) as u64,
        false => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use tiptoe_wire::futex::ENTRY_WORDS;

    #[test]
    fn a_thread_that_wants_little_gets_it_and_the_others_share_equally() {
        let check = |wanted: &[f64], all, each: f64| {
            assert_eq!(level(wanted.to_vec(), all), each, "{wanted:?} {all}");
        };
        check(&[], 1.0, f64::INFINITY);
        check(&[3.0, 4.0], 7.0, f64::INFINITY);
        check(&[900.0, 1.0, 800.0], 101.0, 50.0);
        check(&[900.0, 1.0, 20.0], 101.0, 80.0);
        check(&[900.0], 0.0, 0.0);
    }

    #[test]
    fn gaps() {
        for (waits, fair, want) in [
            (10.0, f64::INFINITY, 0),
            (10.0, 10.0, 0),
            (0.0, 0.0, 0),
            (11.0, 10.0, 1),
            (100.0, 10.0, 9),
            (1e9, 10.0, MOST),
            (1.0, 0.0, MOST),
        ] {
            assert_eq!(gap(waits, fair), want, "{waits} {fair}");
        }
    }

    fn known(earned_ns: f64, waits: &[f64]) -> BudgetState {
        let waiter = |waits: &f64| Waiter {
            recent_waits: *waits,
            recent_wakes: *waits,
            ..Waiter::default()
        };
        BudgetState {
            at: Instant::now(),
            ticks: [0; 2],
            used: Duration::ZERO,
            earned_ns,
            threads: (1..).zip(waits.iter().map(waiter)).collect(),
        }
    }

    #[test]
    fn only_a_thread_that_waits_over_and_over_is_thinned() {
        assert_eq!(known(1e7, &[1000.0; 64]).fair(20.0), f64::INFINITY);
        let fair = known(1e7, &[700_000.0, 700_000.0, 100.0]).fair(20.0);
        assert!((100.0..100_000.0).contains(&fair), "{fair}");
    }

    #[test]
    fn a_wait_that_is_found_twice_is_in_progress() {
        let room: Vec<_> = (0..ENTRY_WORDS).map(|_| AtomicU64::new(0)).collect();
        let words = Words::new(&room);
        let since = (head::ACTIVITIES + activity::SINCE) as usize;
        let mut waiter = Waiter {
            thinned: true,
            ..Waiter::default()
        };
        words.store(head::SPS as usize, 0x7000);
        words.store(since, activity::SKIPPED | 8);
        waiter.find_again(words, [0, 10]);
        words.store(since, activity::SKIPPED | 9);
        waiter.find_again(words, [10, 20]);
        assert_eq!(words.load(since), activity::SKIPPED | 9);
        waiter.find_again(words, [20, 30]);
        assert_eq!(words.load(since), activity::GOES_ON | 25);
        waiter.find_again(words, [30, 40]);
        assert_eq!(words.load(since), activity::GOES_ON | 25);
        words.store(since, 33);
        waiter.find_again(words, [40, 50]);
        waiter.find_again(words, [50, 60]);
        assert_eq!(words.load(since), activity::GOES_ON | 33);
    }
}
