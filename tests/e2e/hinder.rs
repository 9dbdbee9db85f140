//! Other processes can hinder a trace only for a bounded time, and the report names them.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use tiptoe_tests::process::wait_until;
use tiptoe_tests::{Probe, Process, Report, Site, command, is_root, skipped, target};

use crate::watch;

#[test]
fn an_exec_during_the_attach_is_reported() {
    let mut program = Process::waiting(&target("becomes"), &[]);
    let pid = program.pid().to_string();
    let mut attach = command();
    // Patching all functions of libc takes longer than the program needs for its exec.
    let options = ["--via", "agent", "--budget", "off", "--duration", "60"];
    attach
        .args(["probe", "libc.so.6:*", "-p", &pid])
        .args(options);
    program.go();
    let output = tiptoe_tests::process::output(&mut attach);
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("ran another program"), "{said}");
    assert!(!said.contains("did not answer"), "{said}");
    assert!(program.lives());
    assert!(program.finish().1.success());
}

#[test]
fn a_stopped_agent_removes_its_probes_when_it_continues() {
    if !is_root() {
        return skipped("a held agent", "needs root");
    }
    let program = target("hot");
    let mut target = Process::waiting(&program, &["2", "1000"]);
    let site = Site::new(target.pid(), &program, "add");
    let attached = Probe::new(&["add"])
        .with(&["--latency"])
        .attach(&[target.pid()]);
    attached.wait_ready();
    let mut freeze =
        Process::start(Command::new(tiptoe_tests::target("freeze")).arg(target.pid().to_string()));
    assert_eq!(freeze.line(), "frozen");
    let report = attached.interrupt();
    let notes = report.value["notes"].to_string();
    assert!(notes.contains("the agent did not answer"), "{notes}");
    assert!(notes.contains("it removes the probes when"), "{notes}");
    // When the agent (tiptoe's library) continues, it finds that no tiptoe owns its shared memory, and restores the
    // code.
    assert!(freeze.finish().1.success());
    site.wait_original();
    target.go();
    assert!(target.finish().1.success());
}

/// Regression: the agent's thread of the former session (trace) unmapped the new session's memory, so the program
/// died.
#[test]
fn a_session_began_beside_the_thread_of_the_former_one() {
    if !is_root() {
        return skipped("a slow agent", "needs root");
    }
    let program = target("hot");
    let mut target = Process::waiting(&program, &["2", "1000"]);
    let pid = target.pid();
    let site = Site::new(pid, &program, "add");
    let attach = || Probe::new(&["add"]).attach(&[pid]);
    let is_borrowed = || {
        let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).expect("it lives");
        !call.starts_with("0 0x0 ")
    };
    let within = Duration::from_secs(30);
    let first = attach();
    first.wait_ready();
    let mut stale =
        Process::start(Command::new(tiptoe_tests::target("stale")).arg(pid.to_string()));
    assert_eq!(stale.line(), "seized");
    first.process.signal(libc::SIGKILL);
    let thread = PathBuf::from(format!("/proc/{pid}/task/{}", stale.line()));
    assert!(thread.join("comm").exists(), "{thread:?}");
    // The thread in which `second` loads the agent must not begin a session, because `second` is killed at once.
    let second = attach();
    wait_until("an injection", within, is_borrowed);
    second.process.signal(libc::SIGKILL);
    wait_until("its end", within, || !is_borrowed());
    let third = attach();
    third.wait_ready();
    assert!(stale.finish().1.success());
    wait_until("the thread's end", within, || !thread.exists());
    assert!(target.lives());
    let notes = third.interrupt().value["notes"].to_string();
    assert!(notes.contains("another tiptoe"), "{notes}");
    site.wait_original();
    let fourth = attach();
    fourth.wait_ready();
    target.go();
    assert!(target.finish().1.success());
    let report = fourth.finish();
    assert_eq!((report.via("agent"), report.count("add")), (1, 2000));
}

#[test]
fn other_processes_at_the_same_address_do_not_disable_a_watch() {
    let Some(_turn) = watch::turn() else { return };
    let mut program = Process::waiting(&target("watched"), &["crowded", "20"]);
    let pid = program.pid().to_string();
    let mut watch = command();
    let options = ["stats.hits", "--json", "--budget", "1%", "--duration", "60"];
    watch
        .arg("watch")
        .args(options)
        .args(["-p", &pid])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let (mut tiptoe, ready) =
        tiptoe_tests::Ready::of(&mut watch, |watch| watch.spawn().expect("tiptoe starts"));
    ready.wait();
    program.go();
    let said = BufReader::new(tiptoe.stderr.take().expect("it is piped"));
    let mut said = said.lines().map(|line| line.expect("text"));
    let moved = said
        .by_ref()
        .find(|line| line.contains("moved from all CPUs to the threads of its process"));
    assert!(moved.is_some(), "the watch did not move");
    program.go();
    assert!(program.finish().1.success());
    let output = tiptoe.wait_with_output().expect("our child");
    assert!(output.status.success());
    let report = Report::parse(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(
        watch::find_row(&report, "seldom")["count"],
        20,
        "{:#}",
        report.value["watch"]
    );
    assert_eq!(report.value["watch"]["form"]["by"], "thread");
}

#[test]
fn other_processes_that_disable_a_watch_are_reported() {
    let Some(_turn) = watch::turn() else { return };
    let mut program = Process::waiting(&target("watched"), &["crowded", "20"]);
    let watch =
        Probe::watch_within("1%").with(&["stats.hits", "--via", "kernel", "--duration", "1"]);
    let watched = watch.attach(&[program.pid()]);
    watched.wait_ready();
    program.go();
    let report = watched.finish();
    let notes = report.value["notes"].to_string();
    assert!(
        notes.contains("`--via kernel-task` excludes these processes"),
        "{notes}"
    );
    program.go();
    assert!(program.finish().1.success());
}
