//! Waits for locks, and holds of locks, that began before tiptoe attached.

use serde_json::Value;
use tiptoe_tests::process::output;
use tiptoe_tests::{Probe, Process, Report, command, is_root, skipped, target};

use crate::locks::rows;

fn check(way: &Probe) {
    let mut program = Process::waiting(&target("deadlock"), &[]);
    program.go();
    assert_eq!(program.line(), "stuck");
    let run = way.attach_and_wait(&[program.pid()]);
    let report = run.good();
    let rows = rows(report);
    for (lock, waits) in [("deadlock:lock_a", 2), ("deadlock:lock_b", 1)] {
        let row = rows.iter().find(|row| row["lock"] == lock);
        let row = row.unwrap_or_else(|| panic!("{lock}: {rows:#?}"));
        let early = &row["early"];
        assert_eq!(early["waits"], waits, "{row:#}");
        assert_eq!(early["unfinished"], waits, "{row:#}");
        assert_eq!(
            (&row["type"], &row["slept"]),
            (&"mutex".into(), &0.into()),
            "{row:#}"
        );
        let [before, total] = ["before_ns", "total_ns"].map(|what| early[what].as_u64());
        assert!(total > before, "{row:#}");
        let site = row["callsite"].as_str().unwrap_or_default();
        assert!(site.starts_with("deadlock:take+"), "{row:#}");
    }
    let deadlocks = report.value["locks"]["deadlocks"].as_array();
    let [ring] = &deadlocks.expect("a deadlock")[..] else {
        panic!("{deadlocks:#?}");
    };
    let waits = ring["waits"].as_array().expect("threads").iter();
    let mut threads: Vec<&Value> = waits.map(|wait| &wait["comm"]).collect();
    threads.sort_by_key(|comm| comm.as_str());
    assert_eq!(threads, ["first", "second"], "{ring:#}");
    program.close();
    assert!(program.finish().1.success());
}

#[test]
fn a_cancelled_wait_was_not_over() {
    cancelled("agent", "left");
    if !is_root() {
        return skipped("a cancelled wait via the kernel", "needs root");
    }
    // The kernel sees the call return before the signal's handler cancels the thread, so the wait is `interrupted`.
    cancelled("kernel", "interrupted");
}

fn cancelled(via: &str, end: &str) {
    let mut program = Process::waiting(&target("cancelled"), &[]);
    let ours = Probe::lock().with(&["--via", via]).attach(&[program.pid()]);
    ours.wait_ready();
    program.go();
    assert_eq!(program.line(), "cancelled");
    let report = ours.interrupt();
    let locks = &report.value["locks"];
    assert_eq!(locks["unfinished"], 0, "{locks:#}");
    let row = rows(&report)
        .iter()
        .find(|row| row["lock"] == "cancelled:cancel_never");
    let row = row.unwrap_or_else(|| panic!("{locks:#}"));
    assert_eq!(
        (&row[end], &row["slept"]),
        (&1.into(), &1.into()),
        "{via}: {row:#}"
    );
    let site = row["callsite"].as_str().unwrap_or_default();
    assert!(site.starts_with("cancelled:wait_in_vain+"), "{row:#}");
    program.close();
    assert!(program.finish().1.success());
}

#[test]
fn a_hold_from_before_the_trace_is_a_lower_bound() {
    let mut program = Process::waiting(&target("deadlock"), &[]);
    program.go();
    assert_eq!(program.line(), "stuck");
    let way = Probe::lock().with(&["--duration", "0.2", "--hold", "lock_a"]);
    let run = way.attach_and_wait(&[program.pid()]);
    let holds = run.good().value["locks"]["holds"].as_array();
    let [hold] = &holds.expect("a hold")[..] else {
        panic!("{holds:#?}");
    };
    assert_eq!(
        (&hold["lock"], &hold["count"]),
        (&"deadlock:lock_a".into(), &0.into())
    );
    assert_eq!(hold["is_at_least"], true, "{hold:#}");
    assert!(hold["total_ns"].as_u64() > Some(0), "{hold:#}");
    let holder = hold["callsite"].as_str().unwrap_or_default();
    assert!(
        holder.ends_with(" first, since before the trace"),
        "{hold:#}"
    );
    program.close();
    assert!(program.finish().1.success());
}

#[test]
fn a_deadlock_from_before_the_attach_is_reported() {
    check(&Probe::lock().with(&["--duration", "0.2"]));
    match is_root() {
        true => check(&Probe::lock().with(&["--duration", "0.2", "--via", "kernel"])),
        false => skipped("--via kernel", "needs root"),
    }
}

