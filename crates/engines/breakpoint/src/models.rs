//! Models of races between requests of tasks, CPUs and a debugger.
//!
//! A thread with a granted slot (debug register) adds 1 to the task's or CPU's note (a counter), checks the crate's
//! rule, and subtracts 1 before the release. Notes are read by adding 0, because loom's loads may return old values.

extern crate std;

use loom::sync::atomic::{AtomicU32 as Note, Ordering::Relaxed};
use loom::thread::{self, JoinHandle, spawn};
use std::sync::Arc;
use std::vec::Vec;

use tiptoe_sync::mutant::{AtomicU64, Edge, lose};

use crate::geometry::Layout;
use crate::primitive::Ordering::{Acquire, Release, SeqCst};
use crate::{Accounting, Error, Geometry, Kind, Registers, Request, Target, Wait};

/// A task under another lock than task 0.
const OTHER: u64 = 3;
const CPUS: u32 = 2;

struct Yields;

impl Wait for Yields {
    const LOOKS: u32 = 0;

    fn park(&self, _: &AtomicU64, _: u64) {
        thread::yield_now();
    }

    fn unpark(&self, _: &AtomicU64) {}

    fn now_ns(&self) -> u64 {
        0
    }
}

struct Shared {
    words: Vec<AtomicU64>,
    slots: u32,
    tasks: [Note; 2],
    cpus: [Note; CPUS as usize],
}

impl Shared {
    fn new(slots: u32) -> Arc<Shared> {
        let notes = || Note::new(0);
        let words = Self::geometry(slots).words();
        Arc::new(Shared {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            slots,
            tasks: [notes(), notes()],
            cpus: [notes(), notes()],
        })
    }

    fn geometry(slots: u32) -> Geometry {
        let geometry = Geometry::new(CPUS, Registers::Mixed(slots), 4).expect("sane");
        let geometry = geometry.with_shards(2);
        let layout = Layout::new(&geometry);
        assert_ne!(
            layout.shard_and_bucket(0).0,
            layout.shard_and_bucket(OTHER).0
        );
        geometry
    }

    fn ours(&self) -> Accounting<'_, Yields> {
        Accounting::new(Self::geometry(self.slots), &self.words, &Yields).expect("enough")
    }

    fn note(&self, request: &Request) -> &Note {
        match request.target {
            Target::Task { task, .. } => &self.tasks[usize::from(task == OTHER)],
            Target::Cpu(cpu) => &self.cpus[cpu as usize],
        }
    }

    fn check(&self) {
        let tasks = self
            .tasks
            .iter()
            .map(|note| note.fetch_add(0, Relaxed))
            .max();
        let cpus = self
            .cpus
            .iter()
            .map(|note| note.fetch_add(0, Relaxed))
            .max();
        let sum = tasks.unwrap_or(0) + cpus.unwrap_or(0);
        assert!(sum <= self.slots, "no slot is granted twice");
    }

    fn reserve(&self, request: &Request) -> bool {
        match self.ours().reserve(request) {
            Ok(()) => {
                self.note(request).fetch_add(1, Relaxed);
                self.check();
                true
            }
            Err(Error::NoSlot(_)) => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn release(&self, request: &Request) {
        self.note(request).fetch_sub(1, Relaxed);
        let done = self.ours().release(request);
        assert!(done.is_ok(), "no slot is lost");
    }

    fn pair(&self, request: Request) {
        if self.reserve(&request) {
            self.release(&request);
        }
    }

    fn check_end(&self) {
        assert!(self.ours().is_empty(), "no slot is lost");
    }
}

fn task(task: u64, cpu: Option<u32>) -> Request {
    Request::new(Target::Task { task, cpu }, Kind::Data, 1)
}

fn wide(cpu: u32) -> Request {
    Request::new(Target::Cpu(cpu), Kind::Data, 2)
}

fn run(
    shared: &Arc<Shared>,
    lost: Option<Edge>,
    act: impl FnOnce(&Shared) + Send + 'static,
) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    spawn(move || {
        lose(lost);
        act(&shared);
    })
}

