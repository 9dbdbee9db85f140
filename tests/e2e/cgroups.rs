//! `tiptoe stat --for-each-cgroup`: what each cgroup costs, beside what the kernel and the tasks themselves say.

use std::fs;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use tiptoe_tests::process::{output, wait_until};
use tiptoe_tests::{Cgroup, Process, command, is_root, scaled, skipped, target};

const CALLS: &str = "syscalls:sys_enter_getppid";

/// A cgroup for a test; none where it cannot run, which it says.
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

/// What these tasks do in a cgroup and those within it, which are counted with these events from before they begin.
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

/// The same of one that may say this.
fn session_with(output: &Output, allowed: &str) -> Value {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let line = text.lines().rfind(|line| line.starts_with('{'));
    let session = serde_json::from_str(line.unwrap_or_else(|| panic!("no session: {text}")));
    let session: Value = session.expect("JSON");
    // Of tasks that the kernel hides from tracing, as some machines have them, it says so.
    let notes = session["notes"].as_array().map_or(&[][..], Vec::as_slice);
    let is_amiss = |note: &&Value| {
        let note = note.to_string();
        !note.contains("did not tell of") && !note.contains(allowed)
    };
    assert_eq!(notes.iter().find(is_amiss), None, "{text}");
    session
}

/// A count of one cgroup; of the system without a name.
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

/// Whether two times differ by a part in a thousand at most.
#[track_caller]
fn assert_close(counted: f64, expected: f64, what: &str) {
    let off = (counted - expected).abs() / expected;
    assert!(off <= 0.001, "{what}: {counted} and not {expected}");
}

#[test]
fn cpu_time_is_that_of_the_kernel() {
    let Some(within) = cgroup() else { return };
    // They share both CPUs, with one that gives way all the time, and one that comes and goes.
    let all = [
        "a,burn=400",
        "a,burn=300",
        "b,burn=500,sleep=20,burn=100",
        "c,calls=200000,burn=350",
        "b,sleep=50,burn=5,sleep=50,burn=5",
    ];
    let session = tasks(&within, "task-clock,context-switches", &all);
    for name in ["a", "b", "c"] {
        let counted = value(
            &session,
            Some(&format!("{}/{name}", within.name())),
            "task-clock",
        );
        assert_close(counted, Cgroup::usage_ns(&within.path().join(name)), name);
    }
}

#[test]
fn calls_are_those_of_the_cgroup_that_made_them() {
    let Some(within) = cgroup() else { return };
    // Three tasks in one cgroup, and others that move themselves, all on one CPU.
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
    let Some(within) = cgroup() else { return };
    let all = [
        "a,faults=20000",
        "b,faults=3000,a,faults=500,b,faults=1000",
        "b,sleep=10,faults=700",
    ];
    let session = tasks(&within, "page-faults,minor-faults,major-faults", &all);
    let name = |cgroup: &str| format!("{}/{cgroup}", within.name());
    for (cgroup, faults) in [("a", 20_500.0), ("b", 4_700.0)] {
        assert_eq!(
            value(&session, Some(&name(cgroup)), "page-faults"),
            faults,
            "{cgroup}"
        );
        assert_eq!(value(&session, Some(&name(cgroup)), "major-faults"), 0.0);
    }
}

