//! Checks that the lock-order validator reports each bad order and no good order.
//!
//! An order lists the steps of threads, which run one after another; ` / ` separates the threads. A step names a lock,
//! and locks it to write. A suffix changes this: `r` reads, `R` reads recursively, `u` reads upgradable, `?` only
//! tries, `^` upgrades, `v` downgrades to reading, `w` downgrades to upgradable. A leading `-` releases. `t` and `s`
//! are locks of one class; a digit is the depth.
#![cfg(all(feature = "order", feature = "parking_lot", not(tiptoe_loom)))]

mod support;

use std::mem::forget;
use std::sync::Mutex as Std;

use lock_api::{RwLockUpgradableReadGuard as Upgradable, RwLockWriteGuard as Write};
use support::{Fake, State, Waiting, locks_are};
use tiptoe_lock::{Class, Contended, Fault, Hook, MutexExt, Order, Report, RwLockExt, Unnamed};
use tiptoe_lock::{Mutex, on_report};

type Lock<H, C> = lock_api::RwLock<Contended<Fake, H, C>, ()>;

/// A lock that each test holds, because reports are global.
static ALONE: Std<()> = Std::new(());
static REPORTS: Std<Vec<Report>> = Std::new(Vec::new());

fn keep(report: &Report) {
    REPORTS.lock().expect("kept").push(report.clone());
}

fn reported(work: impl FnOnce()) -> Vec<Report> {
    on_report(keep);
    REPORTS.lock().expect("kept").clear();
    work();
    std::mem::take(&mut *REPORTS.lock().expect("kept"))
}

fn step<H: Hook, C: Class>(lock: &Lock<H, C>, what: &str) {
    // SAFETY: a fake lock protects only `()`, so a guard of any kind does no harm.
    unsafe {
        let upgradable = || lock.make_upgradable_guard_unchecked();
        let write = || lock.make_write_guard_unchecked();
        match what {
            "" => forget(lock.write()),
            "r" => forget(lock.read()),
            "R" => forget(lock.read_recursive()),
            "u" => forget(lock.upgradable_read()),
            "?" => forget(lock.try_write()),
            "r?" => forget(lock.try_read()),
            "R?" => forget(lock.try_read_recursive()),
            "u?" => forget(lock.try_upgradable_read()),
            "^" => forget(Upgradable::upgrade(upgradable())),
            "^?" => forget(Upgradable::try_upgrade(upgradable()).ok()),
            "v" => forget(Write::downgrade(write())),
            "w" => forget(Write::downgrade_to_upgradable(write())),
            "uv" => forget(Upgradable::downgrade(upgradable())),
            "-" => lock.force_unlock_write(),
            "-r" => lock.force_unlock_read(),
            "0" | "1" | "2" => forget(lock.write_nested(depth(what))),
            "r0" | "r1" => forget(lock.read_nested(depth(&what[1..]))),
            "u0" | "u1" => forget(lock.upgradable_read_nested(depth(&what[1..]))),
            other => panic!("no step: {other}"),
        }
    }
}

fn depth(text: &str) -> u8 {
    text.parse().expect("a depth")
}

fn run<H: Hook + Sync + Send, C: Class>(order: &str, state: State) -> Vec<Fault> {
    let free: [Lock<H, Unnamed>; 5] = std::array::from_fn(|_| Lock::new(()));
    let classed: [Lock<H, C>; 2] = std::array::from_fn(|_| Lock::new(()));
    let reports = reported(|| {
        for thread in order.split(" / ") {
            let work = || {
                for word in thread.split(' ') {
                    let tries = word.ends_with('?');
                    locks_are(if tries { State::Free } else { state });
                    let (sign, word) = word
                        .strip_prefix('-')
                        .map_or(("", word), |word| ("-", word));
                    let what = format!("{sign}{}", &word[1..]);
                    match word.as_bytes()[0] {
                        b't' => step(&classed[0], &what),
                        b's' => step(&classed[1], &what),
                        letter => step(&free[usize::from(letter - b'a')], &what),
                    }
                }
            };
            std::thread::scope(|scope| scope.spawn(work).join().expect("no step panics"));
        }
    });
    reports.into_iter().map(|report| report.fault).collect()
}

