//! Loom models of the lock wrapper and of the table of times. A *mutant*, a model with a mistake, must fail.

use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex as Std;
use std::vec::Vec;

use core::marker::PhantomData;
use core::panic::Location;
use core::time::Duration;

use lock_api::{GuardNoSend, MutexGuard, RawMutex, RawMutexTimed};
use loom::sync::Arc;
use loom::thread::{self, ThreadId, spawn, yield_now};
use tiptoe_sync::mutant::{AtomicU64, Edge, Ordering::*, lose};

use crate::acquisition::{Lock, Mode, Outcome};
use crate::contended::Contended;
use crate::ext::MutexExt;
use crate::hook::Hook;
use crate::kind::{Kind, MutexKind};
use crate::table::Table;
use crate::{Class, Unnamed};

/// `INIT` cannot be used, because loom's atomics are made at run time.
struct Raw<T = ()>(AtomicU64, PhantomData<fn() -> T>);

const FREE: u64 = 0;
const TAKEN: u64 = 1;
/// Makes waiting threads panic.
const BROKEN: u64 = 2;

// SAFETY: an exchange takes the mutex, so only one thread holds it.
unsafe impl<T> RawMutex for Raw<T> {
    const INIT: Self = panic!("made by hand");
    type GuardMarker = GuardNoSend;

    fn lock(&self) {
        while !self.try_lock() {
            assert_ne!(self.0.load(Relaxed), BROKEN, "the lock is broken");
            yield_now();
        }
    }

    fn try_lock(&self) -> bool {
        self.0
            .compare_exchange(FREE, TAKEN, Acquire, Relaxed)
            .is_ok()
    }

    unsafe fn unlock(&self) {
        self.0.store(FREE, Release);
    }
}

// SAFETY: as above.
unsafe impl<T> RawMutexTimed for Raw<T> {
    type Duration = Duration;
    type Instant = u32;

    fn try_lock_for(&self, _: Duration) -> bool {
        self.try_lock() || {
            yield_now();
            false
        }
    }

    fn try_lock_until(&self, _: u32) -> bool {
        self.try_lock_for(Duration::ZERO)
    }
}

#[derive(Default)]
struct RecordedEvents {
    all: Std<Vec<(ThreadId, Option<Outcome>)>>,
    panics: Std<Option<Option<Outcome>>>,
}

loom::lazy_static! {
    static ref RECORDED: RecordedEvents = RecordedEvents::default();
    static ref THREADS: Std<usize> = Std::new(0);
}

pub(crate) fn next_thread() -> usize {
    let mut threads = THREADS.lock().expect("never poisoned");
    *threads += 1;
    *threads
}

struct Recorder;

impl Recorder {
    fn note(what: Option<Outcome>) {
        let this = thread::current().id();
        RECORDED
            .all
            .lock()
            .expect("never poisoned")
            .push((this, what));
        let panics = *RECORDED.panics.lock().expect("never poisoned");
        assert_ne!(panics, Some(what), "the hook panics at this event");
    }
}

impl Hook for Recorder {
    const INIT: Self = Recorder;
    const WAITS: bool = true;

    fn contention_begin(&self, _: &Lock, _: Mode) {
        Recorder::note(None);
    }

    fn contention_end(&self, _: &Lock, _: Mode, outcome: Outcome, _: Duration) {
        Recorder::note(Some(outcome));
    }
}

type Modelled = Contended<Raw, Recorder>;
type Mutex = lock_api::Mutex<Modelled, u32>;
type Guard<'a> = MutexGuard<'a, Modelled, u32>;

struct World {
    mutex: Mutex,
    stop: AtomicU64,
}

// SAFETY: the mutex protects the data, and loom's atomics may be shared.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

type Take = for<'a> fn(&'a World) -> Option<Guard<'a>>;

fn plain(world: &World) -> Option<Guard<'_>> {
    Some(world.mutex.lock())
}

fn tried(world: &World) -> Option<Guard<'_>> {
    world.mutex.try_lock()
}

fn timed(world: &World) -> Option<Guard<'_>> {
    world.mutex.try_lock_for(Duration::ZERO)
}

fn killable(world: &World) -> Option<Guard<'_>> {
    world.mutex.lock_killable(|| world.stop.load(Relaxed) != 0)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Plain,
    Panics,
    /// Breaks the raw lock at its release, so that a waiting thread panics.
    Breaks,
    Cancels,
}

