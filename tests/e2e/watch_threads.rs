//! `tiptoe watch` by breakpoints of threads: each thread has each breakpoint exactly once.

use std::process::Command;

use serde_json::Value;
use tiptoe_tests::breakpoint::{Access, Breakpoint};
use tiptoe_tests::{Probe, Process, Report, Run, is_root, scaled, skipped, target};

use crate::watch::{EVERY, attached, find_row, heard, hits, is_whole, on, rows, said, turn, watch};
use crate::watch_agent::has_events;
use crate::watch_before::{STRAY_TRAP, TRAPPED};

/// How many threads each of 50 chains has. The accounting of debug registers has room for 16,384 threads, so it
/// must release ended threads. The ring of starts and ends has room for all (65,536).
const CHURN: u64 = 400;
const BY_THREAD: [&str; 2] = ["--via", "kernel-task"];

fn placement(report: &Report) -> &Value {
    &report.value["watch"]["form"]
}

fn ready(mode: &str, rounds: u64) -> Process {
    let mut command = Command::new(target("watched"));
    let mut program = Process::start(command.args([mode, &rounds.to_string()]));
    assert_eq!(program.line(), "ready");
    program
}

fn total(program: &mut Process) -> u64 {
    let said = program.line();
    let number = said.split_whitespace().last();
    number.and_then(|n| n.parse().ok()).expect("a number")
}

/// Returns the number of traps without a cause, which tiptoe's library gets on some virtual machines. Asserts that
/// no other hits are lost.
fn strays(report: &Report, via: &str) -> u64 {
    if via != "agent" {
        is_whole(report);
    }
    let drops = report.value["watch"]["drops"].as_array();
    let count = |dropped: &Value| {
        let reason = dropped["reason"].as_str().unwrap_or_default();
        assert!(reason.contains("the trap had no cause"), "{dropped}");
        dropped["count"].as_u64().expect("a count")
    };
    drops.into_iter().flatten().map(count).sum()
}

fn ran(options: &[&str], mode: &str, rounds: u64) -> Run {
    let watched = watch(&BY_THREAD).with(options);
    watched.run(&target("watched"), &[mode, &rounds.to_string()])
}

fn check_living(via: &str, options: &[&str]) {
    let mut program = ready("living", scaled(50_000));
    let watched = watch(options)
        .with(&["--via", via])
        .attach(&[program.pid()]);
    watched.wait_ready();
    program.go();
    let total = total(&mut program);
    assert!(program.finish().1.success());
    let report = watched.finish();
    let (found, strays) = (hits(&report, 0), strays(&report, via));
    let watch = &report.value["watch"];
    assert!((total - strays..=total).contains(&found), "{watch:#}");
    let add = find_row(&report, "add");
    let both = (&add["count"], &add["changed"]);
    assert_eq!(both, (&found.into(), &found.into()), "{watch:#}");
}

#[test]
fn threads_that_start_and_end_are_each_seen_exactly_once() {
    on(EVERY, |via| {
        let times = if via == "kernel-task" { scaled(100) } else { 1 };
        (0..times).for_each(|_| check_living(via, &["total"]));
        // All registers are taken, so a second breakpoint of a thread would fail.
        let four = ["total", "stats.hits", "mode", "stats.state", "--all-slots"];
        check_living(via, &four);
    });
}

#[test]
fn later_threads_inherit_the_breakpoints() {
    let Some(_turn) = turn() else { return };
    let run = ran(&["total", "--stats"], "churn", CHURN);
    let report = run.good();
    is_whole(report);
    let total = said(&run, "total");
    assert_eq!(hits(report, 0), total);
    let attached = &placement(report)["attached"];
    assert_eq!(
        (&attached["threads"], &attached["without"]),
        (&1.into(), &0.into())
    );
    let sides = &report.value["watch"]["reservations"];
    let count = |key| sides[0][key].as_u64().expect("a count");
    assert_eq!((count("reservations"), count("unreserved")), (total + 1, 0));
}

#[test]
fn thousands_of_threads_with_four_watches_each() {
    on(&["kernel-task", "agent"], |via| {
        let threads = scaled(2000).max(300);
        let mut program = ready("many", threads);
        let four = ["total", "stats.hits", "owner", "stats.state", "--all-slots"];
        let watched = watch(&four).with(&["--stats", "--via", via]);
        let watched = watched.attach(&[program.pid()]);
        watched.wait_ready();
        program.go();
        assert_eq!(program.line(), "done");
        let report = watched.interrupt();
        let watch = &report.value["watch"];
        let found = [0, 1, 2, 3].map(|variable| hits(&report, variable));
        assert!(found.iter().all(|hits| *hits <= 10 * threads), "{watch:#}");
        let all = found.iter().sum::<u64>() + strays(&report, via);
        assert_eq!(all, 40 * threads, "{watch:#}");
        let sides = &watch["reservations"];
        assert_eq!(sides[0]["reservations"], 4 * (threads + 1), "{sides:#}");
        assert!(program.finish().1.success());
    });
}

