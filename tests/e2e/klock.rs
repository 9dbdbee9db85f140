//! `tiptoe lock --kernel` agrees with perf's counts of the same tracepoints in the same run.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tiptoe_tests::{
    ExpectedCounts, Form, Process, Ready, Report, Tracepoint, command, is_root, process, skipped,
    target,
};

fn is_possible() -> bool {
    let missing = [
        (!is_root(), "not root"),
        (
            !PathBuf::from("/sys/kernel/btf/vmlinux").exists(),
            "the kernel has no BTF",
        ),
        (
            !PathBuf::from("/sys/kernel/tracing/events/lock/contention_begin").exists(),
            "the kernel has no lock:contention_begin",
        ),
    ];
    let missing = missing.into_iter().find(|(is_missing, _)| *is_missing);
    let why = missing.map(|(_, why)| why.to_owned()).or_else(refused);
    if let Some(why) = &why {
        skipped("waits for kernel locks", why);
    }
    why.is_none()
}

fn refused() -> Option<String> {
    let done = output(&["--kernel", "-a", "--duration", "10ms"]);
    let talk = String::from_utf8_lossy(&done.stderr).into_owned();
    (!done.status.success() && talk.contains("no permission")).then_some(talk)
}

fn lock(options: &[&str]) -> Command {
    let mut command = command();
    command.arg("lock").args(options);
    command
}

fn contended() -> Process {
    Process::waiting(&target("mmap_contended"), &["6", "2", "400"])
}

#[test]
fn a_run_that_ended_in_its_delay_said_nothing() {
    if is_possible() {
        let done = output(&["--kernel", "--delay", "1h", "--", "true"]);
        let talk = String::from_utf8_lossy(&done.stderr);
        assert!(talk.contains("before its delay was over"), "{talk}");
    }
}

struct PerfComparison {
    report: Report,
    perf: u64,
    expected: ExpectedCounts,
}

/// Returns `None` if perf cannot count.
fn both(options: &[&str], tracepoint: &str, filter: Option<&str>) -> Option<PerfComparison> {
    let mut program = contended();
    let mut perf = match Tracepoint::count(tracepoint, filter, program.pid()) {
        Ok(perf) => perf,
        Err(error) => {
            skipped(tracepoint, &error.to_string());
            return None;
        }
    };
    let pid = program.pid().to_string();
    let mut command = lock(options);
    let (tiptoe, ready) = Ready::of(command.args(["--json", "-p", &pid]), Process::start);
    ready.wait();
    let before = perf.read();
    program.go();
    let (said, status) = program.finish();
    assert!(status.success(), "{said}");
    let (text, status) = tiptoe.finish();
    assert!(status.success(), "tiptoe ended with {status}");
    let perf = perf.read() - before;
    let report = Report::parse(&text);
    let expected = ExpectedCounts::parse(&said);
    Some(PerfComparison {
        report,
        perf,
        expected,
    })
}