fn pairs(one: Request, two: Request, lost: [Option<Edge>; 2]) {
    loom::model(move || {
        let shared = Shared::new(1);
        let thread = run(&shared, lost[0], move |shared| shared.pair(one));
        lose(lost[1]);
        shared.pair(two);
        lose(None);
        let failed = thread.join().is_err();
        assert!(!failed, "no slot is granted twice");
        shared.check_end();
    });
}

#[test]
fn two_tasks() {
    pairs(task(0, None), task(OTHER, None), [None; 2]);
}

#[test]
fn two_tasks_on_the_same_cpu() {
    pairs(task(0, Some(0)), task(OTHER, Some(0)), [None; 2]);
}

#[test]
fn a_task_twice() {
    pairs(task(0, None), task(0, Some(0)), [None; 2]);
}

#[test]
fn a_task_and_a_cpu() {
    pairs(task(0, None), wide(0), [None; 2]);
}

#[test]
fn a_task_on_a_cpu_and_that_cpu() {
    pairs(task(OTHER, Some(0)), wide(0), [None; 2]);
}

#[test]
fn a_cpu_twice() {
    pairs(wide(0), wide(0), [None; 2]);
}

/// Each mutant loses one [`Edge`], so that a slot is granted twice or lost.
macro_rules! mutants {
    ($($name:ident: $one:expr, $two:expr, $lost:expr;)*) => {$(
        #[test]
        #[should_panic(expected = "no slot is")]
        fn $name() {
            pairs($one, $two, $lost);
        }
    )*};
}

mutants! {
    mutant_task_without_fence: task(0, None), wide(0), [Some(Edge::Fence(SeqCst)), None];
    mutant_cpu_without_fence: task(0, None), wide(0), [None, Some(Edge::Fence(SeqCst))];
    mutant_task_on_a_cpu_without_fence:
        task(OTHER, Some(0)), wide(0), [Some(Edge::Fence(SeqCst)), None];
    mutant_cpu_of_a_task_without_fence:
        task(OTHER, Some(0)), wide(0), [None, Some(Edge::Fence(SeqCst))];
    mutant_same_cpu_without_acquire: wide(0), wide(0), [Some(Edge::Access(Acquire)), None];
    mutant_same_task_without_acquire:
        task(0, None), task(0, None), [Some(Edge::Access(Acquire)), None];
    mutant_additions_in_two_steps:
        task(0, Some(0)), task(OTHER, Some(0)), [Some(Edge::Exchange), None];
}

#[test]
fn two_requests_do_not_refuse_each_other() {
    for one in [task(0, None), task(0, Some(0))] {
        loom::model(move || {
            let shared = Shared::new(1);
            let thread = run(&shared, None, move |shared| {
                shared.reserve(&one);
            });
            shared.reserve(&wide(0));
            thread.join().expect("granted or refused");
            let notes = [&shared.tasks[0], &shared.cpus[0]];
            let granted: u32 = notes.iter().map(|note| note.fetch_add(0, Relaxed)).sum();
            assert_eq!(granted, 1, "one of both");
        });
    }
}

/// A task with one slot of a CPU takes and releases a second. A concurrent CPU-wide request for both must be refused,
/// because the task always holds the first.
fn a_task_moves_on_its_cpu(lost: [Option<Edge>; 2]) {
    loom::model(move || {
        let shared = Shared::new(2);
        let (first, second) = (
            task(0, Some(0)),
            Request::new(task(0, Some(0)).target, Kind::Data, 9),
        );
        let both = Request {
            weight: 2,
            ..wide(0)
        };
        assert!(shared.ours().reserve(&first).is_ok());
        let thread = run(&shared, lost[0], move |shared| {
            let ours = shared.ours();
            assert!(ours.reserve(&second).is_ok(), "no slot is missing");
            assert!(ours.release(&second).is_ok(), "no slot is lost");
        });
        lose(lost[1]);
        let refused = shared.ours().reserve(&both);
        lose(None);
        assert!(refused.is_err(), "no slot is granted twice");
        assert!(thread.join().is_ok(), "no slot is missing");
        assert!(shared.ours().release(&first).is_ok(), "no slot is lost");
        shared.check_end();
    });
}

