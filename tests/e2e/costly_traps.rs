//! If no jump fits, the kernel's uprobe or a trap of the agent (tiptoe's library) counts calls, whichever is cheaper.

use std::process::Command;

use tiptoe_tests::{Probe, Report, Run, WaitingTarget, is_root, skipped, target};

fn notes(report: &Report) -> String {
    report.value["notes"].to_string()
}

fn has_uprobes() -> bool {
    if !is_root() {
        skipped("uprobes", "needs root");
    }
    is_root()
}

#[test]
fn a_trap_was_set_where_the_kernel_is_cheaper() {
    if !has_uprobes() {
        return;
    }
    let run = Probe::new(&["costly"]).run(&target("costly"), &["30000", "threads"]);
    let report = run.good();
    report.assert_exact(&run.expected());
    assert_eq!(report.via("kernel"), 1, "{:#}", report.value);
    let why = "the kernel counts uprobe:costly:costly: no jump fits, and its uprobe costs ";
    assert!(notes(report).contains(why), "{}", notes(report));
}

#[test]
fn a_function_that_is_hit_too_often_counts_in_windows() {
    if !has_uprobes() {
        return;
    }
    let probe = Probe::within("1%", &["costly", "main"]);
    let run = probe.run(&target("costly"), &["200000", "threads"]);
    let report = run.good();
    let event = report.event("costly").expect("the event");
    assert_eq!(event["at_least"], true, "{event:#}");
    assert!(0 < report.count("costly") && report.count("costly") < 600_000);
    let notes = notes(report);
    assert!(notes.contains("costly in windows"), "{notes}");
    assert!(!notes.contains("switched off"), "{notes}");
    assert_eq!((report.count("main"), report.via("agent")), (1, 1));
}

#[test]
fn the_trap_stays_for_what_only_the_agent_can_do() {
    for options in [
        &["--via", "agent"][..],
        &["--by", "thread"],
        &["--filter", "arg0 == 1"],
        &["--latency"],
        &["--record"],
    ] {
        let probe = Probe::new(&["costly"]).with(options);
        let run = probe.run(&target("costly"), &["100", "threads"]);
        let report = run.good();
        report.assert_exact(&run.expected());
        assert_eq!(report.via("agent"), 1, "{options:?}: {:#}", report.value);
    }
}

/// Uprobes on all functions would need more open files than tiptoe may have.
#[test]
fn the_trap_stays_where_the_kernel_takes_no_probe() {
    let (tiptoe, report) = Probe::new(&["many_*"]).launch(&target("costly"));
    let mut limited = Command::new("prlimit");
    limited.arg("--nofile=40").arg(tiptoe.get_program());
    limited.args(tiptoe.get_args()).args(["100", "many"]);
    let run = Run::new(limited.output().expect("prlimit runs"), &report);
    let report = run.good();
    report.assert_exact(&run.expected());
    assert_eq!(report.via("agent"), 30, "{:#}", report.value);
    assert!(!notes(report).contains("kernel"), "{}", notes(report));
    assert!(report.value["refusals"].is_null(), "{:#}", report.value);
}

/// The kernel counts wherever the file is mapped, so a probe by the agent would count calls twice.
#[test]
fn a_library_that_moves_continues_in_the_kernel() {
    if !has_uprobes() {
        return;
    }
    let library = target("costly_plugin").to_str().expect("text").to_owned();
    let arguments = ["1000", "reloaded", &library];
    let waiting = WaitingTarget::through(&["env"], &target("costly"), &arguments);
    let probe = Probe::new(&["libcostly_plugin.so:plugin_trap"]);
    let report = waiting.count(&probe, &["plugin_trap"]);
    assert_eq!(report.via("kernel"), 1, "{:#}", report.value);
    assert!(report.value["refusals"].is_null(), "{:#}", report.value);
}
