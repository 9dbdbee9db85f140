//! `tiptoe watch`: each access counts once, on any thread, with the stored value.

use serde_json::Value;
use tiptoe_tests::breakpoint::RegisterLock;
use tiptoe_tests::logged::LoggedTiptoe;
use tiptoe_tests::process::{output, wait_until};
use tiptoe_tests::{
    Probe, Process, Ready, Report, Run, command, go_target, is_root, scaled, skipped, target,
};

use crate::watch_before::traced;

/// Waits for the right to use debug registers. `None`, with a note, if this machine cannot run these tests.
pub(crate) fn turn() -> Option<RegisterLock> {
    if is_root() && std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Some(RegisterLock::wait());
    }
    skipped("watches", "needs root, hardware breakpoints and BTF");
    None
}

/// Waits for the debug registers if an instrument needs them, because other tests count free ones.
pub(crate) fn turn_of(instrument: &Probe) -> Option<RegisterLock> {
    let is_watch = format!("{instrument:?}").contains("Some(\"watch\")");
    is_watch.then(RegisterLock::wait)
}

pub(crate) fn watch(options: &[&str]) -> Probe {
    Probe::watch().with(options)
}

/// Watches a running program, and lets the test wait for messages.
pub(crate) fn heard(options: &[&str], pid: u32) -> LoggedTiptoe {
    let mut command = command();
    command
        .args(["watch", "--json", "--budget", "off"])
        .args(options);
    LoggedTiptoe::start(command.args(["-p", &pid.to_string()]))
}

/// Runs the target in this mode, watched from its first instruction on.
pub(crate) fn run(options: &[&str], mode: &str, rounds: u64) -> Run {
    watch(options).run(&target("watched"), &[mode, &rounds.to_string()])
}

pub(crate) fn rows(report: &Report) -> &[Value] {
    let rows = report.value["watch"]["rows"].as_array();
    rows.map_or(&[], Vec::as_slice)
}

pub(crate) fn find_row<'r>(report: &'r Report, function: &str) -> &'r Value {
    let at = format!("watched:{function}+");
    let starts = |row: &&Value| row["at"].as_str().is_some_and(|text| text.starts_with(&at));
    let mut found = rows(report).iter().filter(starts);
    match (found.next(), found.next()) {
        (Some(row), None) => row,
        _ => panic!("not one row of `{function}`: {:#}", report.value["watch"]),
    }
}

/// Returns how often each value was stored.
fn values(row: &Value) -> Vec<(&str, u64)> {
    let values = row["values"].as_array().into_iter().flatten();
    values
        .map(|value| {
            let text = value["value"].as_str().expect("a value");
            (text, value["count"].as_u64().expect("a count"))
        })
        .collect()
}

fn callers(row: &Value) -> String {
    row["stacks"][0]["callers"].to_string()
}

pub(crate) fn hits(report: &Report, variable: usize) -> u64 {
    let hits = &report.value["watch"]["variables"][variable]["hits"];
    hits.as_u64().expect("hits")
}

/// Returns the number after this word in the output.
pub(crate) fn said(run: &Run, word: &str) -> u64 {
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    let mut words = text.split_whitespace().skip_while(|found| *found != word);
    let number = words.nth(1).and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("no `{word}` in {text:?}"))
}

pub(crate) fn is_whole(report: &Report) {
    let watch = &report.value["watch"];
    assert!(watch["drops"].is_null(), "{watch:#}");
    let variables = watch["variables"].as_array().into_iter().flatten();
    for variable in variables {
        assert_eq!(variable["at_least"], false, "{watch:#}");
    }
}

/// Returns the row of the thread of `watched corrupt` that stores a wrong value.
pub(crate) fn culprit(report: &Report) -> &Value {
    is_whole(report);
    let culprit = find_row(report, "scribble");
    assert_eq!(culprit["count"], 1);
    assert_eq!(
        (&culprit["last_old"], &culprit["last_new"]),
        (&"1".into(), &"57005".into())
    );
    assert_eq!(culprit["racy"], 0, "{culprit:#}");
    assert!(
        callers(culprit).contains("watched:one_of_many+"),
        "{culprit:#}"
    );
    assert_eq!(rows(report).len(), 1, "{:#}", report.value["watch"]);
    culprit
}

/// A target that always stores keeps its speed under a watch with a budget of 1%.
pub(crate) fn check_hot(form: &[&str]) {
    let watched = Probe::watch_within("1%").with(&["stats.hits"]).with(form);
    let run = watched.run(&target("watched"), &["hot", "1000"]);
    let report = run.good();
    let watch = &report.value["watch"];
    assert_eq!(watch["variables"][0]["at_least"], true, "{watch:#}");
    assert!(
        watch["allowance"]["used_up"].as_u64() > Some(0),
        "{watch:#}"
    );
    let seen = hits(report, 0);
    assert!(seen > 0 && said(&run, "hits") > 100 * seen, "{watch:#}");
}