fn check<const AT: usize>(order: &str, expected: &[Fault]) {
    /// A class for each run, because the graph never forgets a class.
    struct Way<const AT: usize, const WAY: usize>;
    impl<const AT: usize, const WAY: usize> Class for Way<AT, WAY> {
        const NAME: &'static str = "tree";
    }
    let found = run::<Order, Way<AT, 0>>(order, State::Free);
    assert_eq!(found, expected, "{order}: the bare way");
    let found = run::<(Waiting, Order), Way<AT, 1>>(order, State::Free);
    assert_eq!(found, expected, "{order}: the try took it");
    let found = run::<(Waiting, Order), Way<AT, 2>>(order, State::Taken);
    assert_eq!(found, expected, "{order}: contended");
}

macro_rules! orders {
    ($($order:literal: $($fault:ident)?;)+) => {
        let mut orders: Vec<fn()> = Vec::new();
        $(orders.push(|| check::<{ line!() as usize }>($order, &[$(Fault::$fault)?]));)+
        let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        orders.into_iter().for_each(|order| order());
    };
}

#[test]
fn good_orders_are_not_reported() {
    orders! {
        "a b / a b":;
        "a b / b":;
        "a b / b c / a c":;
        "a -a b / b -b a":;
        "a b -b -a c / c":;
        // Four edges of a ring of five.
        "a b / b c / c d / d e":;
        // A try never waits.
        "a b? / b a?":;
        "a b? / b a":;
        "a b / b a?":;
        "ar br? / br ar?":;
        "au bu? / bu au?":;
        // A recursive reader waits only for writers.
        "ar aR":;
        "aR aR aR":;
        "au aR":;
        "ar bR / br aR":;
        "a bR / br aR":;
        "au bR / b aR":;
        "ar b aR / a b":;
        // An upgrade waits only for readers.
        "au a^":;
        "au b a^ / au b a^":;
        "au b a^ / a b":;
        "au b a^? / ar b":;
        // A downgraded lock is held to read.
        "a av bR / b aR":;
        "au auv bR / b aR":;
        "a aw a^":;
        // Depths state an order.
        "t0 s1 / s0 t1":;
        "t0 s1 a / s0 t2 a":;
        "tr0 sR":;
    }
}

#[test]
fn bad_orders_are_reported_once() {
    orders! {
        "a b / b a": Inversion;
        "a b / b a / b a / a b": Inversion;
        "a b -a -b / b a": Inversion;
        "a b / b c / c d / d e / e a": Inversion;
        "a b / b c / c a": Inversion;
        // A lock taken by a try is held.
        "a? b / b? a": Inversion;
        "a b? c / c b": Inversion;
        // A waiting writer blocks readers.
        "ar br / br ar": Inversion;
        "ar b / b ar": Inversion;
        "ar b / b a": Inversion;
        "au b / b au": Inversion;
        "a bR / b aR": Inversion;
        "au b a^ / ar b": Inversion;
        "ar b / au b a^": Inversion;
        "au a^ bR / b aR": Inversion;
        "a av b / b a": Inversion;
        "a av b / b ar": Inversion;
        "a aw b / b au": Inversion;
        "au auv b / b a": Inversion;
        "a a": Recursion;
        "ar a": Recursion;
        "ar ar": Recursion;
        "a ar": Recursion;
        "a aR": Recursion;
        "au au": Recursion;
        "au ar": Recursion;
        "au aR a^": Recursion;
        "a? a": Recursion;
        "t0 s0": SameClass;
        "tr0 sr0": SameClass;
        "t0 s1 / t1 s0": Inversion;
        "t0 s1 a / a s0": Inversion;
    }
}

tiptoe_lock::class! {
    One = "one";
    Two = "two"
}

static ONE: Mutex<u32, Order, One> = Mutex::new(1);
static TWO: Mutex<u32, Order, Two> = Mutex::new(2);

#[inline(never)]
fn takes_one_then_two() -> u32 {
    let one = ONE.lock();
    *one + *TWO.lock()
}

