//! Counts accesses to a variable of this process with breakpoints.

#[path = "../../../../tests/support/skipped.rs"]
mod skipped;

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};

use skipped::skipped;
use tiptoe_kernel::watchpoints::{
    Condition, Form, Operand, Operator, WatchHits, WatchWanted, Watchpoint,
};
use tiptoe_kernel::{Error, Watchpoints};
use tiptoe_sys::host::perf::{Access, Breakpoint};

const THREADS: u64 = 20;
const STORES: u64 = 50;
/// Too short for a thousand hits.
const ALLOWED_NS: u64 = 100_000;

/// While locked, no other test takes debug registers. It is the lock of `tests/support/breakpoint.rs`.
fn turn() -> File {
    let folder = File::open("/sys/bus/event_source/devices/breakpoint").expect("the kernel has it");
    folder.lock().expect("a lock");
    folder
}

/// Lets each of several threads store 7, `STORES` times, and then its own number.
fn stored(change: impl FnOnce(&mut WatchWanted)) -> Option<(Vec<WatchHits>, Watchpoints)> {
    // Leaked, because the events still exist when this returns.
    let variable: &AtomicU64 = Box::leak(Box::new(AtomicU64::new(5)));
    let mut wanted = WatchWanted {
        pid: std::process::id(),
        by_thread: false,
        only_changed: false,
        one_by_one: false,
        conditions: Vec::new(),
        allowed_ns: None,
        form: Form::Cpus,
        all_slots: false,
    };
    change(&mut wanted);
    let watchpoint = Watchpoint {
        name: "variable".into(),
        is_pinned: false,
        at: Breakpoint {
            address: &raw const *variable as u64,
            len: 8,
            access: Access::Write,
        },
        is_signed: false,
    };
    let mut set = match Watchpoints::open(&wanted, &[watchpoint], &[0]) {
        Err(Error::BpfDenied | Error::BreakpointDenied | Error::NoBtf | Error::NoBreakpoints) => {
            skipped(
                "watchpoints",
                "they need root, BTF and hardware breakpoints",
            );
            return None;
        }
        set => set.expect("breakpoints"),
    };
    set.start().expect("they are switched on");
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let thread = scope.spawn(move || {
                for _ in 0..STORES {
                    variable.store(7, Ordering::Relaxed);
                }
                variable.store(number, Ordering::Relaxed);
            });
            thread.join().expect("it stores");
        }
    });
    let rows = set.read().expect("rows");
    Some((rows, set))
}

#[test]
fn all_stores_of_all_threads_are_counted() {
    let _turn = turn();
    let Some((rows, set)) = stored(|_| ()) else {
        return;
    };
    let all = THREADS * (STORES + 1);
    assert_eq!(
        rows.iter().map(|row| row.count).sum::<u64>(),
        all,
        "{rows:#?}"
    );
    let hits = set.hits(0).expect("hits");
    assert_eq!((hits.all, hits.wanted), (all, all));
    // A thread's first 7 and its number change the value, but not thread 7's number and thread 8's first 7.
    let changed = rows.iter().map(|row| row.changed).sum::<u64>();
    assert_eq!(changed, 2 * THREADS - 2, "{rows:#?}");
    let sevens = rows.iter().flat_map(|row| &row.values);
    let sevens = sevens
        .filter(|value| value.value == 7)
        .map(|value| value.count);
    assert_eq!(sevens.sum::<u64>(), THREADS * STORES + 1, "{rows:#?}");
    assert!(set.drops().expect("drops") == Default::default());
    assert!(set.times().expect("times").runs >= all);
}

#[test]
fn threads_have_breakpoints_of_their_own() {
    let _turn = turn();
    let Some((rows, mut set)) = stored(|wanted| wanted.form = Form::Tasks) else {
        return;
    };
    let all = THREADS * (STORES + 1);
    let counted = rows.iter().map(|row| row.count).sum::<u64>();
    assert_eq!(counted, all, "{rows:#?}");
    // This thread and the test runner's main thread have events.
    let attached = set.attached().expect("how they got them");
    assert!(attached.threads >= 2, "{attached:?}");
    let unreserved = set.follow_births().expect("births");
    let [of_threads, _] = set.reservations().expect("reservations");
    // Later threads count, including those of other tests.
    let accounted = of_threads.reservations + unreserved.registers;
    let threads = u64::from(attached.threads) + THREADS;
    assert!(accounted >= threads, "{of_threads:?}, {unreserved:?}");
}

#[test]
fn only_matching_accesses_are_counted() {
    let _turn = turn();
    let nine = |wanted: &mut WatchWanted| {
        wanted.only_changed = true;
        wanted.by_thread = true;
        wanted.conditions = vec![
            Condition {
                left: Operand::New,
                operator: Operator::GreaterOrEqual,
                right: Operand::Constant(8),
            },
            Condition {
                left: Operand::Old,
                operator: Operator::Equal,
                right: Operand::Constant(7),
            },
        ];
    };
    let Some((rows, set)) = stored(nine) else {
        return;
    };
    assert_eq!(rows.len() as u64, THREADS - 8, "{rows:#?}");
    assert!(
        rows.iter()
            .all(|row| row.count == 1 && row.last.0 == Some(7)),
        "{rows:#?}"
    );
    assert_eq!(set.hits(0).expect("hits").wanted, THREADS - 8);
}

#[test]
fn an_allowance_is_kept_by_all_cpus_together() {
    let _turn = turn();
    let Some((rows, mut set)) = stored(|wanted| wanted.allowed_ns = Some(ALLOWED_NS)) else {
        return;
    };
    let counted: u64 = rows.iter().map(|row| row.count).sum();
    // Each other CPU may have one more hit on its way.
    let cpus = std::thread::available_parallelism().expect("CPUs").get() as u64;
    let allowed = set.allowance().expect("there is one");
    assert!(allowed < THREADS * STORES, "{allowed}");
    let range = allowed..allowed + cpus;
    assert!(range.contains(&counted), "{allowed}, {counted}: {rows:#?}");
    assert_eq!(set.hits(0).expect("hits").all, counted);
    let so_far = set.window().expect("the window");
    let window = set.refresh().expect("the next window");
    assert_eq!(so_far, window);
    assert_eq!((window.hits, window.rested), (counted, 1));
}
