//! Libraries that are loaded during the trace are probed from their first constructor on.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tiptoe_tests::process::{output, wait_until};
use tiptoe_tests::truth::{ReturnComparison, Truth};
use tiptoe_tests::{
    ExpectedCounts, Probe, Process, Report, command, installed, is_root, scaled, skipped, target,
};

const LIMIT: Duration = Duration::from_secs(20);
/// What the report says if a library ran before tiptoe could probe it, because the machine was busy.
const MISSED: &str = "a library ran before its probes were set";

const SPECS: [&str; 2] = ["libloaded.so:*", "libloaded_other.so:*"];

fn library(name: &str) -> String {
    target(name).to_str().expect("text").to_owned()
}

fn notes(report: &Report) -> String {
    report.value["notes"].to_string()
}

fn exact(report: &Report, expected: &ExpectedCounts) {
    if notes(report).contains(MISSED) {
        println!("ran before its probes: {}", notes(report));
        let counted = |name: &String| {
            report
                .event(name)
                .map_or(0, |event| event["count"].as_u64().expect("a count"))
        };
        assert!(
            expected
                .0
                .iter()
                .all(|(name, count)| counted(name) <= *count),
            "{:#}",
            report.value
        );
        return;
    }
    report.assert_exact(expected);
}

#[test]
fn a_constructor_is_counted() {
    let library = library("loaded");
    for rounds in [1, 20] {
        let rounds = rounds.to_string();
        let run =
            Probe::new(&["libloaded.so:*"]).run(&target("loads"), &["1", &rounds, "0", &library]);
        exact(run.good(), &run.expected());
        assert_eq!(run.expected().0["loaded_constructor"].to_string(), rounds);
    }
    // Without `-o`, tiptoe prints its notes (limits of the result) to stderr.
    let mut beside = command();
    beside.args(["probe", "libloaded.so:*", "--"]);
    let run = output(beside.arg(target("loads")).args(["1", "1", "0", &library]));
    let said = String::from_utf8_lossy(&run.stderr);
    let note = "`libloaded.so:*` matches nothing that is loaded now";
    assert!(said.contains(note), "{said}");
}

#[test]
fn functions_of_a_loaded_library_are_found_by_every_kind_of_name() {
    let library = library("loaded");
    let names = [&*library, "libloaded.so", "libloaded*", "*/libloaded.so"];
    for name in names {
        let spec = format!("{name}:loaded_constructor");
        let run = Probe::new(&[spec]).run(&target("loads"), &["1", "3", "0", &library]);
        exact(
            run.good(),
            &ExpectedCounts([("loaded_constructor".to_owned(), 3)].into()),
        );
    }
}

#[test]
fn libraries_loaded_and_unloaded_by_threads_are_counted() {
    let (one, other) = (library("loaded"), library("loaded_other"));
    let rounds = (scaled(10_000) / 4).max(50).to_string();
    for options in [&[][..], &["--latency"]] {
        let probe = Probe::new(&SPECS).with(options);
        let run = probe.run(&target("loads"), &["4", &rounds, "0", &one, &other]);
        exact(run.good(), &run.expected());
    }
}

#[test]
fn a_reloaded_library_continues_its_row() {
    let (one, other) = (library("loaded"), library("loaded_other"));
    let run = Probe::new(&SPECS).run(&target("loads"), &["1", "100", "0", &one, &other]);
    exact(run.good(), &run.expected());
    let events = run.good().events();
    let rows = events
        .iter()
        .filter(|event| event["event"].as_str() == Some("uprobe:libloaded.so:loaded_helper"));
    assert!(rows.count() == 1 || notes(run.good()).contains(MISSED));
    assert!(
        !notes(run.good()).contains("another tracer"),
        "{}",
        notes(run.good())
    );
}

#[test]
fn its_calls_are_timed() {
    let library = library("loaded");
    let probe = Probe::new(&["libloaded.so:*"]).with(&["--latency"]);
    let run = probe.run(&target("loads"), &["2", "25", "0", &library]);
    exact(run.good(), &run.expected());
    if !notes(run.good()).contains(MISSED) {
        let line = |(name, count): (&String, &u64)| {
            format!("expect {name} {count}\nreturns {name} {count}\n")
        };
        let truth: String = run.expected().0.iter().map(line).collect();
        run.good()
            .assert_returns(&Truth::parse(&truth), ReturnComparison::Enough);
    }
}

