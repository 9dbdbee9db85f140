//! The report says if a trace or a probe ended early, and only then.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tiptoe_tests::process::wait_until;
use tiptoe_tests::{Probe, Process, Report, WaitingTarget, command, target};

const LIMIT: Duration = Duration::from_secs(20);

fn notes(report: &Report) -> String {
    report.value["notes"].to_string()
}

fn within_budget(spec: &str, calls: &str) -> Report {
    let output = command()
        .args(["probe", spec, "--json", "--"])
        .arg(target("storm"))
        .arg(calls)
        .output()
        .expect("the command runs");
    let said = String::from_utf8_lossy(&output.stderr);
    let json = said.lines().find(|line| line.starts_with('{'));
    Report::parse(json.unwrap_or_else(|| panic!("no report: {said}")))
}

#[test]
fn a_trap_that_is_hit_too_often_is_switched_off() {
    let report = within_budget("tiny", "1000000");
    let event = report.event("tiny").expect("the event").clone();
    assert!(event["count"].as_u64() < Some(1_000_000), "{event:#}");
    assert!(event["count"].as_u64() > Some(0), "{event:#}");
    let time = |key: &str| event[key].as_u64().expect("a time");
    assert!(
        time("time_running_ns") < time("time_enabled_ns"),
        "{event:#}"
    );
    let notes = notes(&report);
    let hits = notes
        .split_once("tiny was switched off after ")
        .and_then(|(_, after)| {
            after
                .split_once(" hits")?
                .0
                .replace(',', "")
                .parse::<u64>()
                .ok()
        });
    let hits = hits.unwrap_or_else(|| panic!("not reported: {notes}"));
    // The count may exceed the limit by one, because the thread may be inside the trap when the probe is disabled.
    let counted = event["count"].as_u64().expect("a count");
    assert!((hits..=hits + 1).contains(&counted), "{counted}: {notes}");
}

#[test]
fn a_trap_stays_on_with_the_budget_off() {
    let run = Probe::new(&["tiny"]).run(&target("storm"), &["200000"]);
    run.good().assert_exact(&run.expected());
    assert!(!notes(run.good()).contains("switched off"));
}

/// tiptoe must read the CPU time before the target's end, because a dead process's /proc is empty.
#[test]
fn the_signal_and_cpu_time_of_a_killed_target_are_reported() {
    let mut waiting = WaitingTarget::through(&["env"], &target("hot"), &["1", "0"]);
    let site = waiting.site("add");
    let attached = Probe::new(&["add"])
        .with(&["--duration", "60"])
        .attach(&[waiting.pid]);
    site.wait_probed();
    waiting.process.go();
    // tiptoe reads the CPU time every 20 ms, so it may miss the last 20 ms.
    wait_until("CPU time of the target", LIMIT, || {
        cpu_ticks(waiting.pid) > 20
    });
    waiting.process.signal(libc::SIGKILL);
    drop(waiting);
    let report = attached.finish();
    assert!(notes(&report).contains("(SIGKILL)"), "{}", notes(&report));
    assert!(report.value["cpu_ns"].as_u64() > Some(0));
    assert!(report.value["cost"]["fraction"].as_f64() > Some(0.0));
}

fn cpu_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let (_, fields) = stat.rsplit_once(") ").expect("fields after the name");
    let times = fields.split(' ').skip(11).take(2);
    times
        .map(|time| time.parse::<u64>().expect("a number"))
        .sum()
}

#[test]
#[ignore = "nightly: repeats 60 times"]
fn a_program_that_exits_has_not_run_another() {
    for _ in 0..60 {
        let run = Probe::new(&["tiny"]).run(&target("storm"), &["10"]);
        let notes = notes(run.good());
        assert!(!notes.contains("another program"), "{notes}");
    }
}

#[test]
fn the_cost_of_a_rejected_call_is_reported() {
    let run = Probe::new(&["add"])
        .with(&["--filter", "arg1 == 77"])
        .run(&target("hot"), &["1", "1000"]);
    let unit = &run.good().value["cost"]["rejected_unit_ns"];
    assert!(unit.as_f64() > Some(0.0), "{unit}");
}

#[test]
fn the_kernels_probes_are_priced_by_their_instructions() {
    let [push, nops, endbr, mov, nop5] = prices();
    assert_eq!(push, nops);
    assert_eq!(endbr, mov);
    assert!(push > 0 && mov > 0 && nop5 > 0, "{push} {mov} {nop5}");
}

#[test]
#[ignore = "nightly: asserts that measured prices differ"]
fn uprobe_prices_differ_by_instruction() {
    let [push, _, _, mov, nop5] = prices();
    assert!(
        nop5 != push && push != mov && mov != nop5,
        "{nop5} {push} {mov}"
    );
}

fn prices() -> [u64; 5] {
    let shapes = ["push", "nops", "endbr", "mov", "nop5"].map(|shape| format!("shape_{shape}"));
    let run = Probe::new(&shapes)
        .with(&["--via", "kernel"])
        .run(&target("shapes"), &["100"]);
    let report = run.good();
    shapes.map(|shape| {
        let event = report.event(&shape).expect("it was probed");
        let cost = event["cost_ns"].as_f64().expect("a number");
        (cost / report.count(&shape) as f64).round() as u64
    })
}

#[test]
fn a_signal_for_tiptoe_ends_the_command() {
    for signal in [libc::SIGTERM, libc::SIGHUP] {
        let (mut tiptoe, report) = ready("read line");
        tiptoe.signal(signal);
        let status = tiptoe.wait();
        assert_eq!(status.code(), Some(128 + signal));
        assert_eq!(text(&report).lines().count(), 1, "a report in JSON");
    }
}

