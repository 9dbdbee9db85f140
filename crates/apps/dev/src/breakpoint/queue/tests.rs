//! Compares simulations of locks with queueing theory.

use tiptoe_breakpoint::{Geometry, Registers};
use tiptoe_schedule::simulate::Random;

use super::load::Pairs;
use super::locks::{Call, Costs, Load, Machine, Outcome, Ps};
use super::prices::{Holds, LockTimes, Prices};
use super::*;

struct OneLock {
    hold: Ps,
    think: fn(&mut Random) -> Ps,
}

impl Load for OneLock {
    fn next(&mut self, _: usize, random: &mut Random) -> Call {
        Call {
            outside: (self.think)(random),
            locks: 0..1,
            hold: self.hold,
            is_last: true,
            ..Call::default()
        }
    }
}

fn exponential(random: &mut Random) -> Ps {
    let unit = random.between(1, 1 << 32) as f64 / 4_294_967_296.0;
    (-unit.ln() * 1e6) as Ps
}

/// With these costs, only holding a lock takes time, and CPUs check a held lock for ever instead of sleeping.
const FREE: Costs = Costs {
    line: 0,
    look: 1,
    looks: 1 << 40,
    wake: 0,
    woken: 0,
};

fn one_lock(costs: &Costs, cpus: usize, hold: Ps, think: fn(&mut Random) -> Ps) -> Outcome {
    Machine::new(costs, cpus, 1, OneLock { hold, think }, 1).run(10_000, 1_000_000)
}

/// By Pollaczek and Khinchine, the average wait of calls that arrive at random and take equally long is `hold * load /
/// (2 * (1 - load))`, in any order of service.
#[test]
#[ignore = "nightly: a simulation of seconds"]
fn many_cpus_wait_as_long_as_queueing_theory_predicts() {
    for (load, cpus) in [(0.3, 2_000), (0.5, 2_000), (0.7, 2_000)] {
        let hold = (1e6 * load / f64::from(cpus)) as Ps;
        let seen = one_lock(&FREE, cpus as usize, hold, exponential);
        let waited = seen.waited as f64 / seen.done as f64;
        let theory = hold as f64 * load / (2.0 * (1.0 - load));
        assert!(
            (waited / theory - 1.0).abs() < 0.1,
            "{load}: {waited} for {theory}"
        );
    }
}

#[test]
#[ignore = "nightly: a simulation of seconds"]
fn a_lock_that_all_cpus_wait_for_is_always_held() {
    for cpus in [2, 8, 64] {
        let seen = one_lock(&FREE, cpus, 1_000_000, |_| 0);
        let held = seen.done as f64 * 1e6 / seen.time as f64;
        assert!((held - 1.0).abs() < 1e-3, "{cpus}: {held}");
        let waiting = seen.waited as f64 / (seen.time * cpus as u64) as f64;
        let theory = 1.0 - 1.0 / cpus as f64;
        assert!((waiting - theory).abs() < 1e-3, "{cpus}: {waiting}");
    }
}

#[test]
fn a_lone_cpu_never_waits() {
    let seen = one_lock(&FREE, 1, 1_000, exponential);
    assert_eq!((seen.waited, seen.slept), (0, 0));
    assert_eq!(seen.worked, seen.time);
}

#[test]
fn every_sleeper_is_woken() {
    let costs = Costs {
        looks: 1,
        wake: 500,
        woken: 2_000,
        ..FREE
    };
    for cpus in [2, 5, 50] {
        let seen = one_lock(&costs, cpus, 1_000_000, |_| 10_000);
        assert!(seen.slept > 0 && seen.done > 10_000, "{cpus}: {seen:?}");
        // At most one wake, which is short, is between two holds.
        let held = seen.done as f64 * 1e6 / seen.time as f64;
        assert!((0.98..=1.0).contains(&held), "{cpus}: {held}");
    }
}

fn prices() -> Prices {
    let held = |hold| LockTimes {
        hold,
        exchange: 4_000,
    };
    let holds = |of_cpu: [Ps; 4]| {
        let of_cpu = [1, 16, 64, 256].into_iter().zip(of_cpu.map(held));
        Holds::fixed(held(9_000), &of_cpu.collect::<Vec<_>>())
    };
    Prices {
        costs: Costs {
            line: 50_000,
            look: 20_000,
            looks: 100,
            wake: 1_000_000,
            woken: 5_000_000,
        },
        outside: 1_000,
        tiptoe: holds([30_000, 60_000, 160_000, 540_000]),
        global_mutex: holds([30_000, 50_000, 80_000, 190_000]),
        handed: 100_000,
        moved: 60_000,
    }
}