/// A thread takes, by `take`, a lock that another thread may hold. The hook panics at the event `panics`.
fn one_waits(holder: Holder, take: Take, panics: Option<Option<Outcome>>) {
    loom::model(move || {
        *RECORDED.panics.lock().expect("never poisoned") = panics;
        let raw = Raw(AtomicU64::new(FREE), PhantomData);
        let world = Arc::new(World {
            mutex: Mutex::from_raw(Contended::new(raw), 0),
            stop: AtomicU64::new(0),
        });
        let waiter = spawn({
            let world = Arc::clone(&world);
            move || {
                let work = || take(&world).map(|mut guard| *guard += 1).is_some();
                let taken = catch_unwind(AssertUnwindSafe(work));
                (thread::current().id(), taken.ok())
            }
        });
        let work = || {
            let mut guard = world.mutex.lock();
            *guard += 1;
            match holder {
                Holder::Plain => {}
                Holder::Panics => panic!("with the lock held"),
                Holder::Cancels => world.stop.store(1, Relaxed),
                Holder::Breaks => {
                    core::mem::forget(guard);
                    // SAFETY: this thread holds the lock, and forgot its guard.
                    unsafe { world.mutex.raw() }.raw().0.store(BROKEN, Relaxed);
                }
            }
        };
        let worked = catch_unwind(AssertUnwindSafe(work));
        assert_eq!(worked.is_err(), holder == Holder::Panics);
        let (waiter, taken) = waiter.join().expect("it catches its panics");
        let (theirs, mine): (Vec<_>, Vec<_>) = RECORDED
            .all
            .lock()
            .expect("never poisoned")
            .iter()
            .partition(|(thread, _)| *thread == waiter);
        for events in [&theirs, &mine] {
            let begun = |at: usize| events.get(at).is_some_and(|(_, what)| what.is_none());
            let ended = |at: usize| events.get(at).is_some_and(|(_, what)| what.is_some());
            let pairs = (0..events.len()).step_by(2);
            assert!(
                pairs.clone().all(|at| begun(at) && ended(at + 1)),
                "each begin has its end"
            );
        }
        let acquired = theirs.last().and_then(|(_, what)| *what);
        let as_recorded = match acquired {
            None => true,
            Some(Outcome::Acquired) => taken == Some(true),
            Some(Outcome::Panicked) => taken.is_none(),
            Some(_) => taken == Some(false),
        };
        assert!(
            as_recorded,
            "an end says what happened: {acquired:?} {taken:?}"
        );
        if holder != Holder::Breaks {
            let sum = world.mutex.try_lock().map(|guard| *guard);
            let sections = 1 + u32::from(taken == Some(true));
            assert_eq!(sum, Some(sections), "the lock is free again");
        }
    });
}

const WAYS: [Take; 4] = [plain, tried, timed, killable];

#[test]
fn model_each_begin_has_its_end() {
    for take in WAYS {
        one_waits(Holder::Plain, take, None);
    }
}

#[test]
fn model_a_wait_is_cancelled() {
    one_waits(Holder::Cancels, killable, None);
}

#[test]
fn model_a_holder_panics() {
    for take in WAYS {
        one_waits(Holder::Panics, take, None);
    }
}

#[test]
fn model_a_wait_panics() {
    one_waits(Holder::Breaks, plain, None);
}

#[test]
fn model_a_hook_panics() {
    for take in WAYS {
        for what in [None, Some(Outcome::Acquired), Some(Outcome::TimedOut)] {
            one_waits(Holder::Plain, take, Some(what));
        }
    }
    one_waits(Holder::Cancels, killable, Some(Some(Outcome::Cancelled)));
    one_waits(Holder::Breaks, plain, Some(Some(Outcome::Panicked)));
}

fn by_hand(world: &World, wait: impl Fn(&Raw) -> bool, end: impl Fn(bool)) -> Option<Guard<'_>> {
    // SAFETY: the guard takes over the lock if it was taken.
    unsafe {
        let raw = world.mutex.raw().raw();
        let taken = MutexKind::attempt(raw) || {
            Recorder::note(None);
            let taken = wait(raw);
            end(taken);
            taken
        };
        taken.then(|| world.mutex.make_guard_unchecked())
    }
}