#[test]
fn all_registers_are_released() {
    on(EVERY, |via| {
        let mut program = Process::waiting(&target("watched"), &["forked", "1"]);
        let pid = program.pid();
        let four = ["stats.hits", "stats.state", "owner", "total", "--all-slots"];
        let watched = watch(&four).with(&["--via", via]).attach(&[pid]);
        watched.wait_ready();
        let thread = Some(pid.cast_signed());
        assert!(Breakpoint::open(thread, None, Access::Write).is_err());
        watched.interrupt();
        assert!(!has_events(pid));
        assert_eq!(Breakpoint::all(thread, None, Access::Write).len(), 4);
        program.go();
        assert!(program.finish().1.success());
    });
}

/// A CPU's breakpoint would also stop the other process.
#[test]
fn addresses_that_another_process_has_are_watched_by_threads() {
    let Some(_turn) = turn() else { return };
    let start = || {
        let mut command = Command::new("setarch");
        command.arg("-R").arg(target("watched"));
        let mut program = Process::start(command.args(["forked", "1", "wait"]));
        assert_eq!(program.line(), "ready");
        program
    };
    let (mut program, mut other) = (start(), start());
    let watched = watch(&["stats.hits"]).attach(&[program.pid()]);
    watched.wait_ready();
    other.go();
    assert!(other.finish().1.success());
    program.go();
    assert!(program.finish().1.success());
    let report = watched.finish();
    assert_eq!(hits(&report, 0), 20);
    let form = placement(&report);
    assert_eq!(form["by"], "thread", "{form:#}");
    let why = form["why"].as_str().expect("it is said why");
    assert!(
        why.contains("1 other process has the same addresses"),
        "{why}"
    );
}

/// A thread that holds all its registers leaves none for breakpoints of CPUs.
#[test]
fn threads_are_watched_if_a_cpu_has_no_free_register() {
    let Some(_turn) = turn() else { return };
    let program = Process::waiting(&target("watched"), &["forked", "1"]);
    let held = Breakpoint::all(Some(0), None, Access::Write);
    assert_eq!(held.len(), 4);
    let wide = watch(&["stats.hits", "--via", "kernel"]).attach_and_wait(&[program.pid()]);
    assert_eq!(wide.status, 2, "{}", wide.stderr);
    assert!(
        wide.stderr.contains("no debug register is left on cpu 0"),
        "{}",
        wide.stderr
    );
    let report = attached(&watch(&["stats.hits"]), program);
    assert_eq!(hits(&report, 0), 20);
    let why = placement(&report)["why"].to_string();
    assert!(why.contains("no debug register is left on cpu 0"), "{why}");
}

/// Regression: no holder of a register was named, because the kernel does not report which program holds one. A
/// killed tiptoe must hold nothing.
#[test]
fn the_watch_of_another_tiptoe_is_named() {
    let Some(_turn) = turn() else { return };
    if !is_root() {
        return skipped(
            "two tiptoes",
            "without root they may have no folder to share",
        );
    }
    for (via, other) in [
        ("kernel", "kernel"),
        ("kernel-task", "kernel-task"),
        ("kernel-task", "agent"),
    ] {
        let program = Process::waiting(&target("watched"), &["forked", "1"]);
        let pid = [program.pid()];
        let first = watch(&["total", "owner", "mode", "--via", other]).attach(&pid);
        first.wait_ready();
        let innocent = Probe::stat().with(&["-e", "task-clock"]).attach(&pid);
        innocent.wait_ready();
        let second = watch(&["stats.hits", "stats.state", "--via", via]);
        let refused = second.attach_and_wait(&pid);
        assert_eq!(refused.status, 2, "{via}: {}", refused.stderr);
        let holder = format!("'watched:owner' of tiptoe (pid {})", first.process.pid());
        assert!(
            refused.stderr.contains(&holder),
            "{via}: {}",
            refused.stderr
        );
        let accused = format!("(pid {})", innocent.process.pid());
        assert!(!refused.stderr.contains(&accused), "{}", refused.stderr);
        drop(innocent);
        if other == "agent" {
            first.interrupt();
        } else {
            first.process.signal(libc::SIGKILL);
            drop(first);
        }
        attached(&second, program);
    }
}