fn rows(report: &Report) -> &[Value] {
    let rows = report.value["waits"]["rows"].as_array();
    rows.map(Vec::as_slice).expect("rows")
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

fn sum(report: &Report, passes: impl Fn(&Value) -> bool) -> u64 {
    let rows = rows(report).iter().filter(|row| passes(row));
    rows.map(|row| number(&row["count"])).sum()
}

/// Returns whether the row's threads waited while they exited. By then, some kernels have removed perf's events.
fn at_exit(row: &Value) -> bool {
    let callsite = row["callsite"].as_str().unwrap_or_default();
    let last = ["acct_collect", "do_exit", "exit_mm", "mmput"];
    last.iter().any(|function| callsite.starts_with(function))
}

/// Asserts equal counts. But perf may miss waits of exiting threads, and tiptoe may miss as many waits as it
/// reports lost.
fn assert_agree(report: &Report, perf: u64, passes: impl Fn(&Value) -> bool) {
    let lost = number(&report.value["events"][0]["lost"]);
    let counted = sum(report, &passes);
    let late = sum(report, |row| passes(row) && at_exit(row));
    println!("tiptoe {counted} ({late} at exit), {lost} lost of any kind, perf {perf}");
    let agrees = counted - late..=counted + lost;
    assert!(agrees.contains(&perf), "{:#}", report.value);
}

fn assert_sound(report: &Report) {
    for row in rows(report) {
        let histogram = &row["histogram"];
        let buckets = histogram["counts"].as_array().expect("buckets").iter();
        let counted: u64 = buckets.map(number).sum::<u64>() + number(&histogram["zero_count"]);
        assert_eq!(counted, number(&row["count"]), "{row:#}");
        assert!(
            number(&histogram["max_ns"]) <= number(&row["total_ns"]),
            "{row:#}"
        );
    }
    let cost = &report.value["cost"];
    assert_eq!(cost["basis"], "measured", "{cost:#}");
    let programs = &cost["programs"];
    assert!(number(&programs["run_ns"]) > 0, "{cost:#}");
    assert!(
        number(&programs["all_runs"]) >= number(&programs["runs"]),
        "{cost:#}"
    );
}

#[test]
fn contended_waits_are_those_that_perf_counts() {
    if !is_possible() {
        return;
    }
    // Spinlocks are excluded, because perf attributes an interrupt's wait to the interrupted thread.
    let Some(PerfComparison { report, perf, .. }) = both(
        &["--kernel"],
        "lock:contention_begin",
        Some("flags == 2 || flags == 4"),
    ) else {
        return;
    };
    let of_rwsems = |row: &Value| row["type"] == "mmap_lock" || row["type"] == "rwsem";
    assert_agree(&report, perf, of_rwsems);
    assert!(perf > 0, "nothing waited");
    assert_eq!(number(&report.value["waits"]["unfinished"]), 0);
    assert_sound(&report);
    let writers = |row: &Value| row["type"] == "mmap_lock" && row["mode"] == "write";
    let writers: Vec<&Value> = rows(&report).iter().filter(|row| writers(row)).collect();
    assert!(!writers.is_empty(), "{:#}", report.value);
    for row in writers {
        let callsite = row["callsite"].as_str().unwrap_or_default();
        assert!(
            !callsite.contains("rwsem") && !callsite.contains("down_write"),
            "{row:#}"
        );
    }
}

#[test]
fn every_acquisition_is_one_that_perf_counts() {
    if !is_possible() {
        return;
    }
    let tracepoint = "mmap_lock:mmap_lock_acquire_returned";
    let Some(PerfComparison {
        report,
        perf,
        expected,
    }) = both(&["--kernel", "--every"], tracepoint, None)
    else {
        return;
    };
    let event = &report.value["events"][0];
    assert_eq!(event["event"], "klock:mmap_lock/every/");
    assert_eq!(sum(&report, |_| true), number(&event["count"]));
    assert_agree(&report, perf, |_| true);
    assert!(perf > 1000, "{perf} acquisitions");
    // munmap downgrades its lock once it has removed the mapping from the process's tree.
    let downgraded = sum(&report, |row| row["outcome"] == "downgraded");
    let unmapped = expected.0["mmap"];
    println!("{downgraded} downgrades, {unmapped} calls of munmap");
    assert!(
        downgraded == 0 || downgraded >= unmapped,
        "{:#}",
        report.value
    );
    assert_sound(&report);
}

#[test]
fn only_mmap_lock_by_process_and_by_lock() {
    if !is_possible() {
        return;
    }
    for by in ["process", "lock", "thread", "cgroup", "type"] {
        let mut program = contended();
        let pid = program.pid();
        let pid_text = pid.to_string();
        let options = ["--kernel", "--mmap", "--json", "--by", by, "-p", &pid_text];
        let (tiptoe, ready) = Ready::of(&mut lock(&options), Process::start);
        ready.wait();
        program.go();
        program.finish();
        let (text, status) = tiptoe.finish();
        assert!(status.success(), "tiptoe ended with {status}");
        let report = Report::parse(&text);
        assert!(!rows(&report).is_empty(), "{by}: nothing waited");
        for row in rows(&report) {
            assert_eq!(row["type"], "mmap_lock", "{row:#}");
            let key = row["key"].as_str().unwrap_or_default();
            let expected = match by {
                "process" => format!("{pid} mmap_contended"),
                "lock" => format!("of {pid} mmap_contended"),
                "thread" => key.to_owned(),
                "cgroup" => format!("/{}", key.trim_start_matches('/')),
                _ => String::new(),
            };
            assert_eq!(key, expected, "{row:#}");
            assert_eq!(row["key"].is_null(), by == "type", "{row:#}");
        }
    }
}

fn output(options: &[&str]) -> Output {
    process::output(&mut lock(options))
}

#[test]
fn a_command_is_watched_from_its_first_instruction_and_has_its_status() {
    if !is_possible() {
        return;
    }
    let program = target("mmap_contended");
    let program = program.to_str().expect("text");
    let done = output(&["--kernel", "--every", "--", program, "1", "0", "20"]);
    let talk = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{talk}");
    assert!(talk.contains("mmap_contended (pid "), "{talk}");
    let last = talk.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("cost of tracing: ") && last.contains("measured"),
        "{talk}"
    );
    let done = output(&["--kernel", "--", "sh", "-c", "exit 7"]);
    assert_eq!(done.status.code(), Some(7));
}