fn lock(raw: &Raw) -> bool {
    raw.lock();
    true
}

#[test]
#[should_panic(expected = "each begin has its end")]
fn mutant_time_out_without_an_end() {
    let take: Take = |world| {
        let end = |taken| {
            if taken {
                Recorder::note(Some(Outcome::Acquired));
            }
        };
        by_hand(world, |raw| raw.try_lock_for(Duration::ZERO), end)
    };
    one_waits(Holder::Plain, take, None);
}

#[test]
#[should_panic(expected = "an end says what happened")]
fn mutant_time_out_taken_for_success() {
    let take: Take = |world| {
        let end = |_| Recorder::note(Some(Outcome::Acquired));
        by_hand(world, |raw| raw.try_lock_for(Duration::ZERO), end)
    };
    one_waits(Holder::Plain, take, None);
}

#[test]
#[should_panic(expected = "each begin has its end")]
fn mutant_wait_without_a_guard() {
    let take: Take = |world| by_hand(world, lock, |_| Recorder::note(Some(Outcome::Acquired)));
    one_waits(Holder::Breaks, take, None);
}

#[test]
#[should_panic(expected = "each begin has its end")]
fn mutant_cancel_without_an_end() {
    let take: Take = |world| {
        // SAFETY: the guard below takes over the lock if it was taken.
        let raw = unsafe { world.mutex.raw() }.raw();
        let mut left = !raw.try_lock();
        if left {
            Recorder::note(None);
        }
        while left {
            if world.stop.load(Relaxed) != 0 {
                return None;
            }
            left = !raw.try_lock_for(Duration::ZERO);
            if !left {
                Recorder::note(Some(Outcome::Acquired));
            }
        }
        // SAFETY: the lock was taken above.
        Some(unsafe { world.mutex.make_guard_unchecked() })
    };
    one_waits(Holder::Cancels, take, None);
}

#[test]
#[should_panic(expected = "each begin has its end")]
fn mutant_begin_that_panics_on() {
    let take: Take = |world| by_hand(world, lock, |_| Recorder::note(Some(Outcome::Acquired)));
    one_waits(Holder::Plain, take, Some(None));
}

#[test]
#[should_panic(expected = "an end says what happened")]
fn mutant_end_that_panics_on() {
    let take: Take = |world| by_hand(world, lock, |_| Recorder::note(Some(Outcome::Acquired)));
    one_waits(Holder::Plain, take, Some(Some(Outcome::Acquired)));
}

fn a_lock(address: usize) -> Lock {
    Lock {
        address,
        name: Unnamed::NAME,
        class: core::any::TypeId::of::<Unnamed>(),
        depth: 0,
        site: Location::caller(),
    }
}

fn two_add(locks: [usize; 2], writer: Option<Edge>, reader: Option<Edge>) {
    loom::model(move || {
        let table: &'static Table<2> = Box::leak(Box::new(Table::new()));
        let add = move |at: usize| {
            let time = Duration::from_nanos(1);
            let lock = a_lock(locks[at]);
            table.add(&lock, Mode::Exclusive, Outcome::Acquired, time);
        };
        let other = spawn(move || {
            lose(writer);
            add(0);
        });
        lose(reader);
        add(1);
        for row in table.rows() {
            assert!(locks.contains(&row.lock), "a key is whole");
        }
        lose(None);
        other.join().expect("added");
        let sum = |lock| {
            let rows = table.rows().filter(|row| row.lock == lock);
            rows.map(|row| row.times.total()).sum::<u64>()
        };
        let expected = |lock| locks.iter().filter(|other| **other == lock).count() as u64;
        assert!(
            locks.iter().all(|&lock| sum(lock) == expected(lock)),
            "no time is lost"
        );
        assert_eq!(table.missed(), 0);
    });
}

#[test]
fn model_nothing_is_lost_in_the_table() {
    two_add([8, 8], None, None);
    two_add([8, 16], None, None);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn mutant_ready_without_release() {
    two_add([8, 8], Some(Edge::Access(Release)), None);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn mutant_look_without_acquire() {
    two_add([8, 8], None, Some(Edge::Access(Acquire)));
}

#[test]
#[should_panic]
fn mutant_claim_in_two_steps() {
    two_add([8, 8], Some(Edge::Exchange), None);
}
