//! Variables whose address changes, and unmapped memory.

use std::process::Stdio;

use tiptoe_tests::{Process, Ready, Report, command, target};

use crate::bounds::measured;
use crate::watch::{EVERY, attached, find_row, heard, hits, on, turn, watch};

#[test]
fn a_variable_behind_a_pointer_is_followed() {
    on(EVERY, |via| {
        let mut program = Process::waiting(&target("watched"), &["moved", "3"]);
        let mut watch = command();
        watch.args(["watch", "head->next", "--via", via, "--trace"]);
        watch.args(["--json", "--budget", "off"]);
        watch.args(["-p", &program.pid().to_string()]);
        let (mut watch, ready) = Ready::of(&mut watch, Process::start);
        ready.wait();
        for object in 1..=3 {
            program.go();
            // The target stores to the object until the watch has moved there.
            let number = format!("{object:#x}");
            while Report::parse(&watch.line()).value["new"] != *number {}
        }
        program.go();
        let (rest, status) = watch.finish();
        assert!(status.success(), "{status}");
        let report = Report::parse(rest.lines().next_back().expect("a report"));
        // The allocator's stores to freed objects have other rows.
        assert_eq!(
            find_row(&report, "moved")["count"],
            300,
            "{:#}",
            report.value
        );
        let notes = report.value["notes"].to_string();
        assert!(
            notes.contains("`watched:head->next` moved 3 times"),
            "{notes}"
        );
        program.finish();
    });
}

#[test]
fn a_variable_behind_a_null_pointer_was_refused() {
    on(EVERY, |via| {
        let mut watch = command();
        watch.args(["watch", "late->next", "--via", via, "--trace"]);
        watch.args(["--json", "--budget", "off", "-o", "-", "--"]);
        let mut watch = Process::start(watch.arg(target("watched")).args(["late", "1"]));
        while Report::parse(&watch.line()).value["new"] != "0x7" {}
        watch.go();
        let (rest, status) = watch.finish();
        assert!(status.success(), "{status}");
        let report = Report::parse(rest.lines().next_back().expect("a report"));
        let stores = find_row(&report, "set_late")["count"].clone();
        assert_eq!(stores, 100, "{:#}", report.value);
        assert_eq!(report.value["watch"]["variables"][0]["at_least"], true);
        let notes = report.value["notes"].to_string();
        let note = "`watched:late->next` is watched since ";
        assert!(notes.contains(note), "{notes}");
    });
}

#[test]
fn a_second_pointer_to_an_object_was_never_found() {
    on(EVERY, |via| {
        let mut program = Process::waiting(&target("watched"), &["late", "1"]);
        let watched = heard(
            &["late->next", "late_alias->next", "--via", via],
            program.pid(),
        );
        watched.wait_ready();
        program.go();
        watched.wait_for("led to the address of");
        watched.wait_for("is watched since");
        program.close();
        program.wait();
        let talk = watched.talk();
        let report = watched.finish();
        // Either pointer may be seen first.
        let counted = [0, 1].map(|variable| hits(&report, variable));
        assert!(counted.contains(&0), "{counted:?}");
        assert!(counted.iter().sum::<u64>() >= 100, "{counted:?}");
        let notes = report.value["notes"].to_string();
        for said in [&talk, &notes] {
            assert_eq!(said.matches("led to the address of").count(), 1, "{said}");
            assert!(!said.contains("nothing was counted"), "{said}");
        }
        for variable in 0..2 {
            let variable = &report.value["watch"]["variables"][variable];
            assert_eq!(variable["at_least"], true, "{variable:#}");
        }
    });
}

fn sleeps(variable: &str, pid: u32) -> i64 {
    let mut tiptoe = command();
    tiptoe.args(["watch", variable, "--duration", "1s", "--budget", "off"]);
    tiptoe.args(["-p", &pid.to_string()]);
    let tiptoe = tiptoe.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let (said, status, used) = measured(tiptoe.expect("tiptoe runs"));
    assert_eq!(status, 0, "{said}");
    used.ru_nvcsw
}

#[test]
fn a_pointer_that_was_not_set_woke_tiptoe_each_millisecond() {
    let Some(_turn) = turn() else { return };
    let program = Process::waiting(&target("watched"), &["late", "1"]);
    let [set, unset] = ["head->next", "late->next"].map(|name| sleeps(name, program.pid()));
    assert!(unset < 2 * set, "{unset} and {set}");
}

#[test]
fn unmapped_memory_ends_its_watch() {
    on(EVERY, |via| {
        let mut program = Process::waiting(&target("watched"), &["unmapped", "1"]);
        let watched = watch(&["0x700000000000:8", "--via", via]).attach(&[program.pid()]);
        watched.wait_ready();
        program.go();
        assert_eq!(program.line(), "written");
        program.go();
        let report = watched.finish();
        assert!(hits(&report, 0) > 0, "{:#}", report.value);
        let notes = report.value["notes"].to_string();
        assert!(
            notes.contains("`0x700000000000` ended") && notes.contains("it was unmapped"),
            "{notes}"
        );
        assert!(program.finish().1.success());
    });
}

/// Regression: if a pointer led to the address of an unmapped variable, the pointer's target was never watched.
#[test]
fn the_address_of_an_ended_variable_was_taken() {
    on(EVERY, |via| {
        let mut program = Process::waiting(&target("watched"), &["remapped", "1"]);
        let options = ["0x700000000000:8", "late->next", "--via", via];
        let watched = heard(&options, program.pid());
        watched.wait_ready();
        program.go();
        watched.wait_for("it was unmapped");
        program.go();
        watched.wait_for("is watched since");
        program.close();
        program.wait();
        let report = watched.finish();
        assert_eq!(hits(&report, 0), 0, "{:#}", report.value);
        let stores = find_row(&report, "set_late")["count"].clone();
        assert_eq!(stores, 100, "{:#}", report.value);
    });
}

/// Another object may later get the address, so an access by `free` must be reported.
#[test]
fn a_freed_object_is_reported() {
    on(EVERY, |via| {
        let mut program = Process::waiting(&target("watched"), &["freed", "1"]);
        program.go();
        let place = program.line();
        let variable = format!("{place}:8");
        let report = attached(&watch(&[&variable, "--via", via]), program);
        assert_eq!(find_row(&report, "touch")["count"], 8, "{:#}", report.value);
        let notes = report.value["notes"].to_string();
        let freed = format!("`{place}` was accessed by `free`");
        assert!(notes.contains(&freed), "{:#}", report.value);
    });
}
