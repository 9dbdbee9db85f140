//! Patches running programs that check every result.

use tiptoe_tests::{Process, command, scaled, target};

const HOT: &[&str] = &["add", "down", "digits", "scale", "fill", "choose"];

fn hot(threads: &str) -> Process {
    let mut process = Process::waiting(&target("hot"), &[threads, "0"]);
    process.go();
    process
}

fn ends_well(process: Process) {
    let (_, status) = process.finish();
    assert!(
        status.success(),
        "the program found a wrong result: {status}"
    );
}

#[test]
#[ignore = "nightly: a storm of probes"]
fn probes_are_added_and_removed_under_64_threads() {
    let process = hot("64");
    let times = scaled(1_000_000).to_string();
    let toggled = command()
        .arg("probe")
        .args(HOT)
        .args(["--budget", "off", "--toggles", &times])
        .args(["-p", &process.pid().to_string()])
        .output()
        .expect("the command runs");
    let said = String::from_utf8_lossy(&toggled.stderr);
    assert!(toggled.status.success(), "{said}");
    assert_eq!(said.trim(), format!("toggled {times} times"));
    ends_well(process);
}