#[test]
fn the_variable_of_one_thread() {
    on(EVERY, |via| {
        let mut program = ready("owners", 1);
        let pid = [program.pid()];
        for (options, words) in [
            (
                &["own"][..],
                &["each thread has its own `own`", "--thread"][..],
            ),
            (
                &["own", "--thread", "third"],
                &["no thread `third`", "first", "second"],
            ),
        ] {
            let run = watch(options).with(&["--via", via]).attach_and_wait(&pid);
            assert_eq!(run.status, 2, "{}", run.stderr);
            for words in words {
                assert!(run.stderr.contains(words), "{words}: {}", run.stderr);
            }
        }
        let watched = watch(&["own", "--thread", "second", "--via", via]).attach(&pid);
        watched.wait_ready();
        program.go();
        let report = watched.finish();
        assert_eq!(hits(&report, 0), 10);
        let own = find_row(&report, "write_own");
        assert_eq!(
            (&own["comm"], &own["last_new"]),
            (&"second".into(), &"10".into())
        );
        let notes = report.value["notes"].to_string();
        assert!(notes.contains("its thread ended"), "{notes}");
        program.go();
        assert_eq!(program.line(), "ready");
        program.go();
        assert!(program.finish().1.success());
    });
}

/// Other threads reuse an ended thread's memory, and their stores must not count.
#[test]
fn a_thread_that_ends_ends_only_the_watch_of_its_variable() {
    on(EVERY, |via| {
        let mut program = ready("owners", 1);
        let options = ["own", "stats.hits", "--thread", "second", "--via", via];
        let watched = heard(&options, program.pid());
        watched.wait_ready();
        program.go();
        watched.wait_for("its thread ended");
        program.go();
        assert_eq!(program.line(), "ready");
        program.go();
        assert!(program.finish().1.success());
        let report = watched.finish();
        assert_eq!(
            [hits(&report, 0), hits(&report, 1)],
            [10, 1],
            "{:#}",
            report.value
        );
        let notes = report.value["notes"].to_string();
        assert!(notes.contains("its thread ended"), "{notes}");
        assert!(!notes.contains("by other threads"), "{notes}");
    });
}

#[test]
fn variables_take_turns() {
    on(EVERY, |via| {
        let five = [
            "total/pinned/",
            "stats.hits",
            "owner",
            "mode",
            "stats.state",
        ];
        let watched = watch(&five).with(&["--rotate", "20ms", "--via", via]);
        let rounds = scaled(40_000).to_string();
        let run = watched.run(&target("watched"), &["churn", &rounds]);
        assert_ne!(run.status, TRAPPED, "turns: {STRAY_TRAP}");
        let report = run.good();
        let variables = report.value["watch"]["variables"].as_array().expect("them");
        assert_eq!(hits(report, 0), said(&run, "total"), "{variables:#?}");
        assert_eq!(variables[0]["at_least"], false);
        assert!(variables[0]["watched_ns"].is_null());
        let watched: Vec<u64> = variables[1..]
            .iter()
            .map(|variable| variable["watched_ns"].as_u64().expect("a time"))
            .collect();
        assert!(watched.iter().all(|ns| *ns > 0), "{variables:#?}");
        let whole = report.value["duration_ns"].as_u64().expect("a time");
        assert!(watched.iter().sum::<u64>() <= 2 * whole, "{variables:#?}");
        assert_eq!(variables[1]["at_least"], true);
    });
}

#[test]
fn turns_do_not_mix_variables() {
    let all = [
        "stats.hits",
        "owner",
        "mode",
        "stats.state",
        "head",
        "nodes[0].id",
    ];
    on(EVERY, |via| {
        let watched = Probe::watch_within("1%").with(&all);
        let watched = watched.with(&["--rotate", "30ms", "--via", via]);
        let run = watched.run(&target("watched"), &["hot", "1000"]);
        assert_ne!(run.status, TRAPPED, "turns: {STRAY_TRAP}");
        let report = run.good();
        assert!(hits(report, 0) > 0, "{:#}", report.value["watch"]);
        let others = rows(report)
            .iter()
            .filter(|row| row["variable"] != "watched:stats.hits");
        // The loader relocates the pointer before main.
        let others: Vec<&Value> = others
            .filter(|row| row["variable"] != "watched:head")
            .collect();
        assert!(others.is_empty(), "{others:#?}");
    });
}
