//! Checks the events of every method that takes a lock.
#![cfg(not(tiptoe_loom))]

mod support;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use lock_api::{RwLockUpgradableReadGuard as Upgradable, RwLockWriteGuard as Write};
use support::{Fake, Holding, State, Waiting, locks_are, log, panics_at};
use tiptoe_lock::{Contended, Holds, Hook, MutexExt, Nothing, RwLockExt, UpgradeExt, Waits};

type Mutex<H> = lock_api::Mutex<Contended<Fake, H>, u32>;
type RwLock<H> = lock_api::RwLock<Contended<Fake, H>, u32>;

const LONG: Duration = Duration::from_secs(1);

/// A method that takes a lock: name, mode, whether it can give up, and the call.
type Way<L> = (&'static str, &'static str, bool, fn(&L) -> bool);

fn of_mutexes<H: Hook>() -> Vec<Way<Mutex<H>>> {
    vec![
        ("lock", "exclusive", false, |lock| {
            drop(lock.lock());
            true
        }),
        ("lock_nested", "exclusive", false, |lock| {
            drop(lock.lock_nested(2));
            true
        }),
        ("try_lock_for", "exclusive", true, |lock| {
            lock.try_lock_for(LONG).is_some()
        }),
        ("try_lock_until", "exclusive", true, |lock| {
            lock.try_lock_until(5).is_some()
        }),
        ("lock_killable", "exclusive", true, |lock| {
            let mut checks = 0;
            let cancelled = || {
                checks += 1;
                checks > 3
            };
            lock.lock_killable(cancelled).is_some()
        }),
    ]
}

fn cancelled_after(times: u32) -> impl FnMut() -> bool {
    let mut left = times;
    move || {
        left = left.saturating_sub(1);
        left == 0
    }
}

fn of_rwlocks<H: Hook>() -> Vec<Way<RwLock<H>>> {
    vec![
        ("read", "shared", false, |lock| {
            drop(lock.read());
            true
        }),
        ("write", "exclusive", false, |lock| {
            drop(lock.write());
            true
        }),
        ("upgradable_read", "upgradable", false, |lock| {
            drop(lock.upgradable_read());
            true
        }),
        ("read_recursive", "shared, recursive", false, |lock| {
            drop(lock.read_recursive());
            true
        }),
        ("read_nested", "shared", false, |lock| {
            drop(lock.read_nested(1));
            true
        }),
        ("write_nested", "exclusive", false, |lock| {
            drop(lock.write_nested(1));
            true
        }),
        ("upgradable_read_nested", "upgradable", false, |lock| {
            drop(lock.upgradable_read_nested(1));
            true
        }),
        ("try_read_for", "shared", true, |lock| {
            lock.try_read_for(LONG).is_some()
        }),
        ("try_read_until", "shared", true, |lock| {
            lock.try_read_until(5).is_some()
        }),
        ("try_write_for", "exclusive", true, |lock| {
            lock.try_write_for(LONG).is_some()
        }),
        ("try_write_until", "exclusive", true, |lock| {
            lock.try_write_until(5).is_some()
        }),
        (
            "try_read_recursive_for",
            "shared, recursive",
            true,
            |lock| lock.try_read_recursive_for(LONG).is_some(),
        ),
        (
            "try_read_recursive_until",
            "shared, recursive",
            true,
            |lock| lock.try_read_recursive_until(5).is_some(),
        ),
        ("try_upgradable_read_for", "upgradable", true, |lock| {
            lock.try_upgradable_read_for(LONG).is_some()
        }),
        ("try_upgradable_read_until", "upgradable", true, |lock| {
            lock.try_upgradable_read_until(5).is_some()
        }),
        ("read_killable", "shared", true, |lock| {
            lock.read_killable(cancelled_after(3)).is_some()
        }),
        ("write_killable", "exclusive", true, |lock| {
            lock.write_killable(cancelled_after(3)).is_some()
        }),
        ("upgradable_read_killable", "upgradable", true, |lock| {
            lock.upgradable_read_killable(cancelled_after(3)).is_some()
        }),
    ]
}