fn pairs(cpus: u32, shards: Option<u32>, cpu_targets: u32, seed: u64) -> Outcome {
    let geometry = Geometry::new(cpus, Registers::Mixed(4), PROCESS_RESERVATIONS).expect("sane");
    let geometry = shards.map_or(geometry, |shards| geometry.with_shards(shards));
    let prices = prices();
    let load = Pairs::new(&prices, &geometry, cpu_targets, 0, seed);
    let machine = Machine::new(&prices.costs, cpus as usize, load.locks(), load, seed);
    machine.run(50_000, 300_000)
}

#[test]
fn no_time_is_lost() {
    for cpu_targets in [0, 1, 10, 100] {
        for shards in [None, Some(1)] {
            let seen = pairs(16, shards, cpu_targets, 1);
            assert_eq!(seen.waited + seen.worked, 16 * seen.time);
            assert!(seen.done > 0, "{cpu_targets} {shards:?}");
        }
    }
}

#[test]
fn the_pair_of_a_single_cpu_takes_as_long_as_its_calls() {
    let seen = pairs(1, None, 0, 1);
    let pair = seen.time as f64 / seen.done as f64;
    let parts = 2.0 * (1_000.0 + 4_000.0 + 9_000.0 + 4_000.0);
    assert!((pair / parts - 1.0).abs() < 1e-3, "{pair} for {parts}");
}

#[test]
fn tasks_wait_under_one_mutex_but_not_in_their_own_shards() {
    let seen = pairs(64, Some(4_096), 0, 1);
    assert_eq!(seen.waited, 0, "{seen:?}");
    let seen = pairs(64, Some(1), 0, 1);
    let waiting = seen.waited as f64 / (64 * seen.time) as f64;
    assert!(waiting > 0.8, "{waiting}");
}

/// Regression: on 256 CPUs, a request for a CPU took 800 us, because it locked all shards. Under one mutex it took
/// 130 us.
#[test]
fn one_pair_of_a_hundred_for_a_cpu_takes_less_than_with_one_mutex() {
    for cpus in [2, 4, 8, 16, 64, 256] {
        let [ours, mutex] = [None, Some(1)].map(|shards| {
            let seen = pairs(cpus, shards, 1, 1);
            seen.time as f64 / seen.done as f64
        });
        assert!(ours < mutex, "{cpus} CPUs: {ours} and {mutex} ps");
    }
}

#[test]
fn the_same_seed_gives_the_same_answer() {
    let both = [7, 7].map(|seed| pairs(16, None, 10, seed));
    assert_eq!(both[0], both[1]);
    assert_ne!(both[0], pairs(16, None, 10, 8));
}

const QUEUE: Queue = Queue {
    cpus: 4,
    cpu_targets: Some(10),
    slots: 4,
    work_ns: 0,
    line_ns: Some(100.0),
    rounds: 1,
    ms: 2,
};

#[test]
fn a_simulation_spreads_as_far_as_its_inputs() {
    let task = LockTimes {
        hold: 900_000,
        exchange: 4_000,
    };
    let slow = Prices {
        global_mutex: Holds::fixed(task, &[(16, task)]),
        ..prices()
    };
    let row = |calibrations: &[Prices]| {
        let row = QUEUE.simulated(calibrations, Form::GlobalMutex, 16, 0);
        let row = row.expect("sane numbers");
        (row.value, row.spread.expect("a range"))
    };
    let ((low, none), (high, _)) = (row(&[prices()]), row(std::slice::from_ref(&slow)));
    let (middle, half) = row(&[prices(), slow]);
    assert!(none == 0.0 && high > 2.0 * low, "{low} {high}");
    assert!(
        middle - half <= 1.05 * low && 0.95 * high <= middle + half,
        "{middle} {half}"
    );
}

#[test]
fn both_forms_are_simulated_and_measured() {
    let table = QUEUE.run().expect("measured");
    let count = |what: &str| {
        let named = table.rows.iter().filter(|row| row.case.ends_with(what));
        named.count()
    };
    assert_eq!(count("simulated"), 2 * 3);
    assert!(count("measured") >= 2);
    assert!(table.rows.iter().all(|row| row.value > 0.0));
}
