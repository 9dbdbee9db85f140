//! `--by scope`: events by the scopes (named parts of work) that the program enters.

use std::collections::BTreeMap;

use serde_json::Value;
use tiptoe_tests::process::output;

use tiptoe_tests::{
    Probe, Process, Report, command, is_root, rust_target, scaled, skipped, target,
};

const BY_SCOPE: [&str; 2] = ["--by", "scope"];

fn probe(options: &[&str], words: &[&str]) -> Report {
    let probe = Probe::new(&["work"]).with(&BY_SCOPE).with(options);
    probe.run(&target("scoped"), words).good().clone()
}

fn parts(report: &Report, field: &str) -> BTreeMap<String, u64> {
    let by = report.event("work").expect("counted")["by"].clone();
    let parts = by.as_array().expect("split").iter();
    let part = |part: &Value| {
        let key = part["key"].as_str().expect("a key").to_owned();
        (key, part[field].as_u64().expect("a number"))
    };
    parts.map(part).collect()
}

fn calls(rounds: u64) -> BTreeMap<String, u64> {
    let each = [
        ("read", 3),
        ("write", 2),
        ("write/commit log", 5),
        ("(no scope)", 1),
    ];
    each.map(|(scope, calls)| (scope.to_owned(), calls * rounds))
        .into()
}

#[test]
fn hits_are_of_the_scope_that_their_thread_is_in() {
    let rounds = scaled(1_000_000);
    let report = probe(&[], &["calls", "4", &rounds.to_string()]);
    assert_eq!(parts(&report, "count"), calls(4 * rounds));
}

#[test]
fn timed_calls_are_grouped_by_scope() {
    let report = probe(&["--latency"], &["calls", "2", "1000"]);
    assert_eq!(parts(&report, "returns"), calls(2000));
}

#[test]
fn a_forked_child_enters_scopes_of_its_own() {
    let report = probe(&[], &["forks", "2", "1000"]);
    assert_eq!(parts(&report, "count"), calls(2000));
}

#[test]
fn a_future_is_in_its_scope_on_any_thread() {
    let program = rust_target("scoped_rust");
    let run = Probe::new(&["work"])
        .with(&BY_SCOPE)
        .run(&program, &["100"]);
    let each = [
        ("search", 1),
        ("search/rank", 2),
        ("tenant 1", 3),
        ("(no scope)", 1),
    ];
    let expected = each.map(|(scope, calls)| (scope.to_owned(), 100 * calls));
    assert_eq!(parts(run.good(), "count"), expected.into());
    if let Some(stat) = stat("cs") {
        let run = stat.run(&program, &["100"]);
        for name in ["search", "search/rank", "tenant 1"] {
            assert_eq!(scope(run.good(), name)["entries"], 100, "{name}");
        }
    }
}

#[test]
fn scopes_of_libraries_loaded_later_are_counted() {
    let Some(stat) = stat("syscalls:sys_enter_getppid") else {
        return;
    };
    let plugin = target("scoped_plugin");
    let code = format!(
        "import ctypes, _ctypes\nfor i in range(5):\n plugin = ctypes.CDLL('{}')\n plugin.scoped_often(100)\n \
         _ctypes.dlclose(plugin._handle)",
        plugin.to_str().expect("text")
    );
    let run = stat.run("/usr/bin/python3".as_ref(), &["-c", &code]);
    let found = scope(run.good(), "plugin");
    assert_eq!(
        (&found["entries"], &found["counts"]),
        (&500.into(), &[500].as_slice().into())
    );
}

/// A handler may interrupt any code. Its scope is nested in the interrupted thread's scope.
#[test]
fn handlers_enter_scopes_of_their_own() {
    let rounds = scaled(50_000_000);
    let report = probe(&[], &["signals", "2", &rounds.to_string()]);
    let parts = parts(&report, "count");
    for (scope, count) in calls(2 * rounds) {
        match scope.as_str() {
            // Both scopes have the same name, so the handler's calls are added.
            "write/commit log" => assert!(parts[&scope] >= count, "{parts:?}"),
            scope => assert_eq!(parts[scope], count),
        }
    }
    let of_handlers = [
        "commit log",
        "read/commit log",
        "write/commit log/commit log",
    ];
    assert!(
        of_handlers.iter().any(|name| parts.contains_key(*name)),
        "{parts:?}"
    );
}

