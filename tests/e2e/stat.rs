//! `tiptoe stat` on programs that know their counts.

use std::process::{Command, Output};

use serde_json::Value;
use tiptoe_tests::{Form, Process, Report, command, process, skipped, target};

const CALLS: &str = "syscalls:sys_enter_getppid";

fn stat(options: &[&str]) -> Command {
    let mut command = command();
    command.arg("stat").args(options);
    command
}

fn counted(options: &[&str], arguments: &[&str]) -> Output {
    let mut command = stat(options);
    process::output(command.arg("--").arg(target("counted")).args(arguments))
}

fn talk(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn session(output: &Output) -> Value {
    let text = talk(output);
    assert!(output.status.success(), "{text}");
    let line = text.lines().rfind(|line| line.starts_with('{'));
    Report::parse(line.unwrap_or_else(|| panic!("no session: {text}"))).value
}

fn value(session: &Value, event: &str) -> f64 {
    let counts = session["stat"]["counts"].as_array().expect("counts");
    let count = counts.iter().find(|count| count["event"] == event);
    let count = count.unwrap_or_else(|| panic!("no {event}: {session:#}"));
    assert_eq!(count["state"], "counted", "{count}");
    count["value"].as_f64().expect("a number")
}

fn expected(output: &Output, name: &str) -> f64 {
    said(&String::from_utf8_lossy(&output.stdout), name)
}

fn said(text: &str, name: &str) -> f64 {
    let start = format!("expect {name} ");
    let number = text.lines().find_map(|line| line.strip_prefix(&start));
    number.expect(text).parse().expect("a number")
}

fn can_count(options: &[&str]) -> bool {
    let tried = process::output(stat(options).args(["--", "true"]));
    if !tried.status.success() {
        skipped(&options.join(" "), talk(&tried).trim());
    }
    tried.status.success()
}

fn of_running(events: &str, arguments: &[&str]) -> (Value, String) {
    let mut program = Process::waiting(&target("counted"), arguments);
    let pid = program.pid().to_string();
    let report = std::env::temp_dir().join(format!("tiptoe-stat-{}-{pid}", std::process::id()));
    let path = report.to_str().expect("UTF-8");
    // tiptoe counts from the command's start to its end, so the target begins after the command has printed `on`.
    let mut tiptoe = Process::start(
        stat(&["--json", "-e", events, "-p", &pid, "-o", path]).args([
            "--",
            "sh",
            "-c",
            "echo on; read line",
        ]),
    );
    assert_eq!(tiptoe.line(), "on");
    program.go();
    let said = program.line();
    let (_, _) = tiptoe.finish();
    let text = std::fs::read_to_string(&report).expect("a report");
    let _ = std::fs::remove_file(&report);
    drop(program);
    (Report::parse(&text).value, said)
}

#[test]
fn page_faults_of_a_running_program_are_exact() {
    if !can_count(&["-e", "page-faults"]) {
        return;
    }
    let mut program =
        Process::start(Command::new(target("counted")).args(["faults", "500", "wait"]));
    assert_eq!(program.line(), "expect warm 0");
    assert_eq!(program.line(), "ready");
    let pid = program.pid().to_string();
    let report = std::env::temp_dir().join(format!("tiptoe-stat-{}-{pid}", std::process::id()));
    let path = report.to_str().expect("UTF-8");
    let options = [
        "--json",
        "-e",
        "page-faults,minor-faults",
        "-p",
        &pid,
        "-o",
        path,
    ];
    let mut tiptoe = Process::start(stat(&options).args(["--", "sh", "-c", "echo on; read line"]));
    assert_eq!(tiptoe.line(), "on");
    program.go();
    assert_eq!(program.line(), "expect faults 500");
    let _ = tiptoe.finish();
    let text = std::fs::read_to_string(&report).expect("a report");
    let _ = std::fs::remove_file(&report);
    let session = Report::parse(&text).value;
    assert_eq!(value(&session, "page-faults"), 500.0, "{session:#}");
    assert_eq!(value(&session, "minor-faults"), 500.0);
}

#[test]
fn threads_and_children_are_inherited() {
    if !can_count(&["-e", CALLS]) {
        return;
    }
    let run = counted(&["--json", "-e", CALLS], &["calls", "1000", "3"]);
    assert_eq!(expected(&run, "calls"), 6000.0);
    let session = session(&run);
    assert_eq!(value(&session, CALLS), 6000.0, "{session:#}");
    assert_eq!(session["stat"]["tracepoint_hits"], 6000);
    assert!(
        session["cost"]["fraction"].as_f64() > Some(0.0),
        "{session:#}"
    );
}

#[test]
fn a_running_program_has_all_of_its_threads_counted() {
    if !can_count(&["-e", CALLS]) {
        return;
    }
    let (session, said_calls) = of_running(CALLS, &["calls", "1000", "5"]);
    assert_eq!(said(&said_calls, "calls"), 8000.0);
    assert_eq!(value(&session, CALLS), 8000.0, "{session:#}");
}

#[test]
fn each_sleep_is_one_context_switch() {
    if !can_count(&["-e", "context-switches"]) {
        return;
    }
    let run = counted(
        &["--json", "-e", "{cs,context-switches}"],
        &["sleeps", "40"],
    );
    let session = session(&run);
    let counts = (value(&session, "cs"), value(&session, "context-switches"));
    let text = String::from_utf8_lossy(&run.stdout);
    let switches = said(&text, "switches");
    assert!(switches > 0.0, "{text}");
    assert!(counts.0 >= switches && counts.0 == counts.1, "{session:#}");
}

/// With a modifier an event is perf's. Without one, the kernel's fields of tasks count, and nothing runs at switches.
#[test]
fn the_fields_of_tasks_count_as_perfs_events_do() {
    if !can_count(&["-e", "page-faults:uk,cs:uk"]) {
        return;
    }
    const CHILDREN: f64 = 20.0;
    let script = "for at in $(seq 20); do /bin/true; done";
    let both = "page-faults,page-faults:uk,cs,cs:uk,cpu-migrations,cpu-migrations:uk";
    let options = ["--json", "-e", both, "--", "sh", "-c", script];
    let session_of_both = session(&process::output(&mut stat(&options)));
    for event in ["page-faults", "cs", "cpu-migrations"] {
        let fields = value(&session_of_both, event);
        let perfs = value(&session_of_both, &format!("{event}:uk"));
        // perf's events of a task begin a little later than its fields, and end a little earlier.
        let more = fields - perfs;
        assert!(
            (0.0..=CHILDREN + 2.0).contains(&more),
            "{event}: {fields} and {perfs}"
        );
    }
    assert!(value(&session_of_both, "page-faults") > 40.0 * CHILDREN);
    let ways = [
        ("page-faults,cs,task-clock", true),
        ("page-faults,cs:uk", false),
    ];
    for (events, is_free) in ways {
        let options = ["--json", "-e", events, "--", "sh", "-c", script];
        let session = session(&process::output(&mut stat(&options)));
        let count = |name: &str| session["stat"][name].as_u64().expect("a count");
        assert_eq!(count("switches") == 0, is_free, "{session:#}");
        assert!(count("rounds") > 0, "{session:#}");
        assert!(count("lives") >= 2 * CHILDREN as u64, "{session:#}");
    }
}

#[test]
fn the_fields_of_all_threads_of_a_running_program_count() {
    if !can_count(&["-e", "cs:uk"]) {
        return;
    }
    let (session, _) = of_running(
        "cs,cs:uk,page-faults,page-faults:uk",
        &["calls", "1000", "5"],
    );
    for event in ["cs", "page-faults"] {
        let fields = value(&session, event);
        let perfs = value(&session, &format!("{event}:uk"));
        // The five threads and the child begin and end within the count.
        let off = (fields - perfs).abs();
        assert!(fields > 0.0 && off <= 12.0, "{event}: {fields} and {perfs}");
    }
}

#[test]
fn a_program_has_a_task_clock() {
    if !can_count(&["-e", "task-clock"]) {
        return;
    }
    let run = counted(&["--json", "-e", "task-clock"], &["spins", "100"]);
    let session = session(&run);
    assert!(value(&session, "task-clock") > 0.0, "{session:#}");
    // The kernel splits the time by its ticks. All ticks may have been during system calls.
    let times = ["user_ns", "sys_ns"].map(|key| session["stat"][key].as_f64());
    assert!(
        times.into_iter().sum::<Option<f64>>() > Some(0.0),
        "{session:#}"
    );
}

#[test]
#[ignore = "nightly: asserts a time"]
fn the_task_clock_is_the_programs_own() {
    if !can_count(&["-e", "task-clock"]) {
        return;
    }
    let run = counted(&["--json", "-e", "task-clock"], &["spins", "100"]);
    let own = expected(&run, "own_ns");
    let session = session(&run);
    let clock = value(&session, "task-clock");
    assert!(
        clock > own * 0.8 && clock < own * 1.5 + 5e7,
        "{clock} of {own}"
    );
}

#[test]
fn the_whole_system_has_at_least_a_programs_count() {
    if !can_count(&["-a", "-e", CALLS]) {
        return;
    }
    let run = counted(&["-a", "--json", "-e", CALLS], &["calls", "1000", "1"]);
    let session = session(&run);
    assert!(value(&session, CALLS) >= 4000.0, "{session:#}");
    assert!(session["cpus"].as_u64() > Some(0));
    let by_cpu = counted(
        &["-a", "--per-cpu", "-x,", "-e", "cpu-clock"],
        &["spins", "5"],
    );
    let text = talk(&by_cpu);
    let cpus = text.lines().filter(|line| line.starts_with("CPU")).count();
    assert_eq!(cpus as u64, session["cpus"].as_u64().unwrap(), "{text}");
}

#[test]
fn missing_events_are_reported_and_the_others_counted() {
    if !can_count(&["-e", "page-faults"]) {
        return;
    }
    // No processor has this raw event.
    let none = "r7777777777777777";
    let list = format!("{none},page-faults:u,{{task-clock,cs}}:D");
    let run = counted(&["-e", &list], &["sleeps", "1"]);
    let text = talk(&run);
    assert!(run.status.success(), "{text}");
    let row = text
        .lines()
        .find(|line| line.contains(none))
        .expect("a row");
    assert!(row.trim_start().starts_with("<not supported>"), "{text}");
    for what in [
        "page-faults:u",
        "cs:D",
        "CPUs utilized",
        "seconds time elapsed",
        "cost of tracing: ",
    ] {
        assert!(text.contains(what), "{what}: {text}");
    }
    let nothing = counted(&["-e", none], &["sleeps", "1"]);
    assert_eq!(nothing.status.code(), Some(2));
    assert!(talk(&nothing).starts_with("error: nothing can be counted here: no r777"));
    assert!(nothing.stdout.is_empty(), "the command must not have run");
}

#[test]
fn bad_input_is_one_sentence() {
    for (options, said) in [
        (
            &["-e", "cylces", "-a"][..],
            "error: no event 'cylces'\nhint: similar names: cycles",
        ),
        (
            &["-e", "{cycles", "-a"],
            "error: '{cycles': a brace or slash is not closed\n",
        ),
        (
            &["-e", "nopmu/x/", "-a"],
            "error: this machine has no PMU 'nopmu'\n",
        ),
        (&["-e", "cs"], "error: no process to count\n"),
        (
            &["-e", "cs", "-p", "999999999"],
            "error: no such process: 999999999\n",
        ),
        (
            &["-e", "cs", "--per-cpu", "--", "true"],
            "error: --per-cpu without -a",
        ),
        (&["-e", "cs", "-r", "2", "-a"], "error: -r without -- CMD"),
        (
            &["-e", "cs", "-x", "", "-a"],
            "error: -x: a separator is missing\n",
        ),
        (
            &["-e", "cs", "--", "/nonexistent/program"],
            "error: cannot run `/nonexistent/program`",
        ),
    ] {
        let run = process::output(&mut stat(options));
        let text = talk(&run);
        assert_eq!(run.status.code(), Some(2), "{options:?}: {text}");
        assert!(text.starts_with(said), "{options:?}: {text}");
        assert!(text.lines().count() <= 2, "{options:?}: {text}");
    }
}

#[test]
fn fields_and_intervals_parse() {
    if !can_count(&["-e", "task-clock,page-faults"]) {
        return;
    }
    let (text, clock_ms, _) = intervals_of_a_clock();
    assert!(clock_ms > 0.0, "{text}");
    assert!(text.contains("# cost of tracing: "), "{text}");
}

#[test]
#[ignore = "nightly: asserts a time"]
fn intervals_add_up_to_the_whole_time() {
    if !can_count(&["-e", "task-clock,page-faults"]) {
        return;
    }
    let (text, clock_ms, own_ms) = intervals_of_a_clock();
    assert!(clock_ms > own_ms * 0.8, "{clock_ms} of {own_ms}: {text}");
}

fn intervals_of_a_clock() -> (String, f64, f64) {
    let options = ["-x,", "-I", "20", "-e", "task-clock,page-faults"];
    let run = counted(&options, &["spins", "100"]);
    let text = talk(&run);
    let (mut last, mut clock_ms) = (0.0, 0.0);
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split(',').collect();
        assert_eq!(fields.len(), 8, "{line}");
        let at: f64 = fields[0].trim().parse().expect("a time");
        assert!(at >= last, "{text}");
        last = at;
        if fields[3] == "task-clock" && fields[1] != "<not counted>" {
            clock_ms += fields[1].parse::<f64>().expect("a number");
        }
    }
    (text, clock_ms, expected(&run, "own_ns") / 1e6)
}

