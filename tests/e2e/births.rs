//! No trap byte (int3 or an invalid instruction) may be in place while a thread blocks SIGTRAP or SIGILL, because
//! the kernel kills a process for a fault whose signal is blocked.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tiptoe_tests::{Debian, Probe, Process, go_target, java_target, scaled, skipped, target};

use crate::watch::turn_of;

fn start(name: &str, arguments: &[&str]) -> Process {
    start_program(&target(name), arguments)
}

fn start_program(program: &Path, arguments: &[&str]) -> Process {
    let mut process = Process::start(Command::new(program).args(arguments));
    assert_eq!(process.line(), "ready");
    process
}

fn instruments(function: &str, variable: &str) -> Vec<Probe> {
    let libc = "libc.so.6:pthread_*";
    vec![
        Probe::new(&[function, libc]),
        Probe::new(&[function, libc]).with(&["--latency"]),
        Probe::new(&[function]).with(&["--record"]),
        Probe::lock(),
        Probe::watch().with(&[variable, "--via", "agent"]),
    ]
}

fn attach_often(process: &Process, instruments: &[Probe], times: u64) {
    for time in 0..times {
        for instrument in instruments {
            let _turn = turn_of(instrument);
            let attached = instrument.clone().with(&["--duration", "0.02"]);
            let attached = attached.attach(&[process.pid()]);
            if time % 3 == 2 {
                std::thread::sleep(Duration::from_millis(time * 7_919 % 150));
                attached.process.signal(libc::SIGKILL);
            } else {
                let (_, status) = attached.process.finish();
                assert!(status.success(), "{instrument:?}: {status}");
            }
        }
    }
}

fn ends_well(process: Process) {
    let (output, status) = process.finish();
    assert!(
        status.success() && output.contains("expect "),
        "{status} {output}"
    );
}

/// Regression: a new thread blocks all signals, so the trap byte of a function with a hook (tiptoe's own patch)
/// killed the process.
fn births(creators: &str, pause: &str) {
    let process = start("births", &[creators, pause]);
    attach_often(&process, &instruments("born", "over"), scaled(1000));
    ends_well(process);
}

#[test]
#[ignore = "nightly: a storm of attaches"]
fn threads_that_are_born_every_millisecond_survive_attach_and_detach() {
    births("4", "1000");
}

#[test]
#[ignore = "nightly: a storm of attaches"]
fn threads_that_are_born_all_the_time_survive_attach_and_detach() {
    births("4", "0");
}

#[test]
fn children_that_share_memory_survive_attach_and_detach() {
    let process = start("spawner", &["4"]);
    let all = instruments("started", "over");
    attach_often(&process, &all[..4], scaled(500));
    ends_well(process);
}

#[test]
#[ignore = "nightly: a storm of attaches"]
fn everything_at_once_survives_attach_and_detach() {
    let plugin = target("plugin").display().to_string();
    let process = start("turmoil", &[&plugin]);
    let mut all = instruments("work", "worked");
    all.extend([
        Probe::new(&["*:*work"]).with(&["--under", "live"]),
        Probe::lock().with(&["--via", "kernel"]),
        Probe::watch().with(&["worked", "--via", "kernel"]),
    ]);
    attach_often(&process, &all, scaled(1250));
    ends_well(process);
}

/// Regression: clone3 resets the handlers of posix_spawn's child (CLONE_CLEAR_SIGHAND), so a trap byte killed the
/// child, and posix_spawn reported success. Trixie's libc has no symbol table, so tiptoe knows clone3's code only
/// up to the system call.
#[test]
#[ignore = "nightly: a storm of attaches"]
fn children_without_handlers_survive_attach_and_detach() {
    let root = match Debian::new("trixie") {
        Ok(root) => root,
        Err(why) => return skipped("trixie", &why),
    };
    let process = start_program(&root.target("spawner"), &["4"]);
    let all = [Probe::new(&["libc.so.6:*"]), Probe::lock()];
    attach_often(&process, &all, scaled(500));
    ends_well(process);
    let process = start_program(&root.target("births"), &["4", "0"]);
    attach_often(&process, &instruments("born", "over"), scaled(200));
    ends_well(process);
}

/// While Go's runtime creates a thread, it blocks signals by inline system calls, which no hook sees.
#[test]
#[ignore = "nightly: a storm of attaches"]
fn threads_of_go_and_c_survive_attach_and_detach() {
    let program = match go_target("births_cgo", &[]) {
        Ok(program) => program,
        Err(why) => return skipped("go", &why),
    };
    let process = start_program(&program, &[]);
    let libc = "libc.so.6:pthread_*";
    let all = [
        Probe::new(&["main.main.func*", libc]),
        Probe::new(&[libc]).with(&["--latency"]),
        Probe::lock(),
    ];
    attach_often(&process, &all, scaled(500));
    ends_well(process);
}

#[test]
#[ignore = "nightly: a storm of attaches"]
fn threads_of_java_survive_attach_and_detach() {
    let (java, arguments) = match java_target("Births") {
        Ok(target) => target,
        Err(why) => return skipped("java", &why),
    };
    let process = start_program(&java, &arguments.each_ref().map(String::as_str));
    let libc = "libc.so.6:pthread_*";
    let all = [
        Probe::new(&[libc]),
        Probe::new(&["libjvm.so:JVM_*", libc]).with(&["--latency"]),
        Probe::lock(),
    ];
    attach_often(&process, &all, scaled(500));
    ends_well(process);
}

#[test]
#[ignore = "nightly: a storm of attaches"]
fn a_program_that_blocks_signals_unseen_gets_no_trap_bytes() {
    let process = start("unseen", &[]);
    for _ in 0..scaled(1000) {
        let waits = Probe::lock().with(&["--duration", "0.02"]);
        waits.attach_and_wait(&[process.pid()]).good();
        let within = Probe::new(&["within", "across"]).with(&["--duration", "0.02"]);
        let run = within.attach_and_wait(&[process.pid()]);
        assert_eq!(run.good().via("kernel"), 2, "{:?}", run.report);
    }
    ends_well(process);
}

/// The target reaches a trap byte while signals are blocked, since before the attach or by the kernel for a
/// handler.
fn masked(how: &str) {
    let mut process = start("masked", &[how]);
    for _ in 0..scaled(200) {
        let attached = Probe::new(&["trapped"]).attach(&[process.pid()]);
        attached.wait_ready();
        for _ in 0..2 {
            process.go();
            assert_eq!(process.line(), "called");
        }
        assert!(attached.interrupt().count("trapped") > 0);
        process.go();
        assert_eq!(process.line(), "called");
    }
    ends_well(process);
}

#[test]
fn a_blocked_thread_meets_trap_bytes() {
    masked("mask");
}

#[test]
fn a_handler_within_sigsuspend_meets_trap_bytes() {
    masked("sigsuspend");
}

#[test]
fn a_handler_within_ppoll_meets_trap_bytes() {
    masked("ppoll");
}

#[test]
fn a_handler_within_pselect_meets_trap_bytes() {
    masked("pselect");
}

#[test]
fn a_handler_within_epoll_pwait_meets_trap_bytes() {
    masked("epoll");
}

#[test]
fn a_thread_that_returns_from_a_handler_to_a_block_meets_trap_bytes() {
    masked("handler");
}