#[test]
fn sums_are_whole() {
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

/// The counter of a CPU is not stopped for any cgroup, however often these change.
#[test]
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
fn cgroups_come_and_go() {
    let Some(within) = cgroup() else { return };
    let name = within.name();
    within.make("first");
    let script = format!(
        "cd {path}; {target} {path} first,calls=500; rmdir first; {target} {path} second,calls=300; rmdir second; \
         mkdir second; {target} {path} second,calls=77",
        path = within.path().display(),
        target = target("cgrouped").display(),
    );
    let patterns = format!("{name}/*");
    let options = [
        "-e",
        CALLS,
        "--for-each-cgroup",
        &patterns,
        "--",
        "sh",
        "-c",
        &script,
    ];
    let session = session(&output(&mut stat(&options)));
    for (cgroup, calls) in [
        ("first (removed)", 500.0),
        ("second (removed)", 300.0),
        ("second", 77.0),
    ] {
        let name = format!("{name}/{cgroup}");
        assert_eq!(value(&session, Some(&name), CALLS), calls, "{name}");
    }
}

/// Whoever is moved from outside, while it runs, is charged to its new cgroup from there on, as in cpu.stat.
#[test]
fn a_running_task_is_moved() {
    let Some(within) = cgroup() else { return };
    let name = within.name();
    let (from, to) = (within.make("from"), within.make("to"));
    let patterns = format!("{name}/*");
    let script = format!(
        "echo on; read line; {} {} from,burn=600",
        target("cgrouped").display(),
        within.path().display(),
    );
    let report = std::env::temp_dir().join(format!("tiptoe-moved-{}", std::process::id()));
    let path = report.to_str().expect("UTF-8");
    let options = [
        "-e",
        "task-clock",
        "--for-each-cgroup",
        &patterns,
        "-o",
        path,
    ];
    let mut tiptoe = Process::start(stat(&options).args(["--", "sh", "-c", &script]));
    assert_eq!(tiptoe.line(), "on");
    tiptoe.go();
    let procs = || fs::read_to_string(from.join("cgroup.procs")).unwrap_or_default();
    wait_until("a task in its cgroup", Duration::from_secs(20), || {
        !procs().is_empty()
    });
    std::thread::sleep(Duration::from_millis(100));
    Cgroup::put(&to, procs().trim().parse().expect("a pid"));
    let (_, status) = tiptoe.finish();
    assert!(status.success());
    let text = fs::read_to_string(&report).expect("a report");
    let _ = fs::remove_file(&report);
    let session: Value = serde_json::from_str(&text).expect("JSON");
    for (cgroup, path) in [("from", &from), ("to", &to)] {
        let counted = value(&session, Some(&format!("{name}/{cgroup}")), "task-clock");
        let off = (counted - Cgroup::usage_ns(path)).abs();
        // One tick of the kernel's, which may come between the move and our hearing of it.
        assert!(off <= 10e6, "{cgroup}: {counted}, off by {off}");
        assert!(counted > 50e6, "{cgroup}: {counted}");
    }
}

#[test]
fn a_thousand_cgroups_are_told_apart() {
    let Some(within) = cgroup() else { return };
    let (tasks_, each) = (20, 50);
    let all: Vec<String> = (0..tasks_)
        .map(|task| {
            let visits = (0..each).map(|visit| {
                let cgroup = visit * tasks_ + task;
                format!("c{cgroup},calls={}", 1 + cgroup % 13)
            });
            visits.collect::<Vec<_>>().join(",")
        })
        .collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    // Half of them are there before.
    for cgroup in 0..tasks_ * each / 2 {
        within.make(&format!("c{cgroup}"));
    }
    let session = tasks(&within, &format!("{CALLS},task-clock"), &all);
    for cgroup in 0..tasks_ * each {
        let name = format!("{}/c{cgroup}", within.name());
        let calls = f64::from(1 + cgroup % 13);
        assert_eq!(value(&session, Some(&name), CALLS), calls, "{name}");
    }
}

/// The check at each switch finds nothing amiss beside processes that are born and die; `session` demands that.
#[test]
fn nothing_is_amiss_beside_forking_servers() {
    let Some(within) = cgroup() else { return };
    let forks = "echo 0 > $0/cgroup.procs; while :; do /bin/true; done";
    let start = |at: &str| {
        let path = within.make(at);
        Process::start(Command::new("sh").args(["-c", forks]).arg(path))
    };
    let servers = ["a", "b"].map(start);
    let name = within.name();
    let patterns = format!("{name}/*");
    for _ in 0..scaled(1000) {
        let options = [
            "-e",
            "task-clock,page-faults",
            "--for-each-cgroup",
            &patterns,
        ];
        let done = output(stat(&options).args(["--", "sleep", "0.2"]));
        let session = session(&done);
        for at in ["a", "b"] {
            let faults = value(&session, Some(&format!("{name}/{at}")), "page-faults");
            assert!(faults > 0.0, "{at}");
        }
    }
    within.kill();
    drop(servers);
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
    let intervals = session["stat"]["intervals"].as_array().expect("intervals");
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

/// Each run's cgroups may be others.
#[test]
fn runs_have_their_own_cgroups() {
    let Some(within) = cgroup() else { return };
    let name = within.name();
    let script = format!(
        "cd {path}; for at in 3 2 1 0; do [ -d g$at ] || exec {target} {path} g$at,calls=$((at+1))00; done",
        path = within.path().display(),
        target = target("cgrouped").display(),
    );
    let patterns = format!("{name}/g?");
    let options = ["-e", CALLS, "-r", "3", "--for-each-cgroup", &patterns, "--"];
    let done = output(stat(&options).args(["sh", "-c", &script]));
    let session = session(&done);
    for (at, calls) in [(3, 400.0 / 3.0), (2, 150.0), (1, 200.0)] {
        let counted = value(&session, Some(&format!("{name}/g{at}")), CALLS);
        assert_eq!(counted.round(), f64::round(calls), "g{at}");
    }
}

/// More are made and removed than there is room for at a time: none is lost from the sums.
#[test]
fn thousands_come_and_go() {
    let Some(within) = cgroup() else { return };
    let (name, path) = (within.name(), within.path().display().to_string());
    let count = 1400 + scaled(4000);
    let script = format!(
        "for at in $(seq {count}); do mkdir {path}/x$at; echo 0 > {path}/x$at/cgroup.procs; echo 0 > {path}/cgroup.procs; \
         rmdir {path}/x$at; done"
    );
    let options = [
        "-e",
        "cgroup-switches,task-clock",
        "--for-each-cgroup",
        &name,
        "--",
    ];
    let done = output(stat(&options).args(["sh", "-c", &script]));
    let session = session_with(&done, "are not listed any more");
    let whole = value(&session, Some(&name), "task-clock");
    assert_close(whole, Cgroup::usage_ns(within.path()), "all of them");
}

/// tiptoe may die at any moment: nothing stays in the kernel, and the next one counts.
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
fn mistakes_are_told() {
    let Some(within) = cgroup() else { return };
    within.make("workers");
    let name = within.name();
    for (cgroups, word) in [
        (format!("{name}/worker"), format!("near: {name}/workers")),
        (
            "no-such-cgroup-at-all".to_owned(),
            "patterns such as".to_owned(),
        ),
    ] {
        let done = output(&mut stat(&["--for-each-cgroup", &cgroups, "--", "true"]));
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{said}");
        assert!(said.contains(&word) && said.contains("no cgroup"), "{said}");
    }
}

/// Without BPF the kernel's own events of cgroups count; without these the files of cgroups are read; and it is said.
#[test]
fn without_bpf_others_count() {
    let Some(within) = cgroup() else { return };
    let name = within.name();
    let a = within.make("a");
    let pattern = format!("{name}/a");
    // By root without the right to use BPF, and by nobody.
    let denied: [(&[&str], &str); 2] = [
        (
            &["setpriv", "--bounding-set", "-bpf,-sys_admin", "--"],
            "events of its own",
        ),
        (
            &["setpriv", "--reuid", "65534", "--clear-groups", "--"],
            "cpu.stat",
        ),
    ];
    for (without, words) in denied {
        // Where nothing ever switches, the kernel may not see that its events of a cgroup are to count.
        let mut program = Process::waiting(&target("hot"), &["4", "0"]);
        Cgroup::put(&a, program.pid());
        let mut through = Command::new(without[0]);
        through.args(&without[1..]).arg(command().get_program());
        let options = [
            "stat",
            "--json",
            "-e",
            "task-clock,cycles",
            "--for-each-cgroup",
        ];
        through.args(options).args([&pattern, "--duration", "0.3"]);
        let before = Cgroup::usage_ns(&a);
        program.go();
        let done = output(&mut through);
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
        let session: Value = serde_json::from_str(&said).expect("JSON");
        assert!(
            session["notes"].to_string().contains(words),
            "{}",
            session["notes"]
        );
        let counted = value(&session, Some(&pattern), "task-clock");
        assert!(counted > 0.0 && counted <= Cgroup::usage_ns(&a) - before + 10e6);
        drop(program);
    }
}

/// What is wrong with an event is told, whatever else could be read.
#[test]
fn unknown_tracepoints_are_refused() {
    let Some(within) = cgroup() else { return };
    let options = [
        "-e",
        "task-clock,sched:sched_nope",
        "--for-each-cgroup",
        &within.name(),
    ];
    let done = output(stat(&options).args(["--", "true"]));
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(said.contains("sched_nope"), "{said}");
}
