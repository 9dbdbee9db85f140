//! Runs the BPF programs on made-up begins and ends, some without a counterpart.

use aya::TestRun;
use aya::programs::{Program, RawTracePointRunOptions};
use tiptoe_sys::host::limits;

use super::{Outcome, WaitDrops, Waits, WaitsWanted};
use tiptoe_event::WaitSelection;

const SPIN: u64 = 1;
const READER: u64 = 2;
const WRITER: u64 = 4;
const MUTEX: u64 = 32;
const ANY: u64 = 0;

const LOCK: u64 = 0x1000;
const OTHER: u64 = 0x2000;

#[derive(Clone, Copy)]
enum LockReport {
    Begin(u64, u64),
    End(u64, i32),
}
use LockReport::{Begin, End};

fn run(watched: WaitSelection, reports: &[LockReport]) -> Option<Waits> {
    let loaded = Waits::load(&WaitsWanted {
        watched,
        pids: None,
        by_thread: false,
        by_lock: true,
    });
    let mut waits = match loaded {
        Ok(waits) => waits,
        Err(error) => {
            crate::skipped::skipped("waits for kernel locks", &error.to_string());
            return None;
        }
    };
    limits::stay_on_one_cpu().expect("a CPU");
    for report in reports {
        let (name, lock, rest) = match *report {
            Begin(lock, flags) => ("contention_begin", lock, flags),
            End(lock, answer) => ("contention_end", lock, i64::from(answer).cast_unsigned()),
        };
        let Some(Program::RawTracePoint(program)) = waits.bpf.program_mut(name) else {
            panic!("no program {name}");
        };
        let mut options = RawTracePointRunOptions::default();
        options.args[..2].copy_from_slice(&[lock, rest]);
        program.test_run(options).expect("the program runs");
    }
    Some(waits)
}

fn check(reports: &[LockReport], rows: &[(&str, Outcome, u64)], dropped: WaitDrops, waiting: u64) {
    let Some(waits) = run(WaitSelection::Contended, reports) else {
        return;
    };
    let found = waits.read().expect("rows");
    let mut found: Vec<_> = found
        .iter()
        .map(|row| {
            let traits = row.key.traits;
            assert_eq!(row.waited.times().total(), row.waited.count);
            (traits.kind(), traits.outcome(), row.waited.count)
        })
        .collect();
    found.sort_unstable();
    assert_eq!(found, rows);
    let drops = waits.drops().expect("drops");
    let no_stack = drops.no_stack;
    assert_eq!(
        drops,
        WaitDrops {
            no_stack,
            ..dropped
        }
    );
    assert_eq!(waits.waiting().expect("who waits"), waiting);
    assert_eq!(waits.times().expect("times").runs, reports.len() as u64);
}

const ACQUIRED: Outcome = Outcome::Acquired;

#[test]
fn a_mutex_that_begins_again_waits_once() {
    let reports = [
        Begin(LOCK, MUTEX | SPIN),
        Begin(LOCK, MUTEX),
        Begin(LOCK, MUTEX | SPIN),
        End(LOCK, 0),
    ];
    check(&reports, &[("mutex", ACQUIRED, 1)], WaitDrops::default(), 0);
}

#[test]
fn locks_whose_flags_exclude_an_mmap_lock_are_skipped_at_once() {
    let others = [0, SPIN, MUTEX, MUTEX | SPIN, READER | SPIN, WRITER | SPIN];
    let reports = others.map(|flags| Begin(LOCK, flags));
    let Some(waits) = run(WaitSelection::ContendedMmap, &reports) else {
        return;
    };
    assert_eq!(waits.times().expect("times").runs, 0);
    // The flags fit; only the address shows that the lock is not this process's mmap_lock.
    let waits = run(
        WaitSelection::ContendedMmap,
        &[Begin(LOCK, READER), Begin(LOCK, WRITER)],
    );
    let waits = waits.expect("loaded again");
    assert_eq!(waits.times().expect("times").runs, 2);
    assert!(waits.read().expect("rows").is_empty());
}

#[test]
fn a_wait_that_a_signal_ended_has_its_own_row() {
    let reports = [
        Begin(LOCK, READER),
        End(LOCK, -4),
        Begin(LOCK, READER),
        End(LOCK, 0),
    ];
    let rows = [("rwsem", ACQUIRED, 1), ("rwsem", Outcome::Failed, 1)];
    check(&reports, &rows, WaitDrops::default(), 0);
}

#[test]
fn an_end_without_a_begin_is_dropped() {
    let dropped = WaitDrops {
        no_begin: 2,
        ..WaitDrops::default()
    };
    let reports = [End(LOCK, 0), Begin(LOCK, WRITER), End(OTHER, 0)];
    check(&reports, &[], dropped, 1);
}

#[test]
fn a_spinner_that_begins_again_has_missed_an_end() {
    let dropped = WaitDrops {
        no_end: 1,
        ..WaitDrops::default()
    };
    let reports = [Begin(LOCK, SPIN), Begin(LOCK, SPIN), End(LOCK, 0)];
    check(&reports, &[("spinlock", ACQUIRED, 1)], dropped, 0);
}

#[test]
fn a_cpu_spins_for_four_locks_at_once() {
    let locks = [1, 2, 3, 4].map(|lock| lock << 12);
    let begins = locks.map(|lock| Begin(lock, SPIN));
    let ends = locks.map(|lock| End(lock, 0));
    let four = [begins, ends].concat();
    let rows = [("spinlock", ACQUIRED, 1); 4];
    check(&four, &rows, WaitDrops::default(), 0);
    let dropped = WaitDrops {
        no_end: 1,
        no_begin: 1,
        ..WaitDrops::default()
    };
    let fifth = [
        &begins[..],
        &[Begin(5 << 12, SPIN)],
        &ends,
        &[End(5 << 12, 0)],
    ]
    .concat();
    check(&fifth, &rows, dropped, 0);
}

#[test]
fn a_sleeping_wait_may_contain_a_spinning_one() {
    let reports = [
        Begin(LOCK, WRITER),
        Begin(OTHER, SPIN | READER),
        End(OTHER, 0),
        End(LOCK, 0),
    ];
    let rows = [("rwlock", ACQUIRED, 1), ("rwsem", ACQUIRED, 1)];
    check(&reports, &rows, WaitDrops::default(), 0);
}

/// A wait for a semaphore may contain a wait for its spinlock, at the same address.
#[test]
fn a_semaphore_is_no_spinlock() {
    let reports = [
        Begin(LOCK, ANY),
        Begin(LOCK, SPIN),
        End(LOCK, 0),
        End(LOCK, 0),
    ];
    let rows = [("semaphore", ACQUIRED, 1), ("spinlock", ACQUIRED, 1)];
    check(&reports, &rows, WaitDrops::default(), 0);
}