#[test]
fn the_thread_that_corrupts_a_variable_is_named() {
    let Some(_turn) = turn() else { return };
    let run = run(&["stats.state", "--changed"], "corrupt", 1);
    let culprit = culprit(run.good());
    assert!(culprit["tid"].as_u64().is_some(), "{culprit:#}");
}

#[test]
fn threads_that_start_and_end_are_each_seen_exactly_once() {
    let Some(_turn) = turn() else { return };
    let run = run(&["total"], "churn", scaled(10_000));
    let report = run.good();
    is_whole(report);
    let total = said(&run, "total");
    assert_eq!(hits(report, 0), total);
    let add = find_row(report, "add");
    assert_eq!(add["count"], total);
    assert_eq!(add["changed"], total);
    assert!(add["tid"].is_null(), "{add:#}");
    assert!(callers(add).contains("watched:link_of_chain+"), "{add:#}");
}

#[test]
fn each_racing_store_has_its_own_value() {
    let Some(_turn) = turn() else { return };
    let rounds = scaled(500_000);
    let run = run(&["owner"], "race", rounds);
    let report = run.good();
    is_whole(report);
    for (function, value) in [("store_one", "1"), ("store_two", "2")] {
        let row = find_row(report, function);
        assert_eq!(row["count"], rounds, "{row:#}");
        assert_eq!(row["racy"], 0, "{row:#}");
        assert_eq!(values(row), [(value, rounds)], "{row:#}");
    }
}

#[test]
fn values_are_printed_by_their_types() {
    let Some(_turn) = turn() else { return };
    let run = run(&["stats.level", "mode", "stats.state"], "values", 1);
    let report = run.good();
    is_whole(report);
    let level = find_row(report, "set_level");
    assert_eq!(values(level), [("-5", 3), ("7", 1)]);
    assert_eq!(level["changed"], 2, "{level:#}");
    // Each stack has its own caller.
    for stack in level["stacks"].as_array().expect("stacks") {
        let caller = stack["callers"][0].as_str().expect("a caller");
        assert!(caller.starts_with("watched:values+"), "{level:#}");
    }
    let mode = find_row(report, "values");
    assert_eq!(
        (&mode["last_old"], &mode["last_new"]),
        (&"IDLE".into(), &"BUSY".into())
    );
    // Stored by read(2), perhaps by several stores.
    let state = rows(report).iter().find(|row| row["in_kernel"] == true);
    let state = state.expect("the call is seen");
    assert_eq!(state["variable"], "watched:stats.state");
    assert_eq!(state["last_new"], "0");
}

/// Regression: accesses before the clock started, but after the first event was enabled, were reported at 0.
#[test]
fn the_first_accesses_of_a_running_program_had_no_time() {
    let Some(_turn) = turn() else { return };
    for via in ["kernel", "kernel-task", "agent"] {
        let mut program = Process::waiting(&target("watched"), &["hot", "60000"]);
        program.go();
        let mut watch = command();
        watch.args(["watch", "stats.hits", "--via", via, "--trace", "--json"]);
        watch.args(["--budget", "off", "--duration", "50ms", "-o", "-"]);
        let run = output(watch.args(["-p", &program.pid().to_string()]));
        assert!(run.status.success(), "{via}: {run:?}");
        let text = String::from_utf8_lossy(&run.stdout);
        let mut lines: Vec<Value> = text.lines().map(|line| Report::parse(line).value).collect();
        let report = lines.pop().expect("a report");
        assert!(!lines.is_empty(), "{via}: {report:#}");
        let untimed = lines.iter().filter(|line| line["at_ns"] == 0).count();
        assert_eq!(untimed, 0, "{via}: of {} accesses", lines.len());
        for row in report["watch"]["rows"].as_array().expect("rows") {
            assert_ne!(row["first_ns"], 0, "{via}: {row:#}");
        }
    }
}

#[test]
fn conditions_select_accesses() {
    let Some(_turn) = turn() else { return };
    let one = run(
        &["stats.level", "--when", "new == -5 && old != new"],
        "values",
        1,
    );
    let level = find_row(one.good(), "set_level");
    assert_eq!(values(level), [("-5", 1)]);
    assert_eq!(hits(one.good(), 0), 4);
    let none = run(&["stats.level", "--when", "new > 100"], "values", 1);
    assert_eq!(rows(none.good()).len(), 0);
    assert_eq!(hits(none.good(), 0), 4);
}

