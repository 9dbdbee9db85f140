//! All kinds of locks, on all supported C libraries: counts equal the kernel's.

use serde_json::Value;
use tiptoe_tests::tiptoe::AttachedTiptoe;
use tiptoe_tests::{
    Debian, Futexes, Probe, Process, Report, WaitingTarget, is_root, rust_target, sampled, scaled,
    skipped, target,
};

pub(crate) const KINDS: [(&str, &str, &str); 21] = [
    ("mutex", "mutex", "hot_mutex"),
    ("recursive", "mutex", "hot_mutex"),
    ("errorcheck", "mutex", "hot_mutex"),
    ("adaptive", "mutex", "hot_mutex"),
    ("robust", "mutex", "hot_mutex"),
    ("inheriting", "mutex", "hot_mutex"),
    ("shared", "mutex", "hot_mutex"),
    ("timed", "mutex", "hot_mutex"),
    ("rwlock", "rwlock", "hot_rwlock"),
    ("rwtimed", "rwlock", "hot_rwlock"),
    ("cond", "condition", "hot_cond"),
    ("condtimed", "condition", "hot_cond"),
    ("sem", "semaphore", "hot_sems"),
    ("semtimed", "semaphore", "hot_sems"),
    ("barrier", "barrier", "hot_barrier"),
    ("once", "once", "hot_once"),
    ("join", "join", ""),
    ("stdio", "libc's own", ""),
    ("malloc", "libc's own", ""),
    ("syscall", "futex", "hot_word"),
    ("inline", "futex", "hot_word"),
];

/// Rust's locks wait by `syscall`, not by glibc's locks; only joins wait in glibc.
const RUST_KINDS: [(&str, &str, &str); 12] = [
    ("mutex", "futex", "HOT_MUTEX"),
    ("rwlock", "futex", "HOT_RWLOCK"),
    ("condvar", "futex", "HOT_CONDVAR"),
    ("barrier", "futex", "HOT_BARRIER"),
    ("once", "futex", "HOT_ONCES"),
    ("mpsc", "futex", ""),
    ("park", "futex", ""),
    ("join", "join", ""),
    ("lot_mutex", "futex", ""),
    ("lot_rwlock", "futex", ""),
    ("lot_condvar", "futex", ""),
    ("lot_once", "futex", ""),
];

type ReportWithCounts = (Report, [u64; 2]);

fn attached(mut waiting: WaitingTarget) -> Option<ReportWithCounts> {
    let ours = Probe::lock().attach(&[waiting.pid]);
    ours.wait_ready();
    let kernel = counted(waiting.pid)?;
    contends(&mut waiting.process);
    let counts = kernel.counts();
    let report = ours.interrupt();
    waiting.end();
    Some((report, counts))
}

fn started((mut ours, pid): (AttachedTiptoe, u32)) -> Option<ReportWithCounts> {
    let kernel = counted(pid)?;
    contends(&mut ours.process);
    let counts = kernel.counts();
    Some((ours.finish(), counts))
}

/// Counts futex calls of the first thread and of threads that it starts later, so none of tiptoe's library.
fn counted(pid: u32) -> Option<Futexes> {
    let kernel = is_root().then(|| Futexes::of(pid)).flatten();
    if kernel.is_none() {
        skipped(
            "futex calls",
            "needs root and the tracepoints of system calls",
        );
    }
    kernel
}

fn contends(process: &mut Process) {
    process.go();
    let said = process.line();
    assert!(said.starts_with("done "), "{said:?}");
}

fn check_all<'a>(
    kinds: impl IntoIterator<Item = &'a (&'a str, &'a str, &'a str)>,
    count: impl Fn(&[&str]) -> Option<ReportWithCounts>,
) {
    check_all_and(kinds, count, somebody_woke);
}

fn check_all_and<'a>(
    kinds: impl IntoIterator<Item = &'a (&'a str, &'a str, &'a str)>,
    count: impl Fn(&[&str]) -> Option<ReportWithCounts>,
    ends: fn(&str, &Value, u64, u64),
) {
    for &(kind, is, named) in kinds {
        let rounds = match kind {
            "join" => 200,
            _ => scaled(2_000_000),
        };
        let Some(counted) = count(&[kind, &rounds.to_string()]) else {
            return;
        };
        check(kind, &counted, &[(is, named)], ends);
    }
}

