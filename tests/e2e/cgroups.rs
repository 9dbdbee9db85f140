//! `tiptoe stat --for-each-cgroup`. If the kernel keeps all requested counts in fields of tasks, tiptoe reads these
//! fields. Otherwise it counts at context switches.

use std::fs;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use tiptoe_tests::process::{output, wait_until};
use tiptoe_tests::{Cgroup, Form, Process, Report, command, is_root, scaled, skipped, target};

mod change;
mod without;

/// If this event is requested, tiptoe counts all events of the run at context switches.
const AT_SWITCHES: &str = "cgroup-switches";
const CALLS: &str = "syscalls:sys_enter_getppid";
const BOTH_WAYS: [Option<&str>; 2] = [None, Some(AT_SWITCHES)];

fn both_ways(count: fn(Option<&str>)) {
    BOTH_WAYS.into_iter().for_each(count);
}

type Check = fn(f64, f64, &str);

/// Returns `check`, or a weaker check if the kernel did not report ends of tasks, whose last work is then charged
/// to no cgroup.
fn check_where_seen(session: &Value, check: Check) -> Check {
    let notes = session["notes"].to_string();
    match notes.contains("ends of tasks that the kernel did not report") {
        false => check,
        true => |counted, kernel, cgroup| {
            assert!(counted <= kernel * 1.001, "{cgroup}: {counted} of {kernel}");
        },
    }
}

fn cgroup() -> Option<Cgroup> {
    if !is_root() {
        skipped("counting by cgroup", "it needs root");
        return None;
    }
    match Cgroup::new() {
        Ok(cgroup) => Some(cgroup),
        Err(why) => {
            skipped("counting by cgroup", &why);
            None
        }
    }
}

fn stat(options: &[&str]) -> Command {
    let mut command = command();
    command.args(["stat", "--json"]).args(options);
    command
}

fn tasks(within: &Cgroup, events: &str, tasks: &[&str]) -> Value {
    let name = within.name();
    let patterns = format!("{name},{name}/*");
    let mut tiptoe = stat(&["-e", events, "--for-each-cgroup", &patterns, "--"]);
    session(&output(
        tiptoe
            .arg(target("cgrouped"))
            .arg(within.path())
            .args(tasks),
    ))
}

fn session(output: &Output) -> Value {
    session_with(output, "nothing")
}

fn session_with(output: &Output, allowed: &str) -> Value {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let line = text.lines().rfind(|line| line.starts_with('{'));
    let session = Report::parse(line.unwrap_or_else(|| panic!("no session: {text}"))).value;
    let notes = session["notes"].as_array().map_or(&[][..], Vec::as_slice);
    let is_amiss = |note: &&Value| {
        let note = note.to_string();
        !note.contains("that the kernel did not report") && !note.contains(allowed)
    };
    assert_eq!(notes.iter().find(is_amiss), None, "{text}");
    session
}

fn value(session: &Value, cgroup: Option<&str>, event: &str) -> f64 {
    let counts = session["stat"]["counts"].as_array().expect("counts");
    let plain = cgroup.map(|name| name.trim_end_matches(" (removed)"));
    let is_removed = cgroup != plain;
    let of = |count: &&Value| {
        let is_it = count["event"] == event && count["cgroup"].as_str() == plain;
        is_it && count["is_removed"].as_bool().unwrap_or(false) == is_removed
    };
    let count = counts.iter().find(of);
    let count = count.unwrap_or_else(|| panic!("no {event} of {cgroup:?}: {session:#}"));
    assert_eq!(count["state"], "counted", "{count}");
    count["value"].as_f64().expect("a number")
}

fn events_and(events: &str, more: Option<&str>) -> String {
    let all = [Some(events), more];
    all.into_iter().flatten().collect::<Vec<_>>().join(",")
}

/// Without `more` events tiptoe counts by tasks, unless other programs start and end too many.
#[track_caller]
fn assert_way(session: &Value, more: Option<&str>) {
    let [rounds, switches] = ["rounds", "switches"].map(|name| &session["stat"][name]);
    let by_tasks = rounds.as_u64() > Some(0) && switches == 0;
    assert!(
        !by_tasks || more.is_none(),
        "{rounds} rounds, {switches} switches"
    );
}

#[track_caller]
fn assert_close(counted: f64, expected: f64, what: &str) {
    let off = (counted - expected).abs() / expected;
    assert!(off <= 0.001, "{what}: {counted} and not {expected}");
}

#[test]
fn each_cgroup_has_cpu_time() {
    both_ways(|more| {
        cpu_time(more, |counted, _, name| assert!(counted > 0.0, "{name}"));
    });
}

#[test]
#[ignore = "nightly: asserts a time"]
fn cpu_time_is_that_of_the_kernel() {
    both_ways(|more| cpu_time(more, assert_close));
}

