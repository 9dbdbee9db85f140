//! `--ready-fd`: a program that waits for `ready` misses nothing afterwards.

use std::path::Path;
use std::process::{Command, Output};

use tiptoe_tests::process::output;
use tiptoe_tests::target::folder;
use tiptoe_tests::tiptoe::AttachedTiptoe;
use tiptoe_tests::{
    ExpectedCounts, Probe, Process, Ready, Report, WaitingTarget, command, is_root, skipped, target,
};

const INSTRUMENTS: [&[&str]; 8] = [
    &["probe", "libc.so.6:malloc"],
    &["probe", "--latency", "libc.so.6:malloc"],
    &["probe", "--via", "kernel", "libc.so.6:malloc"],
    &["lock"],
    &["lock", "--kernel"],
    &["watch", "ld-linux-x86-64.so.2:_rtld_global:8"],
    &["stat", "-e", "task-clock"],
    &["stat", "-a", "-e", "cpu-clock"],
];

fn with_file(file: &Path, arguments: &[&str]) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"exec 3>"$1"; shift; exec "$@""#, "sh"]);
    shell.arg(file).arg(command().get_program()).args(arguments);
    output(&mut shell)
}

#[test]
fn a_command_begins_after_the_signal_and_without_the_descriptor() {
    if !is_root() {
        return skipped("counting in the kernel", "needs root");
    }
    let file = folder().join("ready-begins");
    let name = file.to_str().expect("UTF-8");
    let script = r#"cat "$0"; [ -e /proc/self/fd/3 ] && echo inherited; true"#;
    for instrument in INSTRUMENTS {
        let _turn = (instrument[0] == "watch").then(tiptoe_tests::breakpoint::RegisterLock::wait);
        let rest = ["--ready-fd", "3", "--", "sh", "-c", script, name];
        let ran = with_file(&file, &[instrument, &rest].concat());
        let talk = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.success(), "{instrument:?}: {talk}");
        assert_eq!(ran.stdout, b"ready\n", "{instrument:?}: {talk}");
        let lines = talk.lines().filter(|line| line.starts_with("counting: "));
        assert_eq!(lines.count(), 1, "{instrument:?}: {talk}");
    }
}

#[test]
fn a_command_that_is_counted_later_begins_before_the_signal() {
    let file = folder().join("ready-later");
    let name = file.to_str().expect("UTF-8");
    let delayed = [
        "probe",
        "libc.so.6:malloc",
        "--delay",
        "1s",
        "--ready-fd",
        "3",
    ];
    // The script ends when its parent changes, so it ends with tiptoe.
    let script = r#"cat "$0"; lives() { read -r pid comm state parent rest < /proc/$$/stat && [ $parent = $PPID ]; }
while [ ! -s "$0" ] && lives; do sleep 0.01; done; echo then; cat "$0""#;
    let ran = with_file(
        &file,
        &[&delayed[..], &["--", "sh", "-c", script, name]].concat(),
    );
    assert_eq!(ran.stdout, b"then\nready\n", "{ran:?}");
}

#[test]
fn a_process_is_counted_from_the_signal_on() {
    if !is_root() {
        return skipped("counting in the kernel", "needs root");
    }
    let mut program = Process::waiting(&target("counted"), &["sleeps", "500"]);
    let stat = Probe::stat().with(&["-e", "context-switches"]);
    let counting = stat.attach(&[program.pid()]);
    counting.wait_ready();
    program.go();
    let (said, status) = program.finish();
    assert!(status.success());
    let switches = ExpectedCounts::parse(&said).0["switches"];
    let report = counting.finish();
    let count = report.value["events"][0]["count"].as_u64();
    assert!(count >= Some(switches), "{said}: {:#}", report.value);
}

#[test]
fn a_signal_ends_the_trace_of_the_whole_system() {
    if !is_root() {
        return skipped("counting in the whole system", "needs root");
    }
    for instrument in [&["lock", "--kernel"][..], &["stat", "-e", "cpu-clock"]] {
        for signal in [libc::SIGINT, libc::SIGTERM] {
            let mut tiptoe = command();
            tiptoe.args(instrument).args(["-a", "--json"]);
            let (tiptoe, ready) = Ready::of(&mut tiptoe, Process::start);
            ready.wait();
            tiptoe.signal(signal);
            let (text, status) = tiptoe.finish();
            assert!(status.success(), "{instrument:?}: {status}");
            assert!(Report::parse(&text).value["cpus"].as_u64() > Some(0));
        }
    }
}

#[test]
fn json_on_stderr_stays_json() {
    let ran =
        output(command().args(["probe", "libc.so.6:malloc", "--json", "--", "sh", "-c", ":"]));
    Report::parse(&String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn a_process_that_was_attached_later_was_not_named() {
    if !is_root() {
        return skipped("the kernel's tracepoints", "needs root");
    }
    let first = WaitingTarget::through(&["env"], &target("hot"), &["1", "1000"]);
    let (second, attached) = attach_slowly(&first, Probe::lock());
    attached.wait_ready();
    assert_eq!(first.end().0["add"], 1000);
    let pid = second.pid();
    assert!(second.finish().1.success());
    let report = attached.finish();
    let mut notes = report.value["typed_notes"]
        .as_array()
        .expect("notes")
        .iter();
    let is_named = notes.any(|note| {
        let note = &note["note"];
        note["kind"] == "attached-later" && note["process"]["pid"] == pid
    });
    assert!(is_named, "{:#}", report.value);
}

/// The second process holds the loader's lock. tiptoe tries for seconds to load its library. Then the kernel counts
/// in that process.
fn attach_slowly(first: &WaitingTarget, probe: Probe) -> (Process, AttachedTiptoe) {
    let mut second = Process::start(Command::new(target("loader_locked")).arg("iterate"));
    assert_eq!(second.line(), "locked");
    let attached = probe.attach(&[first.pid, second.pid()]);
    (second, attached)
}

/// Returns a report in which only the first process called `add`, before the second was attached.
fn count_of_the_first(options: &[&str]) -> Option<Report> {
    if !is_root() {
        skipped("uprobes", "needs root");
        return None;
    }
    let first = WaitingTarget::through(&["env"], &target("hot"), &["1", "1000"]);
    let site = first.site("add");
    let (second, attached) = attach_slowly(&first, Probe::new(&["add"]).with(options));
    site.wait_probed();
    assert_eq!(first.end().0["add"], 1000);
    attached.wait_ready();
    assert!(second.finish().1.success());
    Some(attached.finish())
}

#[test]
fn counting_began_with_the_first_process() {
    let Some(report) = count_of_the_first(&[]) else {
        return;
    };
    assert_eq!(report.count("add"), 0, "{:#}", report.value);
    let event = report.event("add").expect("the event");
    let [enabled, duration] =
        [&event["time_enabled_ns"], &report.value["duration_ns"]].map(|time| time.as_u64());
    assert!(enabled <= duration, "{:#}", report.value);
}

#[test]
fn counting_by_scope_began_with_the_first_process() {
    if let Some(report) = count_of_the_first(&["--by", "scope"]) {
        assert_eq!(report.count("add"), 0, "{:#}", report.value);
    }
}
