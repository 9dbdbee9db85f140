//! `tiptoe watch`: the value before an access is right or unknown.

use serde_json::Value;
use tiptoe_tests::{Process, Report, command, target};

use crate::watch::{EVERY, attached, hits, on, rows, turn, watch};

pub(crate) const TRAPPED: i32 = 128 + libc::SIGTRAP;
pub(crate) const STRAY_TRAP: &str = "a trap without a reason ended the program, as a virtual machine may give it while breakpoints move";

const COUNTS: [&str; 5] = [
    "counts[0]",
    "counts[1]",
    "counts[2]",
    "counts[3]",
    "counts[4]",
];

/// Panics with [`STRAY_TRAP`] if SIGTRAP killed the target.
pub(crate) fn traced(options: &[&str], mode: &str, rounds: u64) -> (Vec<Value>, Report) {
    let name = format!("tiptoe-trace-{mode}-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut command = command();
    command.args(["watch", "--trace", "--json"]).args(options);
    command
        .arg("-o")
        .arg(&path)
        .arg("--")
        .arg(target("watched"));
    let output = tiptoe_tests::process::output(command.args([mode, &rounds.to_string()]));
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let _ = std::fs::remove_file(path);
    assert_ne!(
        output.status.code(),
        Some(TRAPPED),
        "{options:?}: {STRAY_TRAP}"
    );
    assert!(output.status.success(), "{output:?}");
    let (lines, report) = text
        .trim_end()
        .rsplit_once('\n')
        .expect("lines and a report");
    let lines = lines.lines().map(|line| Report::parse(line).value);
    (lines.collect(), Report::parse(report))
}

/// Returns how many lines have a known and an unknown old value. Asserts that each known one is the new value less 1.
fn known_and_unknown(lines: &[Value]) -> [usize; 2] {
    let number = |line: &Value, key: &str| line[key].as_str().and_then(|text| text.parse().ok());
    let is_known = |(at, line): &(usize, &Value)| {
        let old: Option<u64> = number(line, "old");
        let around = || &lines[at.saturating_sub(10)..lines.len().min(at + 3)];
        assert!(
            old.is_some() || line["old"] == "?",
            "{line} in {:#?}",
            around()
        );
        assert!(
            old.is_none_or(|old| number(line, "new") == Some(old + 1)),
            "{line} in {:#?}",
            around()
        );
        old.is_some()
    };
    let known = lines.iter().enumerate().filter(is_known).count();
    [known, lines.len() - known]
}

#[test]
#[ignore = "nightly: as after a rest"]
fn values_before_the_first_access_of_a_turn_are_unknown() {
    on(EVERY, |via| {
        let options = ["--rotate", "20ms", "--budget", "off", "--via", via];
        let options = [&COUNTS[..], &options].concat();
        let (lines, report) = traced(&options, "counting", 8_000);
        let [known, unknown] = known_and_unknown(&lines);
        assert!(known > 0 && unknown > 0, "{known}, {unknown}");
        let in_rows = rows(&report).iter().map(|row| row["old_unknown"].as_u64());
        let in_rows = in_rows.sum::<Option<u64>>();
        // Some lines may have been dropped, because the ring of accesses had no room.
        assert!(in_rows >= Some(unknown as u64), "{in_rows:?} of {unknown}");
    });
}

/// With `--rotate`, variables take turns, and only the value before a turn's first access is unknown.
#[test]
#[ignore = "nightly: asserts a share"]
fn most_of_a_turn_is_known() {
    on(EVERY, |via| {
        let options = ["--rotate", "20ms", "--budget", "off", "--via", via];
        let options = [&COUNTS[..], &options].concat();
        let (lines, _) = traced(&options, "counting", 2_000);
        let [known, unknown] = known_and_unknown(&lines);
        assert!(known > unknown && known > 500, "{known}, {unknown}");
    });
}

#[test]
fn values_before_the_first_access_after_a_rest_are_unknown() {
    on(EVERY, |via| {
        let options = ["--budget", "1%", "--via", via];
        let (lines, report) = traced(&[&COUNTS[..2], &options].concat(), "hurried", 300);
        let [known, unknown] = known_and_unknown(&lines);
        assert!(known > 0 && unknown > 0, "{known}, {unknown}");
        let used_up = &report.value["watch"]["allowance"]["used_up"];
        assert!(used_up.as_u64() > Some(0), "{used_up}");
    });
}

#[test]
fn a_child_by_vfork_stores_into_the_program_s_memory() {
    let Some(_turn) = turn() else { return };
    let options = ["counts[0]", "--budget", "off", "--via", "kernel"];
    let (lines, report) = traced(&options, "vforked", 50);
    assert_eq!(known_and_unknown(&lines), [100, 0]);
    assert_eq!(
        (hits(&report, 0), &report.value["watch"]["foreign"]),
        (100, &0.into())
    );
}

#[test]
fn memory_that_other_processes_may_share_is_reported() {
    on(EVERY, |via| {
        let mut program = Process::waiting(&target("watched"), &["shared", "1"]);
        program.go();
        let place = program.line();
        let report = attached(&watch(&[&format!("{place}:8"), "--via", via]), program);
        assert_eq!(hits(&report, 0), 1);
        let notes = report.value["notes"].to_string();
        let shared = format!("`{place}` is in memory that other processes may share");
        assert!(notes.contains(&shared), "{:#}", report.value);
    });
}
