//! SIGTRAP and SIGILL remain the program's, whether it handles, blocks, ignores, awaits or dies of them.

use std::os::unix::process::ExitStatusExt;

use tiptoe_tests::{ExpectedCounts, Probe, Process, Site, installed, skipped, target};

use crate::counts::check;

const PROBED: [&str; 3] = ["called", "shape_head_at_four", "shape_ret_first"];

fn mode(mode: &str) {
    check(&target("signals"), &[mode]);
}

#[test]
fn sigaction_returns_the_programs_own_handler() {
    mode("old_handler");
}

#[test]
fn the_programs_own_faults_reach_its_handlers() {
    mode("own_faults");
}

#[test]
fn alternate_stack_and_reset_flags_hold() {
    mode("on_its_stack");
}

#[test]
fn blocked_signals_stay_blocked() {
    mode("blocked");
}

#[test]
fn a_thread_with_everything_blocked_runs_probed_functions() {
    mode("blocked_thread");
}

#[test]
fn ignored_signals_stay_ignored() {
    mode("ignored");
}

#[test]
fn sigwait_gets_its_signal() {
    mode("waited");
}

#[test]
fn faults_without_a_handler_kill_the_child() {
    mode("deadly");
}

#[test]
fn the_programs_own_death_is_its_exit_status() {
    let run = Probe::new(&["called"]).run(&target("signals"), &["dies"]);
    assert_eq!(run.status, 128 + libc::SIGILL, "{}", run.stderr);
    let report = run.report.expect("a report all the same");
    report.assert_exact(&ExpectedCounts::parse(&String::from_utf8_lossy(
        &run.stdout,
    )));
}

fn masks(mode: &str) {
    let program = target("masks");
    check(&program, &[mode]);
    attached(mode);
}

fn attached(mode: &str) {
    let program = target("masks");
    let mut process = Process::waiting(&program, &[mode]);
    let probed = Site::new(process.pid(), &program, "called");
    let attached = Probe::new(&PROBED).attach(&[process.pid()]);
    probed.wait_probed();
    process.go();
    let (output, status) = process.finish();
    assert!(status.success(), "{mode}: {status}");
    attached
        .finish()
        .assert_exact(&ExpectedCounts::parse(&output));
}

#[test]
fn waits_for_a_blocked_signal_are_never_lost() {
    masks("awaited");
}

#[test]
fn waits_get_what_is_sent_to_the_process() {
    masks("another_waits");
}

#[test]
fn waits_under_full_masks_survive_traps() {
    masks("full_masks");
}

#[test]
fn waits_that_block_a_signal_continue() {
    masks("not_for_them");
}

#[test]
fn threads_that_wait_can_be_cancelled() {
    masks("cancelled");
}

#[test]
fn a_signalfd_reads_what_is_sent() {
    masks("signalfd");
}

#[test]
fn calls_through_libcs_syscall_keep_their_masks() {
    masks("raw_calls");
}

#[test]
fn the_masks_of_handlers_are_the_programs() {
    masks("handler_masks");
}

#[test]
fn the_flags_of_its_handlers_hold() {
    masks("flags");
}

#[test]
fn its_handlers_may_jump_out() {
    masks("jumps_out");
}

#[test]
fn new_programs_inherit_what_is_blocked_and_ignored() {
    masks("new_programs");
}

#[test]
fn signals_that_were_blocked_before_remain_blocked() {
    attached("held");
    check(&target("masks"), &["held"]);
}

fn kernel_masks(pid: u32) -> Vec<u64> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the program lives");
    let mask = |path: std::path::PathBuf| {
        let status = std::fs::read_to_string(path.join("status")).ok()?;
        let blocked = status
            .lines()
            .find_map(|line| line.strip_prefix("SigBlk:\t"))?;
        Some(u64::from_str_radix(blocked, 16).ok()? & (1 << 3 | 1 << 4))
    };
    let mut masks: Vec<u64> = threads
        .flatten()
        .filter_map(|entry| mask(entry.path()))
        .collect();
    masks.sort_unstable();
    masks
}