fn cpu_time(more: Option<&str>, check: Check) {
    let Some(within) = cgroup() else { return };
    let all = [
        "a,burn=400",
        "a,burn=300",
        "b,burn=500,sleep=20,burn=100",
        "c,calls=200000,burn=350",
        "b,sleep=50,burn=5,sleep=50,burn=5",
    ];
    let events = events_and("task-clock,context-switches", more);
    let session = tasks(&within, &events, &all);
    assert_way(&session, more);
    let check = check_where_seen(&session, check);
    for name in ["a", "b", "c"] {
        let counted = value(
            &session,
            Some(&format!("{}/{name}", within.name())),
            "task-clock",
        );
        check(counted, Cgroup::usage_ns(&within.path().join(name)), name);
    }
}

#[test]
fn calls_are_those_of_the_cgroup_that_made_them() {
    let Some(within) = cgroup() else { return };
    let all = [
        "pin=0,a,calls=3000",
        "pin=0,a,calls=2000",
        "pin=0,a,calls=1000",
        "pin=0,b,calls=5000",
        "pin=0,b,calls=500,c,calls=700,b,calls=300",
        "pin=0,c,calls=1100",
    ];
    let session = tasks(&within, &format!("{CALLS},page-faults"), &all);
    let name = |cgroup: &str| format!("{}/{cgroup}", within.name());
    for (cgroup, calls) in [("a", 6000.0), ("b", 5800.0), ("c", 1800.0)] {
        assert_eq!(
            value(&session, Some(&name(cgroup)), CALLS),
            calls,
            "{cgroup}"
        );
    }
}

#[test]
fn page_faults_are_exact() {
    both_ways(page_faults);
}

fn page_faults(more: Option<&str>) {
    let Some(within) = cgroup() else { return };
    let all = [
        "a,faults=20000",
        "b,faults=3000,a,faults=500,b,faults=1000",
        "b,sleep=10,faults=700",
    ];
    let events = events_and("page-faults,minor-faults,major-faults", more);
    let session = tasks(&within, &events, &all);
    assert_way(&session, more);
    let check = check_where_seen(&session, |counted, faults, cgroup| {
        assert_eq!(counted, faults, "{cgroup}");
    });
    let name = |cgroup: &str| format!("{}/{cgroup}", within.name());
    for (cgroup, faults) in [("a", 20_500.0), ("b", 4_700.0)] {
        let counted = value(&session, Some(&name(cgroup)), "page-faults");
        check(counted, faults, cgroup);
        assert_eq!(value(&session, Some(&name(cgroup)), "major-faults"), 0.0);
    }
}

#[test]
fn sums_over_all_cgroups_are_complete() {
    let Some(within) = cgroup() else { return };
    let events = format!("task-clock,page-faults,context-switches,cpu-clock,{CALLS}");
    let all = [
        "a,calls=2000,burn=50",
        "b,faults=900,burn=20",
        "c,calls=100,sleep=30",
    ];
    let name = within.name();
    let patterns = format!("/,{name},{name}/*");
    let mut tiptoe = stat(&["-e", &events, "--for-each-cgroup", &patterns, "--"]);
    let session = session(&output(
        tiptoe.arg(target("cgrouped")).arg(within.path()).args(all),
    ));
    for event in events.split(',') {
        let of = |cgroup: &str| value(&session, Some(cgroup), event);
        assert_eq!(
            of("/"),
            value(&session, None, event),
            "{event}: the root is all"
        );
        let parts = ["a", "b", "c", "out"].map(|part| of(&format!("{name}/{part}")));
        assert_eq!(
            of(&name),
            parts.iter().sum::<f64>(),
            "{event}: its parts are all"
        );
        assert!(of(&name) > 0.0 && of(&name) <= of("/"), "{event}");
    }
}

#[test]
#[ignore = "nightly: asserts a time"]
fn the_clock_of_a_cpu_never_stops() {
    let Some(within) = cgroup() else { return };
    let options = [
        "-e",
        "cpu-clock",
        "--per-cpu",
        "--for-each-cgroup",
        "/",
        "--",
    ];
    let mut tiptoe = stat(&options);
    let all = [
        "pin=0,a,calls=20000,sleep=300",
        "pin=0,b,calls=20000,sleep=300",
    ];
    let session = session(&output(
        tiptoe.arg(target("cgrouped")).arg(within.path()).args(all),
    ));
    let counts = session["stat"]["counts"].as_array().expect("counts").iter();
    let clocks: Vec<f64> = counts
        .filter(|count| count["cgroup"].is_null())
        .map(|count| count["value"].as_f64().expect("a time"))
        .collect();
    assert!(
        !clocks.is_empty() && clocks.iter().all(|clock| *clock >= 300e6),
        "{clocks:?}"
    );
}