#[inline(never)]
fn takes_two_then_one() -> u32 {
    let two = TWO.lock();
    *two + *ONE.lock()
}

#[test]
fn a_report_names_both_call_sites_and_both_stacks() {
    let _alone = ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let reports = reported(|| {
        let first = std::thread::Builder::new().name("first".into());
        let first = first.spawn(takes_one_then_two).expect("a thread");
        assert_eq!(first.join().expect("it ends"), 3);
        assert_eq!(takes_two_then_one(), 3);
        assert_eq!(takes_two_then_one(), 3);
    });
    let [report] = &reports[..] else {
        panic!("{reports:?}");
    };
    let [now, before] = &report.steps[..] else {
        panic!("{report}");
    };
    let names = |step: &tiptoe_lock::Step| (step.held_lock.name, step.wanted_lock.name);
    assert_eq!(
        (names(now), names(before)),
        (("two", "one"), ("one", "two"))
    );
    let lines =
        |step: &tiptoe_lock::Step| step.wanted_lock.site.line() - step.held_lock.site.line();
    assert_eq!(
        (lines(now), lines(before), before.thread.as_str()),
        (1, 1, "first")
    );
    let text = report.to_string();
    for words in [
        "lock order inversion",
        "takes_one_then_two",
        "takes_two_then_one",
        "thread `first`",
        &now.held_lock.site.to_string(),
        &now.wanted_lock.site.to_string(),
        &before.held_lock.site.to_string(),
        &before.wanted_lock.site.to_string(),
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn a_lock_released_by_another_thread_is_not_held() {
    let _alone = ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let [a, b] = [(); 2].map(|()| Mutex::<u32, Order>::new(0));
    let reports = reported(|| {
        forget(a.lock());
        // SAFETY: the lock was taken above, and its guard forgotten.
        std::thread::scope(|scope| scope.spawn(|| unsafe { a.force_unlock() }).join())
            .expect("it unlocks");
        drop(b.lock());
        let _b = b.lock();
        drop(a.lock());
    });
    assert!(reports.is_empty(), "{reports:?}");
}

#[test]
fn a_lock_is_forgotten_with_its_orders() {
    let _alone = ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let other = Mutex::<u32, Order>::new(0);
    let reports = reported(|| {
        for turn in 0..2 {
            let place = Mutex::<u32, Order>::new(0);
            let (first, second) = match turn {
                0 => (&place, &other),
                _ => (&other, &place),
            };
            let _first = first.lock();
            drop(second.lock());
        }
    });
    assert!(reports.is_empty(), "{reports:?}");
}

/// A ring is reported even if it shares a step with a reported ring. The locks have no class, so depths are ignored.
#[test]
fn each_ring_is_reported() {
    let _alone = ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let [a, b, c] = [0; 3].map(Mutex::<u32, Order>::new);
    let after = |first: &Mutex<u32, Order>, second: &Mutex<u32, Order>, depth: u8| {
        let _first = first.lock();
        drop(second.lock_nested(depth));
    };
    let first = reported(|| {
        after(&a, &b, 0);
        after(&b, &a, 1);
        after(&b, &a, 0);
    });
    assert_eq!(first.len(), 1, "{first:?}");
    let second = reported(|| {
        after(&a, &c, 0);
        after(&c, &b, 0);
    });
    assert_eq!(second.len(), 1, "{second:?}");
    assert_eq!(second[0].steps.len(), 3);
}

/// With the feature `validate` each lock is checked once, even if its own hook is `Order`.
#[cfg(feature = "validate")]
#[test]
fn every_lock_is_checked() {
    use tiptoe_lock::{Nothing, Waits};

    fn inverts<H: Hook>() -> Vec<Report> {
        let [a, b] = [(); 2].map(|()| Mutex::<u32, H>::new(0));
        reported(|| {
            drop((a.lock(), b.lock()));
            drop((b.lock(), a.lock()));
        })
    }
    let _alone = ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    assert_eq!(inverts::<Nothing>().len(), 1);
    assert_eq!(inverts::<Waits>().len(), 1);
    assert_eq!(inverts::<Order>().len(), 1);
    assert_eq!(inverts::<(Waits, Order)>().len(), 1);
}
