//! Attaches to running programs: from then on counts are exact, and nothing remains after the detach.

use std::process::Command;
use std::time::Duration;

use tiptoe_tests::process::wait_until;
use tiptoe_tests::waiting::last_child;
use tiptoe_tests::{ExpectedCounts, Probe, Process, Report, Site, command, scaled, target};

fn check(name: &str, arguments: &[&str], functions: &[&str]) {
    let program = target(name);
    let mut process = Process::waiting(&program, arguments);
    let sites: Vec<Site> = functions
        .iter()
        .map(|function| Site::new(process.pid(), &program, function))
        .collect();
    let attached = Probe::new(functions).attach(&[process.pid()]);
    sites.iter().for_each(Site::wait_probed);
    process.go();
    let (output, status) = process.finish();
    assert!(status.success(), "{status}");
    attached
        .finish()
        .assert_exact(&ExpectedCounts::parse(&output));
}

const HOT: &[&str] = &["add", "down", "digits", "scale", "fill", "choose"];

#[test]
fn counts_are_exact_from_the_attach_on() {
    check("hot", &["8", "20000"], HOT);
}

#[test]
fn threads_that_start_later_count() {
    check("churn", &["20000"], &["churned"]);
}

#[test]
fn main_may_leave_by_pthread_exit() {
    check("main_exits", &["1000"], &["called"]);
}

#[test]
fn children_never_count_for_their_parent() {
    for mode in ["fork", "_Fork", "clone", "vfork", "posix_spawn"] {
        println!("{mode}");
        check("children", &[mode, "1000"], &["family"]);
    }
}

#[test]
fn signals_stay_the_programs() {
    for mode in [
        "old_handler",
        "own_faults",
        "blocked",
        "ignored",
        "waited",
        "deadly",
    ] {
        println!("{mode}");
        check(
            "signals",
            &[mode],
            &["called", "shape_head_at_four", "shape_ret_first"],
        );
    }
}

#[test]
fn system_calls_end_as_they_would() {
    check("blocking", &["3"], &["called"]);
}

#[test]
fn detach_restores_the_original_bytes() {
    let program = target("hot");
    let mut process = Process::waiting(&program, &["4", "0"]);
    let site = Site::new(process.pid(), &program, "add");
    process.go();
    for _ in 0..scaled(1000) {
        let attached = Probe::new(HOT).attach(&[process.pid()]);
        attached.wait_ready();
        process.go();
        assert_eq!(process.line(), "called");
        assert!(attached.interrupt().count("add") > 0);
        site.wait_original();
    }
    let (output, status) = process.finish();
    assert!(
        status.success() && output.contains("expect add"),
        "{status}"
    );
}

#[test]
fn attaches_to_functions_hot_in_64_threads() {
    let program = target("hot");
    let mut process = Process::waiting(&program, &["64", "0"]);
    let site = Site::new(process.pid(), &program, "choose");
    process.go();
    for _ in 0..scaled(250) {
        let run = Probe::new(HOT)
            .with(&["--duration", "0.05"])
            .attach_and_wait(&[process.pid()]);
        run.good();
        site.wait_original();
    }
    let (_, status) = process.finish();
    assert!(status.success(), "{status}");
}

#[test]
fn duration_ends_the_trace() {
    let mut process = Process::waiting(&target("hot"), &["2", "0"]);
    process.go();
    let run = Probe::new(&["add"])
        .with(&["--duration", "1"])
        .attach_and_wait(&[process.pid()]);
    let report = run.good();
    assert!(report.count("add") > 1000, "{:#}", report.value);
    assert_eq!(report.value["cost"]["basis"], "estimated");
    assert!(
        report.value["cost"]["fraction"]
            .as_f64()
            .is_some_and(|fraction| fraction > 0.0)
    );
    assert!(process.lives());
}

#[test]
fn a_signal_while_it_attached_lost_the_report() {
    let program = target("hot");
    let start = || Process::waiting(&program, &["2", "0"]);
    let mut both = [start(), start()];
    both.sort_by_key(Process::pid);
    let [mut first, mut second] = both;
    let [site, untouched] = [&first, &second].map(|one| Site::new(one.pid(), &program, "add"));
    // No thread of a stopped process can load tiptoe's library, so the attach takes seconds.
    second.signal(libc::SIGSTOP);
    first.go();
    for (signal, name) in [(libc::SIGTERM, "SIGTERM"), (libc::SIGINT, "SIGINT")] {
        let mut tiptoe = command();
        let pids = format!("{},{}", first.pid(), second.pid());
        tiptoe.args(["probe", "add", "--json", "--budget", "off", "-p", &pids]);
        let tiptoe = Process::start(&mut tiptoe);
        site.wait_probed();
        first.go();
        assert_eq!(first.line(), "called");
        tiptoe.signal(signal);
        let (report, status) = tiptoe.finish();
        assert_eq!(status.code(), Some(128 + signal), "{report}");
        let report = Report::parse(&report);
        assert!(report.count("add") > 0, "{:#}", report.value);
        let note = format!(
            "attaching was broken off by {name}: not counted: {} hot",
            second.pid()
        );
        let notes = report.value["notes"].as_array().expect("notes");
        assert!(notes.contains(&note.as_str().into()), "{notes:#?}");
        site.wait_original();
        assert!(!untouched.is_probed());
    }
    second.signal(libc::SIGCONT);
    second.go();
    for process in [first, second] {
        let (output, status) = process.finish();
        let is_right = status.success() && output.contains("expect add");
        assert!(is_right, "{status}: {output}");
    }
}

#[test]
fn a_process_that_ended_during_the_attach_lost_the_counts_of_the_others() {
    let program = target("hot");
    let mut first = Process::waiting(&program, &["1", "1000"]);
    let site = Site::new(first.pid(), &program, "add");
    // Attaching to this process takes seconds, because one of its threads holds the loader's lock.
    let mut second = Process::start(Command::new(target("loader_locked")).arg("iterate"));
    assert_eq!(second.line(), "locked");
    let attached = Probe::new(&["add"]).attach(&[first.pid(), second.pid()]);
    site.wait_probed();
    second.signal(libc::SIGKILL);
    second.wait();
    attached.wait_ready();
    first.go();
    assert!(first.finish().1.success());
    let report = attached.finish();
    assert_eq!(report.count("add"), 1000, "{:#}", report.value);
    let notes = report.value["typed_notes"].to_string();
    assert!(notes.contains("ended-in-attach"), "{notes}");
}

#[test]
fn a_command_that_was_killed_during_the_attach_had_no_report() {
    let mut tiptoe = command();
    let all = "/usr/bin/python3:*";
    tiptoe.args(["probe", "--latency", all, "--json", "-o", "/dev/stdout"]);
    let tiptoe = Process::start(tiptoe.args(["--", "/usr/bin/python3", "-c", "pass"]));
    wait_until("the command's exec", Duration::from_secs(20), || {
        let child = last_child(tiptoe.pid());
        let program = std::fs::read_link(format!("/proc/{child}/exe"));
        let is_python = program.is_ok_and(|path| path.to_string_lossy().contains("python"));
        // SAFETY: the call has no memory effects.
        is_python && unsafe { libc::kill(child.cast_signed(), libc::SIGKILL) } == 0
    });
    let (report, status) = tiptoe.finish();
    assert_eq!(status.code(), Some(128 + libc::SIGKILL), "{report}");
    let notes = Report::parse(&report).value["typed_notes"].to_string();
    assert!(notes.contains("ended-in-attach"), "{notes}");
}
