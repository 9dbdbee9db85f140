//! Debuggers must work on a program that was traced before.

use std::process::Command;

use tiptoe_tests::{Probe, Process, installed, skipped, target};

/// Regression: gdb resolved the name of the mapped agent (tiptoe's library), below /proc/self, to a pipe of gdb
/// itself, and read from it for ever.
#[test]
fn the_agents_name_leads_to_no_file() {
    let mut process = attached_twice();
    process.go();
    process.close();
    let (output, status) = process.finish();
    assert!(status.success(), "{status}");
    leads_nowhere(&output);
}

#[test]
fn the_agents_name_leads_to_no_file_in_a_command() {
    let run = Probe::new(&["called"]).run(&target("objects"), &[]);
    assert_eq!(run.good().count("called"), 1);
    leads_nowhere(&String::from_utf8_lossy(&run.stdout));
}

fn leads_nowhere(output: &str) {
    let objects: Vec<&str> = output
        .lines()
        .filter_map(|line| line.strip_prefix("object "))
        .collect();
    let agents = objects.iter().filter(|name| name.contains("tiptoe"));
    assert!(agents.clone().count() > 0, "no agent: {output}");
    for name in agents {
        assert_eq!(*name, "/memfd:tiptoe-agent (deleted)");
    }
    assert!(!output.contains("object /proc/"), "{output}");
}

#[test]
fn gdb_attaches_after_tiptoe() {
    let Some(gdb) = installed("gdb") else {
        return skipped("gdb after tiptoe", "gdb is not installed");
    };
    let mut process = attached_twice();
    let output = Command::new("timeout")
        .args(["-k", "1", "60"])
        .arg(gdb)
        .args(["-batch", "-nx", "-ex", "info sharedlibrary", "-p"])
        .arg(process.pid().to_string())
        .output()
        .expect("timeout runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("libc.so.6"), "{output:?}");
    assert!(text.contains("memfd:tiptoe-agent"), "{output:?}");
    process.go();
    process.close();
    assert!(process.finish().1.success());
}

fn attached_twice() -> Process {
    let process = Process::waiting(&target("objects"), &[]);
    for _ in 0..2 {
        let run = Probe::new(&["called"])
            .with(&["--duration", "50ms"])
            .attach_and_wait(&[process.pid()]);
        run.good();
    }
    process
}
