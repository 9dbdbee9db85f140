//! Tests that rates are measured only if each thread has its own CPU.

use std::process::Command;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

#[test]
fn threads_that_would_share_a_cpu_are_refused() {
    let allowed = sched_getaffinity(None).expect("the CPUs of this thread");
    let first = (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu));
    let mut one = CpuSet::new();
    one.set(first.expect("it runs on one"));
    // The command inherits this affinity.
    sched_setaffinity(None, &one).expect("one of its own");
    for bench in [
        &["bench", "resolve", "-t", "8"][..],
        &["bench", "scope", "-t", "1,8"],
        &["bench", "breakpoint", "stress", "-t", "8"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tiptoe-dev"));
        let output = command.args(bench).output().expect("tiptoe-dev runs");
        assert_eq!(output.status.code(), Some(2), "{bench:?}: {output:?}");
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            "error: 8 threads need 8 CPUs, and 1 can be used\n\
             hint: `-t 1` gives each thread its own CPU\n"
        );
    }
}