#[test]
fn the_whole_system_with_intervals() {
    if !is_possible() {
        return;
    }
    let options = [
        "--kernel",
        "-a",
        "--json",
        "--duration",
        "400ms",
        "--interval",
        "150ms",
        "--by",
        "type",
    ];
    let done = output(&options);
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let (intervals, report) = text.trim_end().rsplit_once('\n').expect("lines");
    assert_eq!(intervals.lines().count(), 2, "{text}");
    let report = Report::parse(report);
    assert!(number(&report.value["cpus"]) > 0);
    assert_eq!(report.value["targets"], Value::Array(Vec::new()));
}

#[test]
fn the_whole_system_while_a_command_runs() {
    if !is_possible() {
        return;
    }
    for (command, status) in [(&["false"][..], 1), (&["--", "sh", "-c", "exit 7"], 7)] {
        let done = output(&[&["--kernel", "-a", "--json", "-o", "-"], command].concat());
        assert_eq!(done.status.code(), Some(status), "{done:?}");
        let text = String::from_utf8_lossy(&done.stdout);
        let report = Report::parse(text.trim_end());
        assert!(number(&report.value["cpus"]) > 0);
        assert_eq!(report.value["targets"], Value::Array(Vec::new()));
    }
}

#[test]
fn impossible_requests_end_with_one_error_and_status_2() {
    for (options, said) in [
        (&["--mmap", "-p", "1"][..], "--mmap without --kernel"),
        (&["--every", "-a"], "--every without --kernel"),
        (
            &["--by", "cgroup", "--", "true"],
            "--by cgroup without --kernel",
        ),
        (&["--now", "--", "true"], "--now needs a running process"),
        (&["-p", "4194303"], "4194303"),
        (&["--kernel"], "no process to trace"),
        (
            &["--kernel", "--via", "agent", "-a"],
            "--via agent does not go with --kernel",
        ),
        (&["--kernel", "-p", "4194303"], "4194303"),
        (
            &["--kernel", "--", "/nonexistent/program"],
            "/nonexistent/program",
        ),
    ] {
        let done = output(options);
        let talk = String::from_utf8_lossy(&done.stderr).into_owned();
        let needs_bpf = !is_root() && options.contains(&"--kernel");
        assert_eq!(done.status.code(), Some(2), "{options:?}: {talk}");
        assert!(needs_bpf || talk.contains(said), "{options:?}: {talk}");
        assert!(
            done.stdout.is_empty() && talk.lines().count() <= 2,
            "{talk}"
        );
    }
}

