//! The screen folds similar notes (limits of the result); JSON has all.

use std::process::Command;

use tiptoe_tests::{Process, Ready, Report, command};

const KILLED: usize = 8;

fn killed(more: &[&str]) -> String {
    let start = |_| Process::start(Command::new("sleep").arg("60"));
    let sleeps: Vec<Process> = (0..KILLED).map(start).collect();
    let pids: Vec<String> = sleeps.iter().map(|sleep| sleep.pid().to_string()).collect();
    let mut tiptoe = command();
    tiptoe
        .args(["probe", "libc.so.6:malloc", "-p", &pids.join(",")])
        .args(more);
    let (tiptoe, ready) = Ready::of(&mut tiptoe, Process::start);
    ready.wait();
    sleeps.iter().for_each(|sleep| sleep.signal(libc::SIGKILL));
    let (report, status) = tiptoe.finish();
    assert!(status.success(), "{report}");
    report
}

#[test]
fn many_similar_notes_are_folded_except_in_json_and_with_v() {
    let notes = |report: &str| {
        let lines = report.lines();
        let notes = lines.filter(|line| line.contains(" (sleep) was killed by signal 9"));
        notes.count()
    };
    let report = killed(&[]);
    assert_eq!(notes(&report), 3, "{report}");
    let folded = "\nwarning: … and 5 more like these: `-v` prints them\n";
    assert!(report.contains(folded), "{report}");
    let report = killed(&["-v"]);
    assert_eq!(notes(&report), KILLED, "{report}");
    let report = killed(&["--json"]);
    let report = Report::parse(&report).value;
    let kept = report["notes"].as_array().expect("notes").iter();
    let kept = kept.filter(|note| note.as_str().is_some_and(|note| note.contains("signal 9")));
    assert_eq!(kept.count(), KILLED, "{report:#}");
    let typed = report["typed_notes"].as_array().expect("notes").iter();
    let typed = typed.filter(|note| note["area"] == "process" && note["note"]["signal"] == 9);
    assert_eq!(typed.count(), KILLED, "{report:#}");
}