#[test]
fn after_detach_threads_block_what_they_believe_to_block() {
    const BOTH: [u64; 2] = [1 << 4, 1 << 3 | 1 << 4];
    let program = target("masks");
    let mut process = Process::waiting(&program, &["stays"]);
    let pid = process.pid();
    let site = Site::new(pid, &program, "called");
    assert_eq!(kernel_masks(pid), BOTH);
    for _ in 0..3 {
        let attached = Probe::new(&PROBED).attach(&[pid]);
        site.wait_probed();
        assert_eq!(
            kernel_masks(pid),
            [0, 0, BOTH[1]],
            "the last is the agent's"
        );
        attached.interrupt();
        site.wait_original();
        assert_eq!(kernel_masks(pid), BOTH);
    }
    let attached = Probe::new(&PROBED).attach(&[pid]);
    site.wait_probed();
    process.go();
    assert_eq!(process.line(), "blocked");
    attached.interrupt();
    assert_eq!(kernel_masks(pid), BOTH);
    process.go();
    let (output, status) = process.finish();
    assert!(status.success(), "{status}: {output}");
}

#[test]
fn rediss_crash_handler_gets_its_own_faults() {
    let Some(server) = installed("redis-server") else {
        return skipped("redis-server", "it is not installed");
    };
    for (signal, traced) in [
        (libc::SIGILL, false),
        (libc::SIGILL, true),
        (libc::SIGSEGV, true),
    ] {
        let socket = std::env::temp_dir().join(format!("tiptoe-crash-{}", std::process::id()));
        let mut command = std::process::Command::new(&server);
        command.args([
            "--port",
            "0",
            "--save",
            "",
            "--appendonly",
            "no",
            "--unixsocket",
        ]);
        command.arg(&socket);
        let mut process = Process::start(&mut command);
        while !process.line().contains("eady to accept") {
            assert!(process.lives());
        }
        let site = Site::new(process.pid(), &server, "serverCron");
        let attached = traced.then(|| {
            let attached = Probe::new(&["dict*", "serverCron"]).attach(&[process.pid()]);
            site.wait_probed();
            attached
        });
        process.signal(signal);
        let (output, status) = process.finish();
        let crashed = format!("crashed by signal: {signal}");
        assert!(output.contains(&crashed), "{traced}: {status}: {output}");
        // The handler itself may fault.
        let deadly = [Some(signal), Some(libc::SIGSEGV)];
        assert!(deadly.contains(&status.signal()), "{traced}: {status}");
        if let Some(attached) = attached {
            attached.finish();
        }
    }
}

/// Regression: some processors report an `int1` with its own address instead of the next instruction's, so SIGTRAP
/// killed the program.
#[test]
fn a_thread_that_hits_an_inner_trap_byte_continues() {
    let program = target("inner");
    let mut process = Process::waiting(&program, &["1000"]);
    let site = Site::new(process.pid(), &program, "inner");
    let attached = Probe::new(&["inner"]).attach(&[process.pid()]);
    site.wait_probed();
    process.go();
    let (output, status) = process.finish();
    assert!(
        status.success() && output.contains("expect inner"),
        "{status} {output}"
    );
    attached.finish();
}

/// Regression: after a single step, a trap byte before the next instruction was taken for the cause of the signal.
#[test]
fn a_program_that_steps_itself_runs_each_instruction_once() {
    check(&target("steps"), &[]);
}

#[test]
fn faults_of_blocked_signals_kill() {
    let program = target("refaults");
    for signal in ["ill", "trap"] {
        for how in ["", ",other", ",blocked", ",blocked,other", ",nodefer"] {
            let how = format!("{signal}{how}");
            let alone = std::process::Command::new(&program).arg(&how).output();
            let alone = alone.expect("the target runs");
            let killed = alone.status.signal().map(|signal| 128 + signal);
            let run = Probe::new(&["fault"]).run(&program, &[&how]);
            assert_eq!(run.stdout, alone.stdout, "{how}: {}", run.stderr);
            let status = killed.or(alone.status.code());
            assert_eq!(Some(run.status), status, "{how}: {}", run.stderr);
        }
    }
}