#[test]
fn waits_that_were_not_over_had_no_row() {
    for via in ["agent", "kernel"] {
        if via == "kernel" && !is_root() {
            return skipped("--via kernel", "needs root");
        }
        let mut program = Process::waiting(&target("deadlock"), &[]);
        let ours = Probe::lock().with(&["--via", via]).attach(&[program.pid()]);
        ours.wait_ready();
        program.go();
        assert_eq!(program.line(), "stuck");
        let report = ours.interrupt();
        let locks = &report.value["locks"];
        for (lock, waits) in [("deadlock:lock_a", 2), ("deadlock:lock_b", 1)] {
            let row = rows(&report).iter().find(|row| row["lock"] == lock);
            let unfinished = &row.unwrap_or_else(|| panic!("{via}: {locks:#}"))["unfinished"];
            assert_eq!(unfinished["waits"], waits, "{via}: {locks:#}");
            assert!(
                unfinished["total_ns"].as_u64() > Some(0),
                "{via}: {locks:#}"
            );
        }
        assert_eq!(locks["unfinished"], 3, "{via}: {locks:#}");
        assert_eq!(
            locks["deadlocks"].as_array().map(Vec::len),
            Some(1),
            "{via}: {locks:#}"
        );
        program.close();
        assert!(program.finish().1.success());
    }
}

#[test]
fn a_command_that_ended_before_its_libraries_were_read_had_no_row() {
    for _ in 0..10 {
        let run = Probe::lock().run(&target("swift"), &[]);
        let rows = rows(run.good());
        let row = rows.iter().find(|row| row["lock"] == "swift:swift_lock");
        let row = row.unwrap_or_else(|| panic!("{:#}", run.good().value));
        assert_eq!(row["slept"], 1, "{row:#}");
        let site = row["callsite"].as_str().unwrap_or_default();
        assert!(site.starts_with("swift:swift_wait+"), "{row:#}");
    }
}

/// Regression: if the kernel refuses to wait for a priority-inheriting mutex, libc waits for a word of the stack, which
/// was reported as the lock.
#[test]
fn a_deadlock_of_inheriting_mutexes_had_no_ring() {
    let mut program = Process::waiting(&target("pi_ring"), &[]);
    program.go();
    assert_eq!(program.line(), "stuck");
    let pid = program.pid().to_string();
    let run = output(command().args(["lock", "--now", "--json", "-p", &pid]));
    let report = Report::parse(&String::from_utf8_lossy(&run.stdout));
    let now = &report.value["now"];
    let waits = now["waits"].as_array().expect("they wait");
    let of = |comm: &str| waits.iter().find(|wait| wait["comm"] == comm).expect(comm);
    let (first, second) = (of("first"), of("second"));
    assert_eq!(first["lock"], "pi_ring:pi_b", "{now:#}");
    assert_eq!(second["lock"], "a priority-inheriting mutex", "{now:#}");
    for (wait, other) in [(first, second), (second, first)] {
        assert_eq!(wait["holder"], other["tid"], "{now:#}");
        assert_eq!(wait["holder_comm"], other["comm"], "{now:#}");
    }
    let ring = now["deadlocks"][0].as_array().expect("a ring");
    assert_eq!(ring.len(), 2, "{now:#}");
    program.close();
    assert!(program.finish().1.success());
}

#[test]
fn waits_of_the_delay_were_counted() {
    for via in ["agent", "kernel"] {
        if via == "kernel" && !is_root() {
            return skipped("--via kernel", "needs root");
        }
        let way = Probe::lock().with(&["--via", via, "--delay", "1s"]);
        let (mut ours, _) = way.start(&target("deadlock"), &[]);
        ours.process.go();
        assert_eq!(ours.process.line(), "stuck");
        ours.wait_ready();
        ours.process.close();
        let report = ours.finish();
        let duration = report.value["duration_ns"].as_u64().expect("a duration");
        for (lock, waits) in [("deadlock:lock_a", 2), ("deadlock:lock_b", 1)] {
            let row = rows(&report).iter().find(|row| row["lock"] == lock);
            let row = row.unwrap_or_else(|| panic!("{via} {lock}: {:#}", report.value));
            let [ended, open] = [&row["total_ns"], &row["unfinished"]["total_ns"]];
            let traced = [ended, open].map(|ns| ns.as_u64().unwrap_or(0));
            assert!(
                traced.iter().sum::<u64>() <= waits * duration,
                "{via}: {duration}: {row:#}"
            );
        }
    }
}