/// Makes the upgradable guard without taking the raw lock, so that only the upgrade can wait.
fn of_upgrades<H: Hook>() -> Vec<Way<RwLock<H>>> {
    fn upgradable<H: Hook>(lock: &RwLock<H>) -> Upgradable<'_, Contended<Fake, H>, u32> {
        // SAFETY: no other guard of this fake lock exists.
        unsafe { lock.make_upgradable_guard_unchecked() }
    }
    vec![
        ("upgrade", "upgrade", false, |lock| {
            drop(Upgradable::upgrade(upgradable(lock)));
            true
        }),
        ("try_upgrade_for", "upgrade", true, |lock| {
            Upgradable::try_upgrade_for(upgradable(lock), LONG).is_ok()
        }),
        ("try_upgrade_until", "upgrade", true, |lock| {
            Upgradable::try_upgrade_until(upgradable(lock), 5).is_ok()
        }),
        ("upgrade_killable", "upgrade", true, |lock| {
            UpgradeExt::upgrade_killable(upgradable(lock), cancelled_after(3)).is_ok()
        }),
    ]
}

fn events() -> Vec<String> {
    let all = log().into_iter();
    all.filter(|line| !line.starts_with("raw")).collect()
}

fn waits_are_reported<L>(lock: &L, ways: Vec<Way<L>>) {
    for (name, mode, gives_up, way) in ways {
        let run = |state| {
            log();
            locks_are(state);
            catch_unwind(AssertUnwindSafe(|| way(lock))).ok()
        };
        let begin = format!("begin {mode}");
        let end = |outcome: &str| format!("end {mode}, {outcome}");
        assert_eq!(run(State::Free), Some(true), "{name}");
        assert_eq!(events(), [""; 0], "{name}: free");
        assert_eq!(run(State::Taken), Some(true), "{name}");
        assert_eq!(events(), [begin.clone(), end("acquired")], "{name}: taken");
        assert_eq!(run(State::Kept), Some(!gives_up), "{name}");
        let outcome = match (gives_up, name.ends_with("killable")) {
            (false, _) => "acquired",
            (_, false) => "timed out",
            (_, true) => "cancelled",
        };
        assert_eq!(events(), [begin.clone(), end(outcome)], "{name}: given up");
        assert_eq!(run(State::Broken), None, "{name}");
        assert_eq!(events(), [begin.clone(), end("panicked")], "{name}: broken");
        for panics in [begin.clone(), end("acquired")] {
            panics_at(Some(&panics));
            assert_eq!(run(State::Taken), Some(true), "{name}: {panics}");
            assert_eq!(
                events(),
                [begin.clone(), end("acquired")],
                "{name}: {panics}"
            );
        }
    }
}

#[test]
fn waits_for_mutexes_are_reported() {
    waits_are_reported(&Mutex::<Waiting>::new(0), of_mutexes());
}

#[test]
fn waits_for_rwlocks_are_reported() {
    waits_are_reported(&RwLock::<Waiting>::new(0), of_rwlocks());
    waits_are_reported(&RwLock::<Waiting>::new(0), of_upgrades());
}

#[test]
fn of_two_hooks_each_begins_and_ends() {
    let lock = Mutex::<(Waiting, Waiting)>::new(0);
    let (begin, end) = ("begin exclusive", "end exclusive, acquired");
    locks_are(State::Taken);
    for panics in [None, Some(begin), Some(end)] {
        panics_at(panics);
        drop(lock.lock());
        assert_eq!(log(), [begin, begin, end, end, "raw unlock"]);
    }
}

fn holds_are_reported<L>(lock: &L, ways: Vec<Way<L>>) {
    for (name, mode, gives_up, way) in ways {
        for (state, taken) in [(State::Free, true), (State::Kept, !gives_up)] {
            log();
            locks_are(state);
            assert_eq!(way(lock), taken, "{name}");
            let held = match mode {
                "upgrade" => "exclusive",
                "shared, recursive" => "shared",
                other => other,
            };
            let depth = match name {
                "lock_nested" => 2,
                name => usize::from(name.ends_with("nested")),
            };
            let mut all = vec![format!("wants {mode} at {depth}")];
            match (taken, mode) {
                (true, _) => all.extend([format!("has {mode} by Wait"), format!("gives {held}")]),
                (false, "upgrade") => all.push("gives upgradable".into()),
                (false, _) => {}
            }
            assert_eq!(events(), all, "{name}: {state:?}");
        }
    }
}

#[test]
fn each_acquisition_is_reported() {
    holds_are_reported(&Mutex::<Holding>::new(0), of_mutexes());
    holds_are_reported(&RwLock::<Holding>::new(0), of_rwlocks());
    holds_are_reported(&RwLock::<Holding>::new(0), of_upgrades());
    holds_are_reported(
        &Mutex::<(Holding, tiptoe_lock::Waits)>::new(0),
        of_mutexes(),
    );
}