/// If a run has at most this many waits, all may be joins.
const JOINS: u64 = 4;

fn check(
    kind: &str,
    (report, [waits, wakes]): &ReportWithCounts,
    rows: &[(&str, &str)],
    ends: fn(&str, &Value, u64, u64),
) {
    let locks = &report.value["locks"];
    let reported = [&locks["waits"], &locks["wakes"]].map(|count| count.as_u64());
    assert_eq!(
        reported,
        [Some(*waits), Some(*wakes)],
        "{kind}: {:#}",
        report.value
    );
    assert_eq!(
        locks["unfinished"].as_u64(),
        Some(0),
        "{kind}: {:#}",
        report.value
    );
    let found = locks["rows"].as_array().expect("the locks");
    if kind != "join" && *waits <= JOINS {
        return;
    }
    for (is, named) in rows {
        let mut found = found.iter();
        let is_told = found.any(|row| {
            let lock = row["lock"].as_str().unwrap_or_default();
            row["type"] == *is && lock.contains(named)
        });
        assert!(is_told, "{kind}: {is} {named}: {:#}", report.value);
    }
    check_ends(kind, found, ends);
}

fn somebody_woke(kind: &str, row: &Value, paired: u64, woken: u64) {
    assert!(paired > 0 || woken <= JOINS, "{kind}: {woken}: {row:#}");
}

fn nearly_all_have_a_waker(kind: &str, row: &Value, paired: u64, woken: u64) {
    let share = if row["type"] == "rwlock" { 90 } else { 95 };
    // A short run has few waits, so one waker may be missing.
    assert!(
        (paired + 1) * 100 >= woken * share,
        "{kind}: {paired} of {woken}: {row:#}"
    );
}

/// The kernel wakes the joiners of an ended thread, so they need no waker.
fn check_ends(kind: &str, rows: &[Value], ends: fn(&str, &Value, u64, u64)) {
    for row in rows.iter().filter(|row| row["type"] != "join") {
        let count = |what: &str| row[what].as_u64().unwrap_or(0);
        let woken = count("slept") - count("timed_out") - count("interrupted");
        let blame = row["blame"].as_array().map_or(&[][..], Vec::as_slice);
        let paired = blame.iter().filter_map(|blame| blame["count"].as_u64());
        let paired: u64 = paired.sum();
        ends(kind, row, paired, woken);
    }
}

#[test]
fn every_kind_is_counted_as_the_kernel_counts_it() {
    let program = target("contended");
    check_all(&KINDS, |arguments| {
        attached(WaitingTarget::through(&["env"], &program, arguments))
    });
}

#[test]
#[ignore = "nightly: asserts a share"]
fn nearly_all_waits_have_a_waker() {
    let programs = [
        (target("contended"), &KINDS[..]),
        (rust_target("contended_rust"), &RUST_KINDS),
    ];
    for (program, kinds) in programs {
        let count =
            |arguments: &[&str]| attached(WaitingTarget::through(&["env"], &program, arguments));
        check_all_and(kinds, count, nearly_all_have_a_waker);
    }
}

fn check_all_on(release: &str) {
    if !is_root() {
        return skipped(release, "needs root");
    }
    let root = match Debian::new(release) {
        Ok(root) => root,
        Err(why) => return skipped(release, &why),
    };
    let program = root.target("contended");
    check_all(&KINDS, |arguments| {
        attached(root.waiting(&program, arguments))
    });
    check_all(sampled(&KINDS), |arguments| {
        started(Probe::lock().start(&program, arguments))
    });
}

/// glibc 2.41 has another path for cancellable waits.
#[test]
#[ignore = "nightly: another release of Debian"]
fn every_kind_is_counted_on_debian_13() {
    check_all_on("trixie");
}

/// glibc 2.31 has its threads in a library of their own.
#[test]
#[ignore = "nightly: another release of Debian"]
fn every_kind_is_counted_on_debian_11() {
    check_all_on("bullseye");
}

#[test]
fn every_kind_of_rust_is_counted() {
    let program = rust_target("contended_rust");
    check_all(&RUST_KINDS, |arguments| {
        attached(WaitingTarget::through(&["env"], &program, arguments))
    });
    check_all(sampled(&RUST_KINDS), |arguments| {
        started(Probe::lock().start(&program, arguments))
    });
}
