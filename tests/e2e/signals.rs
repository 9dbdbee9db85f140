//! SIGTRAP and SIGILL stay the program's: installed, blocked, ignored, waited for, or deadly.

use tiptoe_tests::{Expected, Probe, target};

use crate::counts::check;

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
    report.assert_exact(&Expected::parse(&String::from_utf8_lossy(&run.stdout)));
}
