//! A test program that was started without a keeper, as by `cargo test`, forks one. The keeper forks the test process,
//! and kills what a test leaves.
//!
//! ```text
//! front (the process that was started) ── keeper ── test process ── what the test starts
//! ```
//!
//! If the front is killed, the keeper gets SIGTERM. If the keeper is killed, the test process gets SIGKILL, and the
//! front, which is a subreaper like the keeper, kills the rest. Each process must be forked while its parent has one
//! thread, because `PR_SET_PDEATHSIG` sends its signal when the parent's *thread* ends.

use std::io;
use std::time::Duration;

use crate::keeper::{
    KEPT, Leftovers, adopt, be_keeper, before_exec, block_signals, keep, kill_all, pid, reap,
    wait_signal,
};

/// Puts a keeper above the caller, which must have one thread. Only the new, kept process returns.
pub fn keep_this_process() {
    if std::env::var_os(KEPT).is_some() {
        return;
    }
    block_signals();
    adopt();
    let front = pid();
    let left = Leftovers::of(front);
    match fork() {
        0 => {
            be_keeper(front);
            left.prepare();
            let keeper = pid();
            match fork() {
                0 => become_kept(keeper, &left),
                test => std::process::exit(keep(test, &left, None).status()),
            }
        }
        keeper => {
            let status = wait_for_keeper(keeper);
            // A killed keeper leaves processes.
            kill_all();
            left.remove();
            std::process::exit(status);
        }
    }
}

fn become_kept(keeper: i32, left: &Leftovers) {
    if before_exec(keeper).is_err() {
        std::process::exit(1);
    }
    for (name, value) in left.environment(&crate::root()) {
        // SAFETY: there is one thread, so no other reads the environment.
        unsafe { std::env::set_var(name, value) };
    }
}

/// Forwards SIGTERM to the keeper. Returns the keeper's exit status.
fn wait_for_keeper(keeper: i32) -> i32 {
    loop {
        match wait_signal(Duration::from_secs(3600)) {
            None => {}
            Some(libc::SIGCHLD) => {
                while let Some((pid, end)) = reap() {
                    if pid == keeper {
                        return end.status();
                    }
                }
            }
            // SAFETY: our child is not reaped, so the pid is its own.
            Some(_) => unsafe {
                libc::kill(keeper, libc::SIGTERM);
            },
        }
    }
}

fn fork() -> i32 {
    // SAFETY: there is one thread, so no other holds a lock.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", io::Error::last_os_error());
    child
}