/// After a SIGTERM, tiptoe waits for its command until another SIGTERM arrives.
#[test]
fn a_command_that_ignores_sigterm_is_reported() {
    let (mut tiptoe, report) = ready("trap '' TERM; echo on; read line");
    assert_eq!(tiptoe.line(), "on");
    // The signal is repeated, because two signals that arrive while tiptoe detaches count as one.
    wait_until("tiptoe's end", LIMIT, || {
        tiptoe.signal(libc::SIGTERM);
        !tiptoe.lives()
    });
    let status = tiptoe.wait();
    assert_eq!(status.code(), Some(128 + libc::SIGTERM));
    let report = text(&report);
    assert!(report.contains("the command continues"), "{report}");
}

#[test]
fn a_signal_before_the_commands_exec_ends_both() {
    let slow = target("slow_start");
    for words in [
        &["probe", "add"][..],
        &["probe", "add", "--via", "kernel", "--budget", "off"],
        &["lock"],
        &["stat"],
    ] {
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            let mut started = command();
            started.args(words).arg("--").arg(target("hot"));
            started.env("LD_PRELOAD", &slow).stderr(Stdio::null());
            let mut tiptoe = Process::start(&mut started);
            assert_eq!(tiptoe.line(), "stuck");
            tiptoe.signal(signal);
            // tiptoe's stdout ends with the last process that has it open, so no process may remain.
            let (_, status) = tiptoe.finish();
            let ended = status.code().or(status.signal().map(|signal| 128 + signal));
            assert_eq!(ended, Some(128 + signal), "{words:?}");
        }
    }
}

fn text(path: &Path) -> String {
    let text = std::fs::read_to_string(path).expect("a report");
    let _ = std::fs::remove_file(path);
    text
}

fn ready(script: &str) -> (Process, PathBuf) {
    static TURN: AtomicU32 = AtomicU32::new(0);
    let turn = TURN.fetch_add(1, Ordering::Relaxed);
    let name = format!("tiptoe-ends-{}-{turn}", std::process::id());
    let report = std::env::temp_dir().join(name);
    let mut tiptoe = command();
    tiptoe
        .args(["probe", "libc.so.6:getenv", "--json", "-o"])
        .arg(&report);
    let script = format!("echo ready; {script}");
    let mut tiptoe = Process::start(tiptoe.args(["--", "sh", "-c", &script]));
    assert_eq!(tiptoe.line(), "ready");
    (tiptoe, report)
}

#[test]
fn intervals_are_lines_of_json() {
    let output = command()
        .args([
            "probe",
            "libc.so.6:getenv",
            "--json",
            "--interval",
            "50ms",
            "--",
        ])
        .args(["sleep", "0.3"])
        .output()
        .expect("the command runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<Report> = said.lines().map(Report::parse).collect();
    let (report, intervals) = lines.split_last().expect("a report");
    assert!(!intervals.is_empty() && intervals.iter().all(|line| line.value["at_ns"].is_u64()));
    let whole = report.value["intervals"].as_array().expect("intervals");
    assert!(
        whole.iter().eq(intervals.iter().map(|line| &line.value)),
        "{said}"
    );
}

#[test]
fn nothing_is_counted_before_the_delay_is_over() {
    let run = Probe::new(&["add"])
        .with(&["--delay", "1h"])
        .run(&target("hot"), &["1", "1000"]);
    assert_eq!(run.good().count("add"), 0);
    let notes = notes(run.good());
    assert!(notes.contains("before its delay was over"), "{notes}");
}

/// The rate after the switch-off is unknown, so the count must not be scaled.
#[test]
fn the_count_of_a_switched_off_trap_was_scaled() {
    let report = within_budget("tiny", "1000000");
    let event = report.event("tiny").expect("the event");
    assert_eq!(event["at_least"], true, "{event:#}");
    let output = command()
        .args(["probe", "tiny", "-o", "-", "--"])
        .arg(target("storm"))
        .arg("1000000")
        .output()
        .expect("the command runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let row = text
        .lines()
        .find(|line| line.contains("trap: no jump fits"));
    let row = row.unwrap_or_else(|| panic!("no row: {text}"));
    assert!(
        row.trim_start().starts_with(">=") && !row.contains("scaled"),
        "{row}"
    );
}

/// Traces a script that prints `ready`, and calls `step` before counting begins.
fn reads_after_delay(script: &str, step: impl FnOnce(&mut Process)) -> Report {
    let probe = Probe::new(&["libc.so.6:read"]);
    let probe = probe.with(&["--latency", "--via", "agent", "--delay", "1s"]);
    let shell = Path::new("/bin/sh");
    let (mut ours, _) = probe.start(shell, &["-c", &format!("echo ready; {script}")]);
    step(&mut ours.process);
    ours.wait_ready();
    ours.process.go();
    ours.finish()
}

#[test]
fn the_longest_call_was_from_before_the_start() {
    let report = reads_after_delay("read a; echo one; cat; :", |process| {
        process.go();
        assert_eq!(process.line(), "one");
    });
    let event = report.event("read").expect("the event");
    let [longest, total] =
        [&event["histogram"]["max_ns"], &event["total_ns"]].map(|ns| ns.as_u64());
    assert!(longest <= total, "{event:#}");
}

#[test]
fn a_call_from_before_the_start_is_counted_if_it_is_timed() {
    let report = reads_after_delay("read a", |_| ());
    let ends = ["returns", "left", "inside", "only_counted"];
    let ends = ends.map(|end| report.number("read", end));
    let count = report.count("read");
    assert!(count > 0, "{:#}", report.value);
    assert_eq!(ends.iter().sum::<u64>(), count, "{:#}", report.value);
}