/// Each line has its own value, in its thread's order.
#[test]
fn every_access_has_a_line() {
    let Some(_turn) = turn() else { return };
    let rounds = scaled(500_000);
    let (lines, report) = traced(&["owner", "--budget", "off"], "race", rounds);
    is_whole(&report);
    let mut counts = [0, 0];
    for line in lines {
        let function = line["at"].as_str().expect("a place");
        let which = usize::from(function.starts_with("watched:store_two+"));
        assert_eq!(line["new"], (which + 1).to_string(), "{line:#}");
        assert_eq!(line["racy"], false, "{line:#}");
        counts[which] += 1;
        assert!(line["at_ns"].is_u64(), "{line:#}");
    }
    assert_eq!(counts, [rounds, rounds]);
}

/// A line may be up to one tick (10 ms) older than an earlier one, because its access may not have been readable
/// then.
#[test]
#[ignore = "nightly: asserts a time"]
fn lines_are_in_order() {
    let Some(_turn) = turn() else { return };
    let (lines, _) = traced(&["owner", "--budget", "off"], "race", scaled(500_000));
    let mut last = 0;
    for line in lines {
        let at = line["at_ns"].as_u64().expect("a time");
        assert!(at + 10_000_000 > last, "{line:#}");
        last = at;
    }
}

#[test]
fn executions_of_an_instruction_are_counted() {
    let Some(_turn) = turn() else { return };
    let run = run(&["set_level:x"], "values", 1);
    let row = find_row(run.good(), "set_level");
    let at = row["at"].as_str().expect("a place");
    assert!(at.starts_with("watched:set_level+0x0 (watched.c:"), "{at}");
    assert_eq!((&row["count"], &row["changed"]), (&4.into(), &0.into()));
    assert!(callers(row).contains("watched:values+"), "{row:#}");
}

#[test]
fn a_hot_variable_does_not_stop_its_program() {
    let Some(_turn) = turn() else { return };
    let hot = |budget: &str| {
        let run = Probe::watch_within(budget).with(&["stats.hits"]);
        run.run(&target("watched"), &["hot", "1000"])
    };
    let run = hot("1%");
    let report = run.good();
    let variable = &report.value["watch"]["variables"][0];
    assert_eq!(variable["at_least"], true, "{variable:#}");
    let allowance = &report.value["watch"]["allowance"];
    let number = |key: &str| allowance[key].as_u64().expect("a number");
    let seen = hits(report, 0);
    assert!(
        number("windows") > 0 && number("used_up") > 0,
        "{allowance:#}"
    );
    // The hits of each window, and one for each CPU. The last window is not counted yet.
    let cpus = std::thread::available_parallelism().expect("CPUs").get() as u64;
    let most = (number("windows") + 1) * (number("hits") + cpus);
    assert!((number("hits")..=most).contains(&seen), "{seen} of {most}");
    assert!(said(&run, "hits") > seen, "it has gone on");
}

/// The recorded accesses are few, and a fair sample: a tenth is from one place, within four standard deviations.
#[test]
#[ignore = "nightly: asserts a share"]
fn a_hot_variable_is_sampled_evenly() {
    let Some(_turn) = turn() else { return };
    let watched = Probe::watch_within("1%").with(&["stats.hits"]);
    let run = watched.run(&target("watched"), &["hot", "1000"]);
    let report = run.good();
    let seen = hits(report, 0);
    assert!(said(&run, "hits") > 100 * seen, "it has gone on");
    let share = find_row(report, "seldom")["count"]
        .as_u64()
        .expect("a count") as f64
        / seen as f64;
    let deviation = (0.1 * 0.9 / seen as f64).sqrt();
    assert!((share - 0.1).abs() < 4.0 * deviation, "{share} of {seen}");
}

#[test]
fn hits_of_other_processes_are_counted_separately() {
    let Some(_turn) = turn() else { return };
    let run = run(&["stats.hits"], "forked", 1);
    let report = run.good();
    assert_eq!(hits(report, 0), 20);
    assert_eq!(report.value["watch"]["foreign"], 30);
}

#[test]
fn the_watch_ends_with_its_process() {
    let Some(_turn) = turn() else { return };
    let exec = run(&["stats.hits"], "again", 1);
    let report = exec.good();
    assert_eq!(hits(report, 0), 1);
    assert!(
        report.value["notes"].to_string().contains("called exec"),
        "{:#}",
        report.value["notes"]
    );
    // Only the report, a file, may say so.
    assert!(!exec.stderr.contains("called exec"), "{}", exec.stderr);
}

#[test]
fn running_programs_are_watched_and_continue() {
    let Some(_turn) = turn() else { return };
    let mut program = Process::waiting(&target("watched"), &["hot", "1500"]);
    let watched = watch(&["stats.hits", "--duration", "300ms"]).attach(&[program.pid()]);
    watched.wait_ready();
    program.go();
    let report = watched.finish();
    assert!(hits(&report, 0) > 0, "{:#}", report.value);
    // The program continues as if it had not been watched.
    let said = program.line();
    assert!(said.starts_with("hits "), "{said:?}");
    assert!(program.finish().1.success());
}