#[test]
fn scopes_without_room_are_counted_together() {
    let report = probe(&[], &["many", "1", "3000"]);
    let parts = parts(&report, "count");
    assert_eq!(parts.values().sum::<u64>(), 3000);
    assert_eq!(parts["tenant 7"], 1);
    assert!(parts["(other scopes)"] > 1000, "{parts:?}");
}

#[test]
fn waits_are_of_the_scope_that_their_thread_is_in() {
    let run = Probe::lock()
        .with(&BY_SCOPE)
        .run(&target("scoped"), &["waits", "4", "50"]);
    let report = run.good();
    let rows = report.value["locks"]["rows"].as_array().expect("rows");
    let of = |scope: &str| {
        let rows = rows
            .iter()
            .filter(|row| row["lock"] == scope && row["type"] == "mutex");
        rows.map(|row| row["episodes"].as_u64().expect("a number"))
            .sum::<u64>()
    };
    assert!(of("read") > 50 && of("write") > 50, "{rows:#?}");
    assert_eq!(of("(no scope)"), 0, "{rows:#?}");
}

fn stat(events: &str) -> Option<Probe> {
    if !is_root() {
        skipped("scopes", "CPU time and events of scopes need root");
        return None;
    }
    Some(Probe::stat().with(&BY_SCOPE).with(&["-e", events]))
}

fn scope<'a>(report: &'a Report, name: &str) -> &'a Value {
    let rows = report.value["scopes"]["rows"].as_array().expect("rows");
    let mut rows = rows.iter().filter(|row| row["name"] == name);
    rows.next()
        .unwrap_or_else(|| panic!("no {name}: {:#}", report.value["scopes"]))
}

#[test]
fn events_are_charged_to_scopes_exactly() {
    let events = "page-faults,syscalls:sys_enter_getppid,task-clock";
    let Some(stat) = stat(events) else { return };
    let report = stat.run(&target("scoped"), &["faults", "3", "20"]);
    let report = report.good();
    let counts = |name| scope(report, name)["counts"].clone();
    assert_eq!(counts("read"), serde_json::json!([6000, 420]));
    assert_eq!(counts("write"), serde_json::json!([3000, 0]));
    assert_eq!(scope(report, "read")["entries"], 60);
    assert_eq!(
        report.value["notes"],
        Value::Null,
        "{:#}",
        report.value["notes"]
    );
}

#[test]
fn scopes_have_cpu_time() {
    let Some(stat) = stat("cs") else { return };
    let run = stat.run(&target("scoped"), &["times", "4", "10"]);
    let report = run.good();
    let ns = |name: &str, field: &str| scope(report, name)[field].as_u64().expect("a number");
    for name in ["read", "write"] {
        assert_eq!(scope(report, name)["entries"], 40, "{name}");
        assert!(ns(name, "cpu_ns") > 0, "{name}");
    }
    assert!(ns("write", "cpu_ns") < ns("write", "wall_ns"));
    let all = report.value["cpu_ns"].as_u64().expect("a number");
    let scopes = ["read", "write", "(no scope)"].map(|name| ns(name, "cpu_ns"));
    assert!(
        all <= scopes.iter().sum::<u64>() + 1_000_000,
        "{all} of {scopes:?}"
    );
}

#[test]
#[ignore = "nightly: asserts a time"]
fn cpu_time_is_that_of_threads_that_run() {
    let Some(stat) = stat("cs") else { return };
    let run = stat.run(&target("scoped"), &["times", "4", "10"]);
    let report = run.good();
    let ms = |name: &str, field: &str| {
        let ns = scope(report, name)[field].as_u64().expect("a number");
        ns as f64 / 1e6
    };
    // Each of 40 rounds uses 20 ms in `read` and 10 ms in `write` by the program's clock, which includes the
    // hypervisor's time.
    let (read, write) = (ms("read", "cpu_ns"), ms("write", "cpu_ns"));
    assert!((790.0..900.0).contains(&read), "{read}");
    assert!((390.0..500.0).contains(&write), "{write}");
    assert!(ms("write", "wall_ns") > 40.0 * 40.0 - 1.0);
    let all = report.value["cpu_ns"].as_f64().expect("a number") / 1e6;
    let outside = ms("(no scope)", "cpu_ns");
    assert!(all <= read + write + outside + 1.0, "{all}");
}

#[test]
fn scopes_of_a_running_program_count_from_the_attach_on() {
    let Some(stat) = stat("page-faults") else {
        return;
    };
    let mut program = Process::waiting(&target("scoped"), &["faults", "2", "1000"]);
    let pid = program.pid();
    let watching = stat.attach(&[pid]);
    watching.wait_ready();
    program.go();
    assert!(program.finish().1.success());
    let report = watching.finish();
    assert_eq!(
        scope(&report, "read")["counts"],
        serde_json::json!([200_000])
    );
    assert_eq!(
        scope(&report, "write")["counts"],
        serde_json::json!([100_000])
    );
}