#[test]
fn a_task_that_moves_is_always_seen() {
    a_task_moves_on_its_cpu([None; 2]);
}

macro_rules! moving_mutants {
    ($($name:ident: $lost:expr;)*) => {$(
        #[test]
        #[should_panic(expected = "no slot is")]
        fn $name() {
            a_task_moves_on_its_cpu($lost);
        }
    )*};
}

moving_mutants! {
    mutant_move_without_release_fence: [Some(Edge::Fence(Release)), None];
    mutant_move_without_release: [Some(Edge::Access(Release)), None];
    mutant_most_without_acquire_fence: [None, Some(Edge::Fence(Acquire))];
    mutant_most_without_acquire: [None, Some(Edge::Access(Acquire))];
}

#[test]
fn a_slot_is_never_free_during_modify() {
    loom::model(|| {
        let shared = Shared::new(1);
        let (old, beside) = (task(0, None), task(OTHER, Some(1)));
        assert!(shared.reserve(&old) && shared.reserve(&beside));
        let other = run(&shared, None, |shared| {
            assert!(!shared.reserve(&wide(0)), "modify never frees the slot");
        });
        let moved = task(0, Some(0));
        let ours = shared.ours();
        ours.modify(&old, &moved).expect("its own slot");
        let refused = ours.modify(&moved, &wide(1));
        assert!(matches!(refused, Err(Error::NoSlot(_))), "{refused:?}");
        ours.modify(&moved, &old).expect("its own slot");
        other.join().expect("refused");
        shared.release(&old);
        shared.release(&beside);
        shared.check_end();
    });
}

#[test]
fn a_debugger_races_with_a_task_or_a_cpu() {
    let (task, cpu) = (task(0, None), wide(0));
    for (tried, beside) in [(task, task), (task, cpu), (cpu, task), (cpu, cpu)] {
        loom::model(move || {
            let shared = Shared::new(1);
            let thread = run(&shared, None, move |shared| shared.pair(beside));
            let ours = shared.ours();
            let mut is_held = match ours.try_reserve(&tried) {
                Ok(()) => {
                    shared.note(&tried).fetch_add(1, Relaxed);
                    shared.check();
                    shared.note(&tried).fetch_sub(1, Relaxed);
                    true
                }
                Err(Error::NoSlot(_) | Error::Busy) => false,
                Err(error) => panic!("{error}"),
            };
            if is_held {
                is_held = ours.try_release(&tried).is_err();
            }
            thread.join().expect("a pair");
            if is_held {
                ours.try_release(&tried).expect("no lock is held");
            }
            shared.check_end();
        });
    }
}

#[test]
fn all_or_nothing_races_with_a_task() {
    loom::model(|| {
        let shared = Shared::new(1);
        let other = run(&shared, None, |shared| shared.pair(task(OTHER, None)));
        let ours = shared.ours();
        let held = || [0, 1].map(|cpu| ours.slots_held(Target::Cpu(cpu), Kind::Data));
        if ours.reserve_wide(Kind::Data, 1, 1).is_ok() {
            assert_eq!(held(), [1; CPUS as usize]);
            for cpu in 0..CPUS {
                let on = Request::new(Target::Cpu(cpu), Kind::Data, 1);
                ours.release(&on).expect("held");
            }
        } else {
            assert_eq!(held(), [0; CPUS as usize], "no part is held");
        }
        other.join().expect("a pair");
        shared.check_end();
    });
}
