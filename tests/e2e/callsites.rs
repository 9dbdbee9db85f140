//! Waits are reported at the user's functions, not at the functions of the runtime that the user's functions call.

use std::path::Path;

use serde_json::Value;
use tiptoe_tests::{Probe, Process, Run, target};

const PYTHON: &str = "/usr/bin/python3";

fn rows(run: &Run) -> Vec<Value> {
    let rows = run.good().value["locks"]["rows"].as_array();
    rows.expect("the locks").clone()
}

#[track_caller]
fn check(run: &Run, is: &str, function: &str) {
    let rows = rows(run);
    let site = |row: &Value| row["callsite"].as_str().unwrap_or_default().to_owned();
    let found = rows
        .iter()
        .any(|row| row["type"] == is && site(row).starts_with(&format!("{function}+")));
    assert!(found, "{is} in {function}: {rows:#?}");
}

#[test]
fn waits_of_cpp_are_the_programs_own() {
    for (kind, is) in [
        ("mutex", "mutex"),
        ("write", "rwlock"),
        ("read", "rwlock"),
        ("condition", "condition"),
        ("semaphore", "futex"),
        ("latch", "futex"),
        ("atomic", "futex"),
        ("join", "join"),
        ("once", "once"),
        ("future", "futex"),
    ] {
        let run = Probe::lock().run(&target("runtime_waits"), &[kind]);
        check(&run, is, &format!("runtime_waits:wait_{kind}"));
    }
}

#[test]
fn a_librarys_waits_are_its_own() {
    let plugin = target("waits_plugin");
    let plugin = plugin.to_str().expect("text");
    // Python loads libstdc++ with the plugin, after the attach.
    let code = format!("import ctypes; ctypes.CDLL('{plugin}').wait_often(100)");
    let run = Probe::lock().run(Path::new(PYTHON), &["-c", &code]);
    check(&run, "futex", "libwaits_plugin.so:wait_in_plugin");
}

#[test]
fn frame_pointers_are_followed_where_there_are_any() {
    let run = Probe::lock().run(&target("framed_waits"), &[]);
    check(&run, "futex", "framed_waits:wait_framed");
}

#[test]
fn pythons_locks_are_pythons() {
    let code = "import threading, time
lock = threading.Lock()
def hold():
    for _ in range(10):
        with lock: time.sleep(0.02)
        time.sleep(0.001)
threads = [threading.Thread(target=hold) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()";
    let run = Probe::lock().run(Path::new(PYTHON), &["-c", code]);
    for row in rows(&run) {
        let site = row["callsite"].as_str().unwrap_or_default();
        assert!(site.starts_with("python3"), "{row:#}");
    }
    check(&run, "semaphore", "python3:PyThread_acquire_lock_timed");
}

#[test]
fn current_waits_are_at_the_users_functions() {
    let plugin = target("waits_plugin");
    let code = format!(
        "import ctypes; ctypes.CDLL('{}').wait_for_line()",
        plugin.to_str().expect("text")
    );
    let mut program = Process::start(std::process::Command::new(PYTHON).args(["-c", &code]));
    assert_eq!(program.line(), "waits");
    let now = Probe::lock().with(&["--now"]);
    let now = now.attach_and_wait(&[program.pid()]);
    let waits = &now.good().value["now"]["waits"];
    let is_it = |wait: &Value| {
        let site = wait["callsite"].as_str().unwrap_or_default();
        wait["type"] == "futex" && site.starts_with("libwaits_plugin.so:wait_in_plugin+")
    };
    let mut all = waits.as_array().into_iter().flatten();
    assert!(all.any(is_it), "{waits:#}");
    program.go();
    assert!(program.finish().1.success());
}