#[test]
fn the_missing_rights_are_named() {
    if !is_root() {
        return skipped("a user without rights", "not root");
    }
    let folder = std::env::temp_dir().join(format!("tiptoe-klock-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let copy = folder.join("tiptoe");
    std::fs::copy(command().get_program(), &copy).expect("a copy");
    let mut setpriv = Command::new("setpriv");
    setpriv
        .args(["--reuid", "65534", "--clear-groups"])
        .arg(&copy);
    let done = process::output(setpriv.args(["lock", "--kernel", "-a", "--duration", "1"]));
    let _ = std::fs::remove_dir_all(&folder);
    let talk = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(2), "{talk}");
    assert!(
        talk.contains("no permission to load BPF programs"),
        "{talk}"
    );
    assert!(
        talk.contains("hint: run as root, or `sudo sh -c") && talk.contains("setcap cap_bpf,"),
        "{talk}"
    );
}

#[test]
fn the_trace_ends_when_its_process_is_a_zombie() {
    if !is_possible() {
        return;
    }
    let program = contended();
    let mut command = lock(&["--kernel", "--json", "-p", &program.pid().to_string()]);
    let (tiptoe, ready) = Ready::of(&mut command, Process::start);
    ready.wait();
    program.signal(libc::SIGKILL);
    let (text, status) = tiptoe.finish();
    assert!(status.success(), "tiptoe ended with {status}");
    let words = &Report::parse(&text).value["command"];
    let first = words[0].as_str().unwrap_or_default();
    assert!(first.ends_with("mmap_contended"), "{words}");
}

fn printed(options: &[&str]) -> String {
    let mut program = contended();
    let pid = program.pid().to_string();
    let mut command = lock(&["--kernel", "-p", &pid]);
    let (tiptoe, ready) = Ready::of(command.args(options), Process::start);
    ready.wait();
    program.go();
    program.finish();
    let (text, status) = tiptoe.finish();
    assert!(status.success(), "tiptoe ended with {status}");
    text
}

/// Returns how often BPF programs ran for the watched process, and in all.
fn runs(contends: bool) -> [u64; 2] {
    let [mut watched, mut other] = [contended(), contended()];
    let pid = watched.pid().to_string();
    let mut command = lock(&["--kernel", "--mmap", "--json", "-p", &pid]);
    let (tiptoe, ready) = Ready::of(&mut command, Process::start);
    ready.wait();
    other.go();
    assert!(other.finish().1.success());
    match contends {
        true => {
            watched.go();
            assert!(watched.finish().1.success());
        }
        // Ends tiptoe before the idle target, whose exit may wait for the kernel's locks.
        false => tiptoe.signal(libc::SIGINT),
    }
    let (text, status) = tiptoe.finish();
    assert!(status.success(), "tiptoe ended with {status}");
    let report = Report::parse(&text);
    let programs = &report.value["cost"]["programs"];
    ["runs", "all_runs"].map(|key| number(&programs[key]))
}

/// The tracepoint has no filter, so BPF programs run for other processes' locks, too.
#[test]
fn runs_for_other_processes_are_not_the_targets() {
    if !is_possible() {
        return;
    }
    let [idle, beside] = runs(false);
    let [own, all] = runs(true);
    println!("{idle} of {beside} runs were an idle target's, {own} of {all} a busy one's");
    assert!(idle == 0 && beside > 0);
    assert!(0 < own && own < all);
}

#[test]
fn the_json_keeps_its_form() {
    if !is_possible() {
        return;
    }
    let row = ["type", "mode", "outcome", "key", "callsite", "callers[]"];
    let mut any: Vec<String> = row.map(|key| format!(".waits.rows[].{key}")).to_vec();
    let others = [
        ".command[]",
        ".tiptoe",
        ".notes[]",
        ".typed_notes[].note.kind",
        ".waits.drops[].reason",
    ];
    any.extend(others.map(str::to_owned));
    let any: Vec<&str> = any.iter().map(String::as_str).collect();
    for (options, form) in [
        (
            &["--by", "callsite", "--interval", "100ms"][..],
            include_str!("forms/klock-callsite.txt"),
        ),
        (
            &["--by", "cgroup", "--every"],
            include_str!("forms/klock-cgroup.txt"),
        ),
        (&["--mmap"], include_str!("forms/klock-mmap.txt")),
    ] {
        let text = printed(&[options, &["--json"]].concat());
        Form::of_json(&text, &any).assert_is(form);
    }
}
