//! Probes must be refused, before the program is changed, unless they are on an instruction of a function.

use tiptoe_tests::{ExpectedCounts, Probe, Process, Report, skipped, symbol_value, target};

const WAYS: [&str; 3] = ["auto", "agent", "kernel"];

fn refused(spec: &str, options: &[&str], why: &str) {
    let run = Probe::new(&[spec])
        .with(options)
        .run(&target("offsets"), &[]);
    assert_eq!(run.status, 2, "{spec} {options:?}: {}", run.stderr);
    assert!(run.stderr.contains(why), "{spec}: {}", run.stderr);
    let has_run = !run.stdout.is_empty() || run.report.is_some();
    assert!(!has_run, "{spec} {options:?} ran: {run:?}");
}

fn refused_everywhere(spec: &str, why: &str) {
    for way in WAYS {
        refused(spec, &["--via", way], why);
    }
}

fn fine(specs: &[&str], options: &[&str]) -> Report {
    let run = Probe::new(specs).with(options).run(&target("offsets"), &[]);
    run.good().clone()
}

fn answer() -> u64 {
    symbol_value(&target("offsets"), "answer")
}

#[test]
fn offsets_inside_an_instruction() {
    for offset in 1..5 {
        let spec = format!("answer+{offset}");
        refused_everywhere(&spec, "is not the beginning of an instruction");
    }
}

#[test]
fn offsets_outside_the_function() {
    for spec in [
        "answer+7",
        "answer+0x10",
        "answer+0x1000",
        "answer+0xffffffffffffffff",
    ] {
        refused_everywhere(spec, "outside the function");
    }
}

#[test]
fn addresses_inside_an_instruction_or_in_no_function() {
    let inside = format!("{:#x}", answer() + 3);
    refused_everywhere(&inside, "is not the beginning of an instruction");
    let after_the_last = format!("{:#x}", answer() + 16);
    refused_everywhere(&after_the_last, "no function is known there");
}

#[test]
fn instructions_inside_a_function() {
    let address = format!("{:#x}", answer() + 5);
    for way in WAYS {
        for spec in ["answer+5", &address] {
            let report = fine(&[spec], &["--via", way]);
            assert_eq!(report.count("answer+0x5"), 100, "{spec} via {way}");
        }
    }
}

#[test]
fn one_place_is_refused_and_another_counted() {
    for way in WAYS {
        let report = fine(&["answer", "answer+1"], &["--via", way]);
        assert_eq!(report.count("answer"), 100);
        assert!(report.event("answer+0x1").is_none());
        assert_eq!(report.refusals().len(), 1, "{:#}", report.value);
    }
}

/// The kernel accepts a probe on an instruction with a LOCK prefix, but never counts it.
#[test]
fn what_the_kernel_cannot_run() {
    refused("locked", &["--via", "kernel"], "LOCK");
    assert_eq!(fine(&["locked"], &[]).count("locked"), 100);
    let report = fine(&["locked", "answer"], &["--via", "kernel"]);
    assert_eq!(report.count("answer"), 100);
    assert!(report.refusals().keys().any(|why| why.contains("LOCK")));
}

#[test]
fn the_kernel_splits_nothing() {
    refused("answer", &["--via", "kernel", "--by", "thread"], "--by");
}

/// The kernel's probes are in files, so they also count after an exec of the same file.
#[test]
fn kernel_probes_that_outlive_an_exec_are_reported() {
    if !std::path::Path::new("/sys/kernel/tracing/set_event").exists() {
        return skipped("exec", "needs tracefs");
    }
    for (arguments, is_noted) in [(&["again"][..], true), (&[][..], false)] {
        let run = Probe::new(&["answer"])
            .with(&["--via", "kernel"])
            .run(&target("offsets"), arguments);
        let notes = run.good().value["notes"].to_string();
        assert_eq!(notes.contains("ran another program"), is_noted, "{notes}");
    }
}

/// Regression: a uprobe for the second probe changed the target of the first probe's jump, so the program got
/// SIGSEGV.
#[test]
fn two_probes_in_one_window() {
    let program = target("windows");
    for specs in [
        ["window", "window+2"],
        ["window+2", "window"],
        ["window", "window+3"],
        ["window+3", "window+2"],
        ["window", "window+6"],
    ] {
        for via in ["auto", "agent", "kernel"] {
            let run = Probe::new(&specs).with(&["--via", via]).run(&program, &[]);
            let report = run.good();
            let mut counted = 0;
            for name in ["window", "window+0x2", "window+0x3", "window+0x6"] {
                if report.event(name).is_some() {
                    assert_eq!(report.count(name), 1000, "{specs:?} via {via}: {name}");
                    counted += 1;
                }
            }
            let refusals = report.refusals();
            assert_eq!(counted + refusals.len(), 2, "{specs:?} via {via}");
            assert!(counted > 0, "{specs:?} via {via}: {refusals:?}");
            let names = |why: &String| why.contains("the patch of uprobe:windows:window");
            assert!(refusals.keys().all(names), "{specs:?}: {refusals:?}");
            assert!(via != "kernel" || refusals.is_empty(), "{refusals:?}");
        }
    }
}

#[test]
fn a_second_tiptoe_within_the_first_ones_window() {
    let program = target("windows");
    let mut process = Process::waiting(&program, &["1000"]);
    let first = Probe::new(&["window"]).attach(&[process.pid()]);
    first.wait_ready();
    for spec in ["window+2", "window+3"] {
        let second = Probe::new(&[spec]).with(&["--via", "kernel", "--duration", "0.01"]);
        let run = second.attach_and_wait(&[process.pid()]);
        assert_eq!(run.status, 2, "{spec}: {}", run.stderr);
        let why = "inside a patch in the process's memory";
        assert!(run.stderr.contains(why), "{spec}: {}", run.stderr);
    }
    let second = Probe::new(&["window+2", "window+6"]).attach(&[process.pid()]);
    second.wait_ready();
    process.go();
    let (output, status) = process.finish();
    assert!(status.success(), "the program: {status}");
    first.finish().assert_exact(&ExpectedCounts::parse(&output));
    let report = second.finish();
    assert_eq!(report.count("window+0x6"), 1000, "{:#}", report.value);
    assert_eq!(report.refusals().len(), 1, "{:#}", report.value);
}
