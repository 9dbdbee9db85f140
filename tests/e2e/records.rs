//! With `--record` every call is a line, in order for each thread, or is counted in the report as missing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tiptoe_tests::process::wait_until;
use tiptoe_tests::{ExpectedCounts, Process, Report, Site, command, skipped, target, target_with};

/// How many records fit a thread's ring while nothing reads it. One more cell announces the thread.
const ROOM: u64 = 8191;

#[derive(Debug, Clone, Copy)]
struct Call {
    at_ns: u64,
    tid: u64,
    args: [i64; 2],
}

struct RecordedLines {
    function: &'static str,
    calls: Vec<Call>,
    report: Report,
}

impl RecordedLines {
    fn read((path, function): (PathBuf, &'static str)) -> RecordedLines {
        let text = std::fs::read_to_string(&path).expect("a file");
        let _ = std::fs::remove_file(path);
        RecordedLines::parse(&text, function)
    }

    fn parse(text: &str, function: &'static str) -> RecordedLines {
        let (lines, report) = text
            .trim_end()
            .rsplit_once('\n')
            .expect("lines and a report");
        let lines = lines.lines().map(|line| {
            let value = Report::parse(line).value;
            let event = value["event"].as_str().expect(line);
            assert!(event.ends_with(&format!(":{function}")), "{line}");
            let number = |key: &str| value[key].as_u64().expect(line);
            Call {
                at_ns: number("at_ns"),
                tid: number("tid"),
                args: ["arg0", "arg1"].map(|key| number(key).cast_signed()),
            }
        });
        RecordedLines {
            function,
            calls: lines.collect(),
            report: Report::parse(report),
        }
    }

    fn number(&self, key: &str) -> u64 {
        let event = self.report.event(self.function).expect(self.function);
        event[key].as_u64().expect(key)
    }

    fn assert_adds_up(&self, calls: u64) {
        let [recorded, lost, only_counted] =
            ["recorded", "records_lost", "only_counted"].map(|key| self.number(key));
        assert_eq!(self.number("count"), calls, "{:#}", self.report.value);
        assert_eq!(
            recorded + lost + only_counted,
            calls,
            "{:#}",
            self.report.value
        );
        assert_eq!(recorded, self.calls.len() as u64, "{:#}", self.report.value);
    }

    fn by_first(&self) -> BTreeMap<i64, Vec<Call>> {
        let mut by_first: BTreeMap<i64, Vec<Call>> = BTreeMap::new();
        for call in &self.calls {
            by_first.entry(call.args[0]).or_default().push(*call);
        }
        by_first
    }
}

fn assert_in_order(calls: &[Call]) {
    for (number, call) in calls.iter().enumerate() {
        assert_eq!(call.args[1], number as i64, "in order: {call:?}");
        assert_eq!(call.tid, calls[0].tid, "one thread's");
    }
    assert!(calls.is_sorted_by_key(|call| call.at_ns), "later and later");
}

type Lines = (PathBuf, &'static str);

fn recording(spec: &'static str, options: &[&str]) -> (Command, Lines) {
    static TURN: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let turn = TURN.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let name = format!("tiptoe-records-{}-{turn}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut command = command();
    command
        .args(["probe", "--record", spec, "--json"])
        .args(options);
    command.arg("-o").arg(&path);
    let (_, function) = spec.rsplit_once(':').unwrap_or(("", spec));
    (command, (path, function))
}

fn attaching(pid: u32) -> (Command, Lines) {
    recording("f", &["--budget", "off", "-p", &pid.to_string()])
}

fn run(mode: &str, count: u64, options: &[&str]) -> (RecordedLines, u64) {
    let (mut command, lines) = recording("f", options);
    command
        .arg("--")
        .arg(target("recorded"))
        .args([mode, &count.to_string()]);
    let output = command.output().expect("the command runs");
    assert!(output.status.success(), "{output:?}");
    let expected = ExpectedCounts::parse(&String::from_utf8_lossy(&output.stdout));
    (RecordedLines::read(lines), expected.0["f"])
}

#[test]
fn every_call_is_recorded_in_order_and_none_of_a_child() {
    let count = ROOM - 1;
    let (recorded, calls) = run("four", count, &["--budget", "off", "--by", "thread"]);
    recorded.assert_adds_up(calls);
    assert_eq!(recorded.number("recorded"), calls);
    let by_first = recorded.by_first();
    let who: Vec<i64> = by_first.keys().copied().collect();
    assert_eq!(who, [1, 2, 3, 4, 5]);
    let event = recorded.report.event("f").expect("f");
    let parts = event["by"].as_array().expect("parts");
    let parts = parts.iter().map(|part| part["count"].as_u64());
    assert_eq!(
        parts.collect::<Vec<_>>(),
        [count, count, count, count, 1].map(Some)
    );
    for (who, calls) in &by_first {
        assert_eq!(calls.len() as u64, if *who == 5 { 1 } else { count });
        assert_in_order(calls);
    }
}

#[test]
fn a_filter_decides_what_is_recorded() {
    let (recorded, _) = run(
        "four",
        1000,
        &["--budget", "off", "--filter", "arg1 < 3 && arg0 != 5"],
    );
    recorded.assert_adds_up(12);
    let in_order = |calls: &Vec<Call>| assert_in_order(calls);
    recorded.by_first().values().for_each(in_order);
}

#[test]
fn a_stopped_tiptoe_loses_records_without_room_and_the_program_continues() {
    const COUNT: u64 = 50_000;
    let program = target("recorded");
    let mut process = Process::waiting(&program, &["four", &COUNT.to_string()]);
    let site = Site::new(process.pid(), &program, "f");
    let (mut command, lines) = attaching(process.pid());
    let tiptoe = Process::start(&mut command);
    site.wait_probed();
    tiptoe.signal(libc::SIGSTOP);
    process.go();
    let (output, status) = process.finish();
    tiptoe.signal(libc::SIGCONT);
    assert!(status.success());
    assert!(tiptoe.finish().1.success());
    let recorded = RecordedLines::read(lines);
    recorded.assert_adds_up(ExpectedCounts::parse(&output).0["f"]);
    assert_eq!(recorded.number("records_lost"), 4 * (COUNT - ROOM));
    for calls in recorded.by_first().values() {
        assert_in_order(calls);
    }
}

#[test]
fn handlers_record_amid_records() {
    let (recorded, calls) = run("storm", 300_000, &["--budget", "off"]);
    recorded.assert_adds_up(calls);
    for calls in recorded.by_first().values() {
        let numbers = calls.iter().map(|call| call.args[1]);
        assert!(
            numbers.is_sorted_by(|one, next| one < next),
            "each once, in order"
        );
        assert!(calls.iter().all(|call| matches!(call.args[0], -1 | 1)));
    }
}

#[test]
fn a_record_is_that_of_its_own_thread() {
    let (recorded, calls) = run("lives", 20_000, &["--budget", "off"]);
    recorded.assert_adds_up(calls);
    let by_first = recorded.by_first();
    assert!(by_first.len() <= 100);
    for call in &recorded.calls {
        assert_eq!(call.tid, call.args[0] as u64, "{call:?}");
    }
}

#[test]
fn beyond_the_budget_calls_are_only_counted() {
    let (recorded, calls) = run("four", 500_000, &[]);
    recorded.assert_adds_up(calls);
    assert!(recorded.number("only_counted") > 0);
    for calls in recorded.by_first().values() {
        let numbers = calls.iter().map(|call| call.args[1]);
        assert!(
            numbers.is_sorted_by(|one, next| one < next),
            "each once, in order"
        );
    }
}

#[test]
fn only_calls_below_a_function_are_recorded() {
    let count = ROOM - 1;
    let (recorded, calls) = run("below", count, &["--budget", "off", "--under", "g"]);
    recorded.assert_adds_up(calls);
    assert_eq!(recorded.number("recorded"), calls);
    let by_first = recorded.by_first();
    let who: Vec<i64> = by_first.keys().copied().collect();
    assert_eq!(who, [1, 2, 3, 4]);
    by_first.values().for_each(|calls| assert_in_order(calls));
}

#[test]
fn calls_in_a_library_loaded_later_are_recorded() {
    const ROUNDS: u64 = 20;
    let library = target("loaded");
    let (mut command, lines) = recording("libloaded.so:loaded_work", &["--budget", "off"]);
    command.arg("--").arg(target("loads"));
    command.args(["1", &ROUNDS.to_string(), "0"]).arg(library);
    let output = command.output().expect("the command runs");
    assert!(output.status.success(), "{output:?}");
    let recorded = RecordedLines::read(lines);
    let late = recorded.report.value["notes"].to_string();
    if late.contains("a library ran before its probes were set") {
        return println!("ran before its probes: {late}");
    }
    recorded.assert_adds_up(ROUNDS);
    let firsts = recorded.calls.iter().map(|call| call.args[0]);
    assert!(firsts.eq(0..ROUNDS as i64), "each round's");
}

/// Calls may be recorded before tiptoe looks up the parameters.
#[test]
fn parameters_of_a_library_loaded_later_are_known() {
    let folder = tiptoe_tests::root().join("target/test-targets/described");
    let library = tiptoe_tests::target::target_of(&folder, "loaded", &["-g"]);
    let (mut command, (path, _)) = recording("libloaded.so:loaded_work", &["--budget", "off"]);
    command.arg("--").arg(target("loads"));
    let output = command.args(["1", "5", "0"]).arg(library).output();
    let output = output.expect("the command runs");
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&path).expect("a file");
    let _ = std::fs::remove_file(path);
    let (calls, report) = text.trim_end().rsplit_once('\n').unwrap_or(("", &text));
    if report.contains("a library ran before its probes were set") {
        return println!("ran before its probes: {report}");
    }
    assert_eq!(calls.lines().count(), 5, "{text}");
    for line in calls.lines() {
        let call = Report::parse(line).value;
        let given = ["arg0", "arg1"].map(|key| call[key].is_u64());
        assert_eq!(given, [true, false], "{call:#}");
        assert!(call["are_registers"].is_null(), "{call:#}");
    }
}

#[test]
fn the_program_survives_a_killed_tiptoe_and_the_next_one_records() {
    let program = target("recorded");
    let mut process = Process::waiting(&program, &["ticks", "0"]);
    let site = Site::new(process.pid(), &program, "f");
    let pid = process.pid().to_string();
    let recording = || {
        let mut command = command();
        command.args([
            "probe", "--record", "f", "--json", "--budget", "off", "-p", &pid,
        ]);
        Process::start(&mut command)
    };
    let mut killed = recording();
    site.wait_probed();
    process.go();
    assert!(killed.line().contains("arg1"));
    killed.signal(libc::SIGKILL);
    site.wait_original();
    assert!(!killed.finish().1.success());
    let mut tiptoe = recording();
    let first = tiptoe.line();
    process.go();
    let (rest, status) = tiptoe.finish();
    assert!(status.success() && process.finish().1.success());
    let recorded = RecordedLines::parse(&format!("{first}\n{rest}"), "f");
    recorded.assert_adds_up(recorded.number("count"));
}

#[test]
fn the_kernel_records_nothing() {
    let Ok(program) = target_with("hot", &["-static"]) else {
        return skipped("-static", "no such compiler");
    };
    let mut run = command();
    run.args(["probe", "--record", "add", "--"]).arg(program);
    let output = run.output().expect("the command runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    for words in ["statically linked", "cannot record calls", "`--record`"] {
        assert!(said.contains(words), "no `{words}` in: {said}");
    }
}

#[test]
fn calls_before_the_start_were_at_zero() {
    let mut process = Process::waiting(&target("hot"), &["4", "0"]);
    process.go();
    let (mut command, lines) = recording("add", &["-p", &process.pid().to_string()]);
    command.args(["--duration", "0.2"]);
    assert!(command.output().expect("it runs").status.success());
    process.close();
    assert!(process.finish().1.success());
    let recorded = RecordedLines::read(lines);
    assert!(!recorded.calls.is_empty());
    assert!(recorded.calls.iter().all(|call| call.at_ns > 0));
}

#[test]
fn the_records_of_a_killed_tiptoe_were_lost() {
    let mut process = Process::waiting(&target("recorded"), &["ticks", "0"]);
    let (mut command, (path, _)) = attaching(process.pid());
    let tiptoe = Process::start(&mut command);
    process.go();
    let text = || std::fs::read_to_string(&path).unwrap_or_default();
    wait_until("a line in the file", Duration::from_secs(20), || {
        text().contains('\n')
    });
    tiptoe.signal(libc::SIGKILL);
    assert!(!tiptoe.finish().1.success());
    process.go();
    assert!(process.finish().1.success());
    let text = text();
    std::fs::remove_file(&path).expect("it is there");
    let line = Report::parse(text.lines().next().expect("a line")).value;
    assert!(line["at_ns"].is_u64(), "{line}");
}

#[test]
fn arguments_that_the_function_does_not_have_were_printed() {
    let name = format!("tiptoe-signatures-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let lines = |is_json: bool| {
        let mut tiptoe = command();
        tiptoe.args(["probe", "--record", "takes_*", "--budget", "off"]);
        tiptoe
            .args(is_json.then_some("--json"))
            .arg("-o")
            .arg(&path);
        let run = tiptoe.arg("--").arg(target("signatures")).output();
        let run = run.expect("tiptoe runs");
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{said}");
        let text = std::fs::read_to_string(&path).expect("a file");
        let _ = std::fs::remove_file(&path);
        let lines = text.lines().filter(|line| line.contains(":takes_"));
        lines.map(str::to_owned).take(6).collect::<Vec<_>>()
    };
    let all = lines(true);
    let of = |function: &str| {
        let end = format!(":{function}");
        let mut all = all.iter().map(|line| Report::parse(line).value);
        all.find(|call| {
            call["event"]
                .as_str()
                .is_some_and(|event| event.ends_with(&end))
        })
        .unwrap_or_else(|| panic!("no {function}: {all:#?}"))
    };
    for (function, arguments, are_registers) in [
        ("takes_none", 0, false),
        ("takes_one", 1, false),
        ("takes_two", 2, false),
        // Floating-point numbers are in other registers.
        ("takes_real", 1, false),
        // A structure is no integer argument: its members decide how it is passed.
        ("takes_pair", 2, true),
        ("takes_more", 2, true),
    ] {
        let call = of(function);
        let given = ["arg0", "arg1"].map(|key| call[key].is_u64());
        assert_eq!(given, [arguments > 0, arguments > 1], "{call:#}");
        assert_eq!(call["are_registers"] == true, are_registers, "{call:#}");
    }
    assert_eq!(
        (&of("takes_one")["arg0"], &of("takes_real")["arg0"]),
        (&41.into(), &42.into())
    );
    let all = lines(false);
    let ends = |function: &str, end: &str| {
        let line = all
            .iter()
            .find(|line| line.contains(function))
            .expect("a line");
        assert!(line.ends_with(end), "{line:?}");
    };
    ends("takes_none", ":takes_none");
    ends("takes_one", ":takes_one  41");
    ends("takes_more", ":takes_more  rdi=1 rsi=3");
}
