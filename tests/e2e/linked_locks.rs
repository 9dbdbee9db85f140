//! In programs that link `tiptoe-lock`, the hooks of `tiptoe-lock` count the same as tiptoe in the same run.

use std::process::Command;

use serde_json::Value;
use tiptoe_tests::{Probe, Process, Report, Run, rust_target, scaled};

use crate::locks::rows;

const SERVER: &str = "lock_server";
/// How much longer tiptoe's times may be than the hooks' times. tiptoe's first waits include a calibration and page
/// faults, and a thread may be preempted between both readings of the clock.
const FIRST_NS: u64 = 10_000_000;
/// With fewer waits, a percentile may be one of the first waits.
const MANY: u64 = 500;

fn traced(options: &[&str]) -> Run {
    let requests = scaled(200_000).to_string();
    let probe = Probe::lock().with(&["--top", "0"]).with(options);
    probe.run(&rust_target(SERVER), &[&requests, "traced"])
}

fn find_row<'a>(report: &'a Report, lock: &str, kind: &str, mode: Option<&str>) -> &'a Value {
    let is_it = |row: &&Value| {
        row["lock"].as_str().is_some_and(|name| name.contains(lock))
            && row["type"] == kind
            && row["mode"].as_str() == mode
    };
    let found = rows(report).iter().find(is_it);
    found.unwrap_or_else(|| {
        panic!(
            "{lock} {kind} {mode:?}: {:#}",
            report.value["locks"]["rows"]
        )
    })
}

#[test]
fn a_server_s_own_counts_agree() {
    compare(|_, _, _| ());
}

#[test]
#[ignore = "nightly: asserts a time"]
fn a_server_s_own_histograms_agree() {
    compare(compare_times);
}

fn compare_times(row: &Value, own: &dyn Fn(&str) -> u64, count: u64) {
    // tiptoe times some instructions more than the hooks.
    let (total, ours) = (row["total_ns"].as_u64().unwrap_or(0), own("total_ns"));
    let difference = count * 2_000 + ours / 10 + FIRST_NS;
    assert!(
        total >= ours - ours / 50 && total <= ours + difference,
        "{ours}: {row:#}"
    );
    for percentile in ["p50_ns", "p90_ns", "p99_ns"] {
        let reported = row["histogram"][percentile].as_u64().unwrap_or(0);
        let ours = own(percentile);
        // A bucket is 9% wide.
        let near = reported >= ours - ours / 8 && reported <= ours + ours / 4 + 2_000;
        assert!(near || count < MANY, "{percentile} {ours}: {row:#}");
    }
}

fn compare(times: impl Fn(&Value, &dyn Fn(&str) -> u64, u64)) {
    let run = traced(&[]);
    let (report, own) = (run.good(), run.expected().0);
    let mut contended = 0;
    for (word, lock, kind, mode) in [
        ("reads", "store of sessions", "rwlock", Some("read")),
        ("writes", "store of sessions", "rwlock", Some("write")),
        ("journal", "journal", "mutex", None),
        ("unnamed", "COUNT", "mutex", None),
    ] {
        let own = |what: &str| own[&format!("{word}.{what}")];
        contended += own("count");
        if own("count") == 0 {
            continue;
        }
        let row = find_row(report, lock, kind, mode);
        let reported = |what: &str| row[what].as_u64().unwrap_or(0);
        assert_eq!(reported("slept"), own("count"), "{row:#}");
        assert_eq!(reported("episodes"), own("count"), "{row:#}");
        assert!(reported("total_ns") > 0, "{row:#}");
        times(row, &own, own("count"));
    }
    assert!(contended > 0, "no thread waited");
}

/// The library's futex words record no holder.
#[test]
fn the_wakers_of_a_named_lock_are_reported() {
    let run = traced(&[]);
    let report = run.good();
    let row = find_row(report, "journal", "mutex", None);
    let blame = row["blame"].as_array().expect("a waker of each wait");
    assert!(!blame.is_empty(), "{row:#}");
}

#[test]
fn named_locks_are_grouped_by_type_and_callsite() {
    let by_type = traced(&["--by", "type"]);
    let has = |run: &Run, what: &str| {
        let rows = rows(run.good()).to_vec();
        rows.iter()
            .any(|row| row["lock"].as_str().is_some_and(|lock| lock.contains(what)))
    };
    assert!(has(&by_type, "mutex"));
    let by_site = traced(&["--by", "callsite"]);
    assert!(has(&by_site, "lock_server:"));
}

#[test]
fn the_server_works_without_tiptoe() {
    let requests = scaled(200_000).to_string();
    let output = Command::new(rust_target(SERVER)).arg(requests).output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_running_server_continues_after_attach_and_detach() {
    let mut server =
        Process::start(Command::new(rust_target(SERVER)).args(["100000000", "until-closed"]));
    for _ in 0..3 {
        let probe = Probe::lock().with(&["--top", "0", "--duration", "0.5"]);
        let run = probe.attach_and_wait(&[server.pid()]);
        let report = run.good();
        // Locks have names only if tiptoe's library counts.
        let notes = &report.value["notes"];
        assert_ne!(report.value["locks"]["via"], "kernel", "{notes}");
        let is_journal = |row: &&Value| {
            row["lock"]
                .as_str()
                .is_some_and(|lock| lock.contains("journal"))
        };
        let row = rows(report).iter().find(is_journal);
        let row = row.unwrap_or_else(|| panic!("no journal: {:#}", report.value));
        assert!(row["slept"].as_u64() > Some(0), "{row:#}");
        let site = row["callsite"].as_str().unwrap_or_default();
        assert!(site.contains("put+"), "{row:#}");
    }
    assert!(server.lives());
}
