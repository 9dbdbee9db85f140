//! What the tests of `tiptoe watch` share, and scenarios unlike those of `watch_cases`.

use std::time::Duration;

use serde_json::Value;
use tiptoe_tests::breakpoint::RegisterLock;
use tiptoe_tests::logged::LoggedTiptoe;
use tiptoe_tests::process::{output, wait_until};
use tiptoe_tests::{
    Probe, Process, Report, Run, command, each, go_target, is_root, scaled, skipped, target,
};

use crate::watch_agent::has_events;
use crate::watch_before::traced;

pub(crate) const EVERY: &[&str] = &["kernel", "kernel-task", "agent"];
pub(crate) const KERNELS: &[&str] = &["kernel", "kernel-task"];

/// Returns `None`, after a message, if this machine cannot run these tests.
pub(crate) fn turn() -> Option<RegisterLock> {
    if is_root() && std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Some(RegisterLock::wait());
    }
    skipped("watches", "needs root, hardware breakpoints and BTF");
    None
}

pub(crate) fn turn_of(instrument: &Probe) -> Option<RegisterLock> {
    let is_watch = format!("{instrument:?}").contains("Some(\"watch\")");
    is_watch.then(RegisterLock::wait)
}

pub(crate) fn watch(options: &[&str]) -> Probe {
    Probe::watch().with(options)
}

pub(crate) fn heard(options: &[&str], pid: u32) -> LoggedTiptoe {
    let mut command = command();
    command
        .args(["watch", "--json", "--budget", "off"])
        .args(options);
    LoggedTiptoe::start(command.args(["-p", &pid.to_string()]))
}

pub(crate) fn on(backends: &[&str], check: impl Fn(&str)) {
    let Some(_turn) = turn() else { return };
    each(backends, check);
}