#[test]
fn runs_are_repeated_and_the_status_is_the_commands() {
    if !can_count(&["-e", "page-faults"]) {
        return;
    }
    let run = counted(&["-r", "3", "-e", "page-faults", "-x;"], &["sleeps", "1"]);
    let text = talk(&run);
    let line = text
        .lines()
        .find(|line| line.contains("page-faults"))
        .expect("a line");
    let fields: Vec<&str> = line.split(';').collect();
    assert!(fields.len() == 8 && fields[3].ends_with('%'), "{line}");
    let failed = process::output(stat(&["-e", "cs"]).args(["--", "sh", "-c", "exit 7"]));
    assert_eq!(failed.status.code(), Some(7));
    let table = process::output(stat(&["-r", "2", "-e", "cs"]).args(["--", "true"]));
    let table = talk(&table);
    assert!(
        table.contains("'true' (2 runs):") && table.contains("( +- "),
        "{table}"
    );
}

#[test]
fn lines_of_several_runs_lacked_a_column() {
    let run = counted(
        &["-r", "2", "-e", "cycles,page-faults", "-x,"],
        &["sleeps", "1"],
    );
    let text = talk(&run);
    let of = |event: &str| text.lines().find(|line| line.contains(event));
    let lines = ["cycles", "page-faults"].map(|event| of(event).expect("a line"));
    let columns = lines.map(|line| line.split(',').count());
    assert_eq!(columns, [8; 2], "{text}");
}