#[test]
fn intervals_add_up() {
    let Some(within) = cgroup() else { return };
    let name = within.name();
    let mut tiptoe = stat(&["-e", CALLS, "-I", "50", "--for-each-cgroup", &name, "--"]);
    let done = output(tiptoe.arg(target("cgrouped")).arg(within.path()).args([
        "a,calls=4000,sleep=120,calls=500",
        "late,sleep=100,calls=250",
    ]));
    let session = session(&done);
    let intervals = intervals(&done);
    assert_eq!(session["stat"]["intervals"], intervals.len());
    let of = |interval: &Value| {
        let counts = interval["counts"].as_array().expect("counts").iter();
        let own = counts.filter(|count| count["cgroup"] == name.as_str());
        own.map(|count| count["value"].as_f64().expect("a number"))
            .sum::<f64>()
    };
    assert!(intervals.len() > 2);
    let sum: f64 = intervals.iter().map(of).sum();
    assert_eq!(sum, value(&session, Some(&name), CALLS));
    assert_eq!(sum, 4750.0 + 16.0);
}

fn intervals(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines = text.lines().filter(|line| line.starts_with('{'));
    let lines = lines.map(|line| Report::parse(line).value);
    lines.filter(|line| line["at_ns"].is_u64()).collect()
}

#[test]
fn a_new_cgroups_time_begins_when_it_is_made() {
    if let Some((own, whole)) = times_of_a_new_cgroup() {
        assert!(own < whole, "{own} of {whole}");
    }
}

#[test]
#[ignore = "nightly: asserts a time"]
fn a_new_cgroup_has_no_time_of_before() {
    if let Some((own, whole)) = times_of_a_new_cgroup() {
        assert!(own < whole - 400_000_000, "{own} of {whole}");
    }
}

fn times_of_a_new_cgroup() -> Option<(u64, u64)> {
    let within = cgroup()?;
    let name = format!("{}/late", within.name());
    let mut tiptoe = stat(&["-e", "task-clock", "-I", "100", "--for-each-cgroup"]);
    tiptoe.args([&format!("{}/l*", within.name()), "--"]);
    tiptoe.arg(target("cgrouped")).arg(within.path());
    let done = output(tiptoe.arg("sleep=450,late,burn=20,sleep=350"));
    let session = session(&done);
    let times = |counts: &Value, cgroup: Option<&str>| {
        let mut counts = counts.as_array().expect("counts").iter();
        let own = counts.find(|count| count["cgroup"].as_str() == cgroup)?;
        Some(own["time_enabled_ns"].as_u64().expect("a time"))
    };
    let both = |counts: &Value| Some((times(counts, Some(&name))?, times(counts, None)?));
    let intervals = intervals(&done);
    let each = intervals.iter();
    let each: Vec<(u64, u64)> = each.filter_map(|one| both(&one["counts"])).collect();
    assert!(each.len() > 1, "{intervals:?}");
    assert!(each.iter().all(|(own, whole)| own <= whole), "{each:?}");
    let reported: u64 = each.iter().map(|(own, _)| own).sum();
    let (all, whole) = both(&session["stat"]["counts"]).expect("it is in the sums");
    assert!(reported <= all, "{reported} of {all}");
    Some((all, whole))
}

#[test]
fn a_tiptoe_that_is_killed_leaves_nothing() {
    let Some(within) = cgroup() else { return };
    for _ in 0..3 {
        let mut ours =
            Process::start(stat(&["-e", "task-clock", "--for-each-cgroup", "/"]).args([
                "--",
                "sh",
                "-c",
                "echo on; sleep 60",
            ]));
        assert_eq!(ours.line(), "on");
        ours.signal(libc::SIGKILL);
    }
    let session = tasks(&within, CALLS, &["a,calls=100"]);
    let name = format!("{}/a", within.name());
    assert_eq!(value(&session, Some(&name), CALLS), 100.0);
}

#[test]
fn the_json_of_cgroups_keeps_its_form() {
    let Some(within) = cgroup() else { return };
    let name = within.name();
    for (event, form) in [
        ("page-faults", include_str!("forms/stat-cgroups.txt")),
        (AT_SWITCHES, include_str!("forms/stat-cgroups-switches.txt")),
    ] {
        let all = ["--for-each-cgroup", &name, "-I", "50", "-e", event, "--"];
        let mut tiptoe = stat(&all);
        tiptoe.arg(target("cgrouped")).arg(within.path());
        let done = output(tiptoe.arg("a,burn=100,faults=10"));
        let text = String::from_utf8_lossy(&done.stderr).replace(&name, "NAME");
        let typed = ["kind", "what", "why"].map(|key| format!(".typed_notes[].note.{key}"));
        let mut any = vec![".tiptoe", ".command[]", ".stat.whom", ".notes[]"];
        any.extend(typed.iter().map(String::as_str));
        Form::of_json(&text, &any).assert_is(form);
    }
}
