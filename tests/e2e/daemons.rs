//! Daemons that give up root. Their /proc/self then belongs to root, so the daemons may not open files in it.

use std::time::Duration;

use tiptoe_tests::memory::{patched_bytes, patched_bytes_in};
use tiptoe_tests::process::wait_until;
use tiptoe_tests::{ExpectedCounts, Probe, Process, Site, WaitingTarget, is_root, skipped, target};

const LIMIT: Duration = Duration::from_secs(20);

fn daemon(how: &str) -> Option<(Process, Site)> {
    if !is_root() {
        skipped("a daemon", "only root can give root up");
        return None;
    }
    let program = target("daemon");
    let process = Process::waiting(&program, &[how]);
    let site = Site::new(process.pid(), &program, "work");
    Some((process, site))
}

/// Waits until the code is restored. If tiptoe was killed, checks only the program's own code. Patches of libc
/// (hooks) then stay until another attach, because no process stops the threads.
fn wait_restored(pid: u32, is_killed: bool) {
    let file = if is_killed { "/daemon" } else { "" };
    let is_held = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
        !status.expect("it lives").contains("TracerPid:\t0")
    };
    wait_until("its own code", LIMIT, || {
        patched_bytes_in(pid, file) == 0 && !is_held()
    });
}

fn comes_and_goes(pid: u32) {
    let run = Probe::new(&["work"])
        .with(&["--duration", "0.2", "--via", "agent"])
        .attach_and_wait(&[pid]);
    assert!(run.good().count("work") > 0, "{}", run.stderr);
    assert_eq!(patched_bytes(pid), 0);
}

fn ends_well(process: Process) -> ExpectedCounts {
    let (output, status) = process.finish();
    assert!(status.success(), "{status}");
    ExpectedCounts::parse(&output)
}

#[test]
fn a_daemon_is_counted_exactly() {
    let Some((mut process, site)) = daemon("drops") else {
        return;
    };
    let attached = Probe::new(&["work"]).attach(&[process.pid()]);
    site.wait_probed();
    process.go();
    let expected = ends_well(process);
    let report = attached.finish();
    report.assert_exact(&expected);
    assert_eq!(report.via("agent"), 1, "{:#}", report.value);
}

#[test]
fn a_daemons_code_is_restored() {
    let Some((mut process, site)) = daemon("drops") else {
        return;
    };
    process.go();
    for _ in 0..3 {
        let killed = Probe::new(&["work"]).attach(&[process.pid()]);
        site.wait_probed();
        killed.process.signal(libc::SIGKILL);
        drop(killed);
        wait_restored(process.pid(), true);
        comes_and_goes(process.pid());
    }
    ends_well(process);
}

#[test]
fn the_code_of_a_daemon_that_tiptoe_started_is_restored() {
    if !is_root() {
        return skipped("a daemon", "only root can give root up");
    }
    let program = target("daemon");
    for end in [libc::SIGINT, libc::SIGKILL] {
        let mut probe = tiptoe_tests::command();
        probe.args(["probe", "work", "--budget", "off", "--"]);
        let mut waiting = WaitingTarget::start(probe.arg(&program).arg("drops"), &program);
        assert!(patched_bytes(waiting.pid) > 0, "it is probed");
        waiting.process.go();
        waiting.process.signal(end);
        wait_restored(waiting.pid, end == libc::SIGKILL);
        comes_and_goes(waiting.pid);
    }
}

#[test]
fn a_daemon_whose_code_cannot_be_written_is_counted_by_the_kernel() {
    let Some((mut process, _)) = daemon("locked") else {
        return;
    };
    process.go();
    let run = Probe::new(&["work"])
        .with(&["--duration", "0.2", "--force"])
        .attach_and_wait(&[process.pid()]);
    let report = run.good();
    assert_eq!(report.via("kernel"), 1, "{:#}", report.value);
    assert!(report.count("work") > 0, "{:#}", report.value);
    let notes = report.value["notes"].to_string();
    assert!(notes.contains("its code cannot be written"), "{notes}");
    ends_well(process);
}