/// Returns what is printed without the cost, whose words depend on chance.
fn printed(options: &[&str], arguments: &[&str]) -> String {
    let run = counted(options, arguments);
    let text = talk(&run);
    assert!(run.status.success(), "{text}");
    let path = target("counted");
    let folder = path.parent().and_then(std::path::Path::to_str);
    let text = text.replace(folder.expect("a folder"), "");
    let is_kept =
        |line: &&str| !line.contains("cost of tracing") && !line.contains("tiptoe itself");
    text.lines().filter(is_kept).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_report_keeps_its_form() {
    const EVENTS: [&str; 2] = ["-e", "task-clock,page-faults"];
    if !can_count(&["-a", EVENTS[0], EVENTS[1]]) {
        return;
    }
    for (options, form) in [
        (&["--json"][..], include_str!("forms/stat-json.txt")),
        (
            &["--json", "-r", "2"],
            include_str!("forms/stat-json-runs.txt"),
        ),
        (
            &["--json", "-a", "--per-cpu"],
            include_str!("forms/stat-json-system.txt"),
        ),
        (
            &["--json", "-I", "20"],
            include_str!("forms/stat-json-intervals.txt"),
        ),
        (&["-x,"], include_str!("forms/stat-fields.txt")),
        (
            &["-x,", "-I", "20"],
            include_str!("forms/stat-fields-intervals.txt"),
        ),
        (&["--csv"], include_str!("forms/stat-csv.txt")),
        (
            &["--csv", "-I", "20", "-a"],
            include_str!("forms/stat-csv-intervals.txt"),
        ),
        (&[], include_str!("forms/stat-text.txt")),
        (&["-I", "20"], include_str!("forms/stat-text-intervals.txt")),
    ] {
        let text = printed(&[&EVENTS, options].concat(), &["spins", "100"]);
        let form_of_text = match options.first() {
            Some(&"--json") => Form::of_json(&text, &[".tiptoe"]),
            _ => Form::of_text(&text),
        };
        form_of_text.assert_is(form);
    }
}
