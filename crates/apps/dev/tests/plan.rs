//! Tests `tiptoe-dev plan` as a user runs it.

use std::process::{Command, Output};

use serde_json::Value;

fn plan(args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tiptoe-dev"));
    let output: Output = command
        .arg("plan")
        .args(args)
        .output()
        .expect("tiptoe-dev runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.is_empty(),
        "{args:?}: {said}"
    );
    String::from_utf8(output.stdout).expect("text")
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&plan(&[args, &["--json"]].concat())).expect("JSON")
}

/// Options of a plan that needs at most three counters at a time.
const PUBLISHED: [&str; 8] = [
    "-e",
    "cycles",
    "--for-each-cgroup",
    "p,p/1,p/2,p/3",
    "-a",
    "--cpus",
    "2",
    "--slots",
];

#[test]
fn the_same_plan_and_seed_give_the_same_report() {
    let args = [&PUBLISHED[..], &["2"]].concat();
    assert_eq!(plan(&args), plan(&args));
    assert_ne!(plan(&args), plan(&[&args[..], &["--seed", "2"]].concat()));
}

#[test]
fn events_that_fit_are_exact_in_each_way_of_switching() {
    let plan = json(&[&PUBLISHED[..], &["3"]].concat());
    for event in plan["events"].as_array().unwrap() {
        assert_eq!(event["counted_percent"], 100.0, "{event}");
        assert_eq!(event["worst_error_percent"], 0.0, "{event}");
    }
    let [everything, changed, read] = &plan["policies"].as_array().unwrap()[..] else {
        panic!("{plan}");
    };
    assert_eq!(
        (&read["policy"], &read["reads"]),
        (&"read".into(), &1.into())
    );
    assert_eq!(read["added"], 0);
    assert_eq!(changed["blind_percent"], 0.0);
    assert!(everything["blind_percent"].as_f64() > Some(0.0));
    assert!(changed["added"].as_u64() < everything["added"].as_u64());
}

#[test]
fn a_recorded_trace_is_used_unchanged() {
    let folder = std::env::temp_dir().join(format!("tiptoe-plan-{}", std::process::id()));
    std::fs::write(
        &folder,
        "# two cgroups\n5.0 0 a\n5.5 0 b\n5.75 0 a\n6.0 0 /\n",
    )
    .unwrap();
    let path = folder.to_str().unwrap();
    let plan = json(&[
        "-e",
        "cycles,cs",
        "--for-each-cgroup",
        "a,b",
        "--trace",
        path,
    ]);
    std::fs::remove_file(&folder).unwrap();
    assert_eq!(plan["recorded"], true);
    assert_eq!(plan["seconds"], 1.0);
    let each = &plan["events"][0]["each"];
    assert_eq!(
        (&each[0]["enabled_ns"], &each[1]["enabled_ns"]),
        (&750_000_000.into(), &250_000_000.into())
    );
    assert_eq!(plan["policies"][1]["added"], 6);
}

#[test]
fn the_report_names_events_in_error() {
    let text = plan(&[
        "-e",
        "cycles:D,instructions:D",
        "--for-each-cgroup",
        "a,b",
        "-a",
        "--slots",
        "3",
        "--cpus",
        "1",
    ]);
    assert!(
        text.starts_with("plan for each of 2 cgroups and the system: 3 counters on 1 CPU\n"),
        "{text}"
    );
    assert!(text.contains("note: instructions:D is in error for 2 of 2 cgroups: more is pinned than there are counters"), "{text}");
    assert!(text.contains("only what changes"), "{text}");
}