#[test]
fn a_tiptoe_that_is_killed_leaves_nothing() {
    let Some(_turn) = turn() else { return };
    let mut program = Process::waiting(&target("watched"), &["forked", "1"]);
    let mut command = command();
    command.args(["watch", "stats.hits", "-p", &program.pid().to_string()]);
    let (tiptoe, ready) = Ready::of(&mut command, Process::start);
    ready.wait();
    tiptoe.signal(libc::SIGKILL);
    drop(tiptoe);
    program.go();
    assert!(program.finish().1.success());
    // All registers are free again.
    let all = watch(&["stats.hits", "stats.state", "owner", "total", "--all-slots"]);
    let run = all.run(&target("watched"), &["forked", "1"]);
    assert_eq!(hits(run.good(), 0), 20);
}

#[test]
fn what_cannot_be_watched_is_refused() {
    let Some(_turn) = turn() else { return };
    let program = target("watched");
    for (variable, words) in [
        ("nothing", &["no variable `nothing`"][..]),
        ("stats.hitz", &["no member `hitz`", "`hits`"]),
        ("stats", &["stats", "1, 2, 4 or 8"]),
        ("stats.flag", &["bit field"]),
        ("stats.hits:r", &["reads alone", "rw"]),
        ("stats.hits:3", &["not a length"]),
        ("0x1001:8", &["no multiple of 8"]),
        ("0x1000:8", &["no memory is mapped"]),
        ("scribble", &["is a function", "scribble:x"]),
        ("libc.so.6:environ", &["no binary `libc", "not loaded"]),
    ] {
        let run = watch(&[variable]).run(&program, &["hot", "1"]);
        assert_eq!(run.status, 2, "{variable}: {}", run.stderr);
        assert!(run.stdout.is_empty(), "{variable}: it has run");
        for word in words {
            assert!(
                run.stderr.contains(word),
                "{variable}: no `{word}` in {}",
                run.stderr
            );
        }
    }
    let four = ["stats.hits", "stats.state", "owner", "total"];
    let run = watch(&four).run(&program, &["values", "1"]);
    assert_eq!(run.status, 2, "{}", run.stderr);
    assert!(run.stderr.contains("--all-slots"), "{}", run.stderr);
    for (variable, when) in [("owner", "new = 1"), ("share", "new > 1")] {
        let run = watch(&[variable, "--when", when]).run(&program, &["values", "1"]);
        assert_eq!(run.status, 2, "{}", run.stderr);
    }
}

#[test]
fn a_debugger_keeps_its_registers() {
    let Some(_turn) = turn() else { return };
    let Some(gdb) = tiptoe_tests::installed("gdb") else {
        return skipped("a debugger beside a watch", "install gdb");
    };
    let mut program = Process::waiting(&target("watched"), &["forked", "1"]);
    let pid = program.pid().to_string();
    let mut debugger = std::process::Command::new(gdb);
    debugger
        .args(["-nx", "-q", "-p", &pid])
        .args(["-ex", "set pagination off"]);
    for variable in ["owner", "total", "stats.state"] {
        debugger.args(["-ex", &format!("watch {variable}")]);
    }
    // gdb holds three registers while it lets the program run.
    debugger.args(["-ex", "echo armed\\n", "-ex", "continue"]);
    let mut debugger = Process::start(&mut debugger);
    loop {
        let line = debugger.line();
        // gdb prints empty lines, and only these at its end.
        assert!(!line.is_empty() || debugger.lives(), "gdb ended");
        if line.contains("armed") {
            break;
        }
    }
    let held = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
        status.contains("State:\tS")
    };
    wait_until(
        "gdb lets it go on",
        std::time::Duration::from_secs(20),
        held,
    );
    let run = watch(&["stats.hits", "head"]).attach_and_wait(&[program.pid()]);
    assert_eq!(run.status, 2, "{}", run.stderr);
    assert!(
        run.stderr.contains("no debug register is left"),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("gdb (pid"), "{}", run.stderr);
    // One register is free, and using it must not disturb gdb.
    let watched = watch(&["stats.hits"]).attach(&[program.pid()]);
    watched.wait_ready();
    program.go();
    let report = watched.finish();
    assert_eq!(hits(&report, 0), 20);
    debugger.close();
    drop(debugger);
}

/// Regression: `main.Counter` was parsed as member `Counter` of `main`.
#[test]
fn variables_of_go_are_named_with_their_package() {
    let Some(_turn) = turn() else { return };
    let program = match go_target("globals", &[]) {
        Ok(program) => program,
        Err(why) => return skipped("a program of Go's", &why),
    };
    let run = watch(&["main.Counter", "main.Config.Other"]).run(&program, &[]);
    let report = run.good();
    assert_eq!([0, 1].map(|variable| hits(report, variable)), [20, 20]);
}