#[test]
fn a_try_is_no_request_and_never_waits() {
    let lock = RwLock::<(Holding, Waiting)>::new(0);
    for (state, taken) in [(State::Free, true), (State::Taken, false)] {
        locks_are(state);
        assert_eq!(lock.try_read().is_some(), taken);
        assert_eq!(lock.try_write().is_some(), taken);
        assert_eq!(lock.try_read_recursive().is_some(), taken);
        assert_eq!(lock.try_upgradable_read().is_some(), taken);
    }
    locks_are(State::Free);
    let expected = [
        ("shared", "shared"),
        ("exclusive", "exclusive"),
        ("shared, recursive", "shared"),
        ("upgradable", "upgradable"),
    ];
    let expected =
        expected.map(|(mode, held)| [format!("has {mode} by Try"), format!("gives {held}")]);
    assert_eq!(events(), expected.concat());
}

#[test]
fn downgrades_and_fair_unlocks_are_reported() {
    locks_are(State::Free);
    let lock = RwLock::<Holding>::new(0);
    let writing = lock.write();
    let reading = Write::downgrade_to_upgradable(writing);
    let reading = Upgradable::downgrade(reading);
    lock_api::RwLockReadGuard::unlock_fair(reading);
    let expected = [
        "wants exclusive at 0",
        "has exclusive by Wait",
        "exclusive to upgradable",
        "raw downgrade_to_upgradable",
        "upgradable to shared",
        "raw downgrade_upgradable",
        "gives shared",
        "raw unlock_shared_fair",
    ];
    assert_eq!(log(), expected);
    drop(Write::downgrade(lock.write()));
    assert!(log().contains(&"exclusive to shared".to_owned()));
    let mutex = Mutex::<Holding>::new(0);
    lock_api::MutexGuard::unlock_fair(mutex.lock());
    assert_eq!(log()[2..], ["gives exclusive", "raw unlock_fair"]);
}

#[test]
fn bumps_are_reported() {
    let lock = RwLock::<Waiting>::new(0);
    locks_are(State::Free);
    let (mut writing, mutex) = (lock.write(), Mutex::<Waiting>::new(0));
    let mut locked = mutex.lock();
    locks_are(State::Taken);
    Write::bump(&mut writing);
    lock_api::MutexGuard::bump(&mut locked);
    let waits = ["begin exclusive", "end exclusive, acquired"];
    assert_eq!(events(), [waits, waits].concat());
}

#[test]
fn a_hook_that_panics_changes_nothing() {
    locks_are(State::Free);
    let lock = RwLock::<(Holding, Holding)>::new(0);
    let run = || {
        drop(Write::downgrade(lock.write()));
        log()
    };
    let whole = run();
    assert_eq!(whole.len(), 10);
    for words in whole.iter().filter(|words| !words.starts_with("raw")) {
        panics_at(Some(words));
        assert_eq!(run(), whole, "{words}");
    }
}

thread_local! {
    static SITES: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

#[test]
fn call_sites_are_the_program_s() {
    struct Here;
    impl Hook for Here {
        const INIT: Self = Here;
        const WAITS: bool = true;
        fn contention_begin(&self, lock: &tiptoe_lock::Lock, _: tiptoe_lock::Mode) {
            SITES.with(|sites| sites.borrow_mut().push(lock.site.file()));
        }
    }
    locks_are(State::Taken);
    let (mutex, lock) = (Mutex::<Here>::new(0), RwLock::<Here>::new(0));
    let mutexes = of_mutexes().into_iter();
    let mut taken: Vec<bool> = mutexes.map(|(.., way)| way(&mutex)).collect();
    let ways = of_rwlocks().into_iter().chain(of_upgrades());
    taken.extend(ways.map(|(.., way)| way(&lock)));
    assert_eq!(taken, [true; 27]);
    let sites = SITES.take();
    assert_eq!(sites, [file!()].repeat(27));
}

#[test]
fn a_free_lock_is_taken_without_asking_to_cancel() {
    fn check<H: Hook>() {
        let (mutex, lock) = (Mutex::<H>::new(0), RwLock::<H>::new(0));
        assert!(mutex.lock_killable(|| true).is_some());
        assert!(lock.read_killable(|| true).is_some());
        assert!(lock.write_killable(|| true).is_some());
        assert!(lock.upgradable_read_killable(|| true).is_some());
        assert!(UpgradeExt::upgrade_killable(lock.upgradable_read(), || true).is_ok());
    }
    check::<Nothing>();
    check::<Holds>();
    check::<Waits>();
}