pub(crate) fn attached(watch: &Probe, mut program: Process) -> Report {
    let watched = watch.attach(&[program.pid()]);
    watched.wait_ready();
    program.go();
    assert!(program.finish().1.success());
    watched.finish()
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

pub(crate) fn hits(report: &Report, variable: usize) -> u64 {
    let hits = &report.value["watch"]["variables"][variable]["hits"];
    hits.as_u64().expect("hits")
}

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

#[test]
fn the_first_accesses_of_a_running_program_had_no_time() {
    on(EVERY, |via| {
        let mut program = Process::waiting(&target("watched"), &["hot", "60000"]);
        program.go();
        let mut watch = command();
        watch.args(["watch", "stats.hits", "--via", via, "--trace", "--json"]);
        watch.args(["--budget", "off", "--duration", "50ms", "-o", "-"]);
        let run = output(watch.args(["-p", &program.pid().to_string()]));
        assert!(run.status.success(), "{run:?}");
        let text = String::from_utf8_lossy(&run.stdout);
        let mut lines: Vec<Value> = text.lines().map(|line| Report::parse(line).value).collect();
        let report = lines.pop().expect("a report");
        assert!(!lines.is_empty(), "{report:#}");
        let untimed = lines.iter().filter(|line| line["at_ns"] == 0).count();
        assert_eq!(untimed, 0, "of {} accesses", lines.len());
        for row in report["watch"]["rows"].as_array().expect("rows") {
            assert_ne!(row["first_ns"], 0, "{row:#}");
        }
    });
}

#[test]
fn every_access_has_a_line() {
    on(EVERY, |via| {
        let rounds = scaled(500_000);
        let options = ["owner", "--budget", "off", "--via", via];
        let (lines, report) = traced(&options, "race", rounds);
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
    });
}

/// A line's time may be up to one tick (10 ms) before an earlier line's time, because tiptoe reads some accesses
/// late.
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

fn hot(via: &str) -> Run {
    let watched = Probe::watch_within("1%").with(&["stats.hits", "--via", via]);
    watched.run(&target("watched"), &["hot", "1000"])
}

#[test]
fn a_hot_variable_does_not_stop_its_program() {
    on(EVERY, |via| {
        let run = hot(via);
        let report = run.good();
        let watch = &report.value["watch"];
        assert_eq!(watch["variables"][0]["at_least"], true, "{watch:#}");
        let number = |key: &str| watch["allowance"][key].as_u64().expect("a number");
        let is_used_up = number("windows") > 0 && number("used_up") > 0;
        assert!(is_used_up, "{watch:#}");
        // Each window (period of the budget) counts the allowed hits, and up to one more for each CPU. `windows`
        // excludes the last window. Backends other than `kernel` may count more, because stopping threads takes
        // longer.
        let cpus = std::thread::available_parallelism().expect("CPUs").get() as u64;
        let most = (number("windows") + 1) * (number("hits") + cpus);
        let seen = hits(report, 0);
        let is_within = seen <= most || via != "kernel";
        assert!(seen >= number("hits") && is_within, "{seen} of {most}");
        let least = if via == "kernel" { seen } else { 100 * seen };
        assert!(said(&run, "hits") > least, "it has gone on: {watch:#}");
    });
}

#[test]
#[ignore = "nightly: asserts a share"]
fn a_hot_variable_is_sampled_evenly() {
    on(EVERY, |via| {
        let run = hot(via);
        let report = run.good();
        let seen = hits(report, 0);
        assert!(said(&run, "hits") > 100 * seen, "it has gone on");
        let seldom = find_row(report, "seldom")["count"].as_u64();
        let share = seldom.expect("a count") as f64 / seen as f64;
        let deviation = (0.1 * 0.9 / seen as f64).sqrt();
        assert!((share - 0.1).abs() < 4.0 * deviation, "{share} of {seen}");
    });
}

#[test]
fn running_programs_are_watched_and_continue() {
    on(EVERY, |via| {
        let mut program = Process::waiting(&target("watched"), &["hot", "1000"]);
        let options = ["stats.hits", "--duration", "300ms", "--via", via];
        let watched = watch(&options).attach(&[program.pid()]);
        watched.wait_ready();
        program.go();
        let report = watched.finish();
        assert!(hits(&report, 0) > 0, "{:#}", report.value);
        let said = program.line();
        assert!(said.starts_with("hits "), "{said:?}");
        assert!(program.finish().1.success());
    });
}

#[test]
fn a_tiptoe_that_is_killed_leaves_nothing() {
    on(EVERY, |via| {
        let program = Process::waiting(&target("watched"), &["forked", "1"]);
        let pid = program.pid();
        let killed = watch(&["stats.hits", "--via", via]).attach(&[pid]);
        killed.wait_ready();
        killed.process.signal(libc::SIGKILL);
        drop(killed);
        let has_ended = || !has_events(pid);
        wait_until("the agent's end", Duration::from_secs(20), has_ended);
        // All registers must be free again, and the agent (tiptoe's library) usable by the next tiptoe.
        let all = ["stats.hits", "stats.state", "owner", "total", "--all-slots"];
        let report = attached(&watch(&all).with(&["--via", via]), program);
        assert_eq!(hits(&report, 0), 20);
    });
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
        // An empty line may also mean that gdb has ended.
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
    // One register is free, and its use must not disturb gdb.
    let watched = watch(&["stats.hits"]).attach(&[program.pid()]);
    watched.wait_ready();
    program.go();
    let report = watched.finish();
    assert_eq!(hits(&report, 0), 20);
    debugger.close();
    drop(debugger);
}

#[test]
fn variables_of_go_are_named_with_their_package() {
    let program = match go_target("globals", &[]) {
        Ok(program) => program,
        Err(why) => return skipped("a program of Go's", &why),
    };
    on(KERNELS, |via| {
        let both = watch(&["main.Counter", "main.Config.Other", "--via", via]);
        let run = both.run(&program, &[]);
        let report = run.good();
        assert_eq!([0, 1].map(|variable| hits(report, variable)), [20, 20]);
    });
}