#[test]
fn a_library_loaded_before_the_attach_is_followed() {
    let library = library("loaded");
    let rounds = scaled(1000).max(20).to_string();
    let mut process = Process::waiting(&target("loads"), &["2", &rounds, "1", &library]);
    let attached = Probe::new(&["libloaded.so:loaded_*"]).attach(&[process.pid()]);
    attached.wait_ready();
    process.go();
    let (output, status) = process.finish();
    assert!(status.success(), "{status}: {output}");
    exact(&attached.finish(), &ExpectedCounts::parse(&output));
}

fn has_agent(pid: u32) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"));
    maps.is_ok_and(|maps| maps.contains("tiptoe-agent"))
}

#[test]
fn a_loading_program_survives_a_killed_tiptoe() {
    let library = library("loaded");
    for after in [0, 20, 60] {
        let mut process = Process::waiting(&target("loads"), &["4", "2000", "1", &library]);
        let attached = Probe::new(&["libloaded.so:*"]).attach(&[process.pid()]);
        wait_until("the agent", Duration::from_secs(20), || {
            has_agent(process.pid())
        });
        process.go();
        std::thread::sleep(Duration::from_millis(after));
        attached.process.signal(libc::SIGKILL);
        let (output, status) = process.finish();
        assert!(status.success(), "{status}: {output}");
        assert!(
            ExpectedCounts::parse(&output).0["loaded_work"] == 8000,
            "{output}"
        );
    }
}

#[test]
fn a_mapping_at_an_unloaded_librarys_address_is_not_patched() {
    let library = library("loaded");
    for options in [&[][..], &["--latency"]] {
        let run = Probe::new(&["libloaded.so:*"])
            .with(options)
            .run(&target("reused"), &[&library, "10"]);
        exact(run.good(), &run.expected());
    }
}

#[test]
fn a_library_that_is_never_loaded_is_reported() {
    let library = library("loaded");
    let arguments: &[&str] = &["1", "1", "0", &library];
    let run = Probe::new(&["libnever.so:*"]).run(&target("loads"), arguments);
    assert_eq!(run.status, 2, "{}", run.stderr);
    assert!(
        run.stderr
            .contains("`libnever.so:*` matched nothing that was loaded"),
        "{}",
        run.stderr
    );
    assert_eq!(
        run.expected().0["loaded_work"],
        1,
        "the program runs all the same"
    );
    let run = Probe::new(&["libnever.so:*", "main"]).run(&target("loads"), arguments);
    assert_eq!(run.good().count("main"), 1);
    assert!(
        notes(run.good()).contains("`libnever.so:*` matched nothing"),
        "{}",
        notes(run.good())
    );
}

#[test]
fn python_imports_an_extension() {
    let Some(python) = installed("python3") else {
        return skipped("python3", "not installed");
    };
    let script = "import _ctypes, _sqlite3; c = _sqlite3.connect(':memory:'); print(c.execute('select 6 * 7').fetchone())";
    let specs = [
        "_sqlite3*:PyInit__sqlite3",
        "_ctypes*:*",
        "libsqlite3*:sqlite3_prepare_v2",
    ];
    for options in [&[][..], &["--latency"]] {
        let run = Probe::new(&specs)
            .with(options)
            .run(Path::new(&python), &["-S", "-c", script]);
        assert_eq!(run.stdout, b"(42,)\n", "{}", run.stderr);
        let report = run.good();
        if !notes(report).contains(MISSED) {
            assert_eq!(report.count("PyInit__sqlite3"), 1, "{:#}", report.value);
            assert_eq!(report.count("PyInit__ctypes"), 1, "{:#}", report.value);
            assert!(
                report.count("sqlite3_prepare_v2") >= 1,
                "{:#}",
                report.value
            );
        }
    }
}

#[test]
fn no_thread_is_borrowed_while_another_one_holds_the_loaders_lock() {
    if !is_root() {
        return skipped("uprobes", "needs root");
    }
    let library = target("loader_slow");
    for holder in [library.to_str().expect("text"), "iterate"] {
        let mut process = Process::start(Command::new(target("loader_locked")).arg(holder));
        assert_eq!(process.line(), "locked");
        let attached = Probe::new(&["loader_work"]).attach(&[process.pid()]);
        attached.wait_ready();
        let mut calls = || {
            process.go();
            process.line().parse::<u64>().expect("a number")
        };
        let before = calls();
        wait_until("more calls", LIMIT, || calls() > before + 10);
        let (_, status) = process.finish();
        assert!(status.success(), "{holder}: {status}");
        let report = attached.finish();
        assert_eq!(report.via("kernel"), 1, "{:#}", report.value);
        let notes = report.value["notes"].to_string();
        assert!(notes.contains("the loader's lock"), "{notes}");
    }
}