fn lines(options: &[&str]) -> Vec<String> {
    let path = std::env::temp_dir().join(format!("tiptoe-scopes-{}", std::process::id()));
    let mut stat = command();
    stat.args(["stat", "--by", "scope", "-e", "page-faults"]);
    stat.args(options).arg("-o").arg(&path).arg("--");
    let run = output(stat.arg(target("scoped")).args(["faults", "2", "200"]));
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{options:?}: {said}");
    let text = std::fs::read_to_string(&path).expect("a report");
    let _ = std::fs::remove_file(&path);
    text.lines().map(str::to_owned).collect()
}

#[test]
fn scopes_had_no_intervals_and_no_csv() {
    if stat("page-faults").is_none() {
        return;
    }
    let of = |rows: &Value, field: &str| {
        let rows = rows.as_array().expect("rows").iter();
        let read = rows.filter(|row| row["name"] == "read");
        let number = |value: &Value| value.as_u64().expect("a number");
        read.map(|row| match field {
            "counts" => number(&row["counts"][0]),
            field => number(&row[field]),
        })
        .sum::<u64>()
    };
    let all = lines(&["-I", "5", "--json"]);
    let all: Vec<Report> = all.iter().map(|line| Report::parse(line)).collect();
    let (session, intervals) = all.split_last().expect("a report");
    let scopes = &session.value["scopes"];
    assert_eq!(scopes["intervals"], intervals.len(), "{scopes:#}");
    for (field, expected) in [("entries", 400), ("counts", 40_000)] {
        assert_eq!(of(&scopes["rows"], field), expected, "{scopes:#}");
        let each = intervals.iter().map(|one| of(&one.value["rows"], field));
        assert_eq!(each.sum::<u64>(), expected, "{field}");
    }
    for options in [&["--csv"][..], &["--csv", "--interval", "5ms"]] {
        let lines = lines(options);
        let heading = "seconds,scope,event,value,unit,state";
        assert_eq!(lines[0], heading);
        assert_eq!(lines.iter().filter(|line| *line == heading).count(), 1);
        let rows = lines
            .iter()
            .filter(|line| line.contains(",read,page-faults,"));
        let value = |row: &String| row.split(',').nth(3)?.parse::<u64>().ok();
        let sum: u64 = rows.map(|row| value(row).expect("a number")).sum();
        assert_eq!(sum, 40_000, "{lines:#?}");
        let last = lines.last().expect("a line");
        assert!(last.starts_with("# cost of tracing: "), "{last}");
    }
    let lines = lines(&["-I", "5"]);
    assert!(
        lines.iter().any(|line| line.ends_with(" read")),
        "{lines:#?}"
    );
}

#[test]
fn impossible_requests_are_refused() {
    for (words, said) in [
        (
            &["stat", "--by", "scope", "-a"][..],
            "-a does not go with --by scope",
        ),
        (&["stat", "--by", "scope"], "no process to count"),
        (
            &["stat", "--by", "scope", "-e", "cycles", "--", "true"],
            "cycles cannot be charged to scopes",
        ),
        (
            &["stat", "--by", "scope", "-e", "page-fautls", "--", "true"],
            "similar names: page-faults",
        ),
        (
            &["probe", "f", "--by", "scope", "--via", "kernel", "-p", "1"],
            "--by scope does not go with --via kernel",
        ),
        (
            &["probe", "f", "--by", "scope", "--record", "-p", "1"],
            "--by scope does not go with --record",
        ),
        (
            &["lock", "--kernel", "--by", "scope", "-a"],
            "does not know a program's scopes",
        ),
    ] {
        let run = output(command().args(words));
        let text = String::from_utf8_lossy(&run.stderr);
        assert!(text.contains(said), "{words:?}: {text}");
        assert_eq!(run.status.code(), Some(2), "{words:?}: {text}");
    }
    let program = Process::waiting(&target("plain_calls"), &[]);
    let pid = program.pid().to_string();
    let run = output(command().args(["stat", "--by", "scope", "-p", &pid]));
    let text = String::from_utf8_lossy(&run.stderr);
    assert!(
        text.contains("enters no scopes") && text.contains("tiptoe.h"),
        "{text}"
    );
    assert_eq!(run.status.code(), Some(2), "{text}");
}
