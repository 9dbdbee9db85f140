//! Puts a keeper above a test program that was started by itself, as `cargo test` does.
//!
//! ```text
//! front (the process that was started) ── keeper ── test process ── what the test starts
//! ```
//!
//! - SIGKILL for the front: the keeper gets SIGTERM by `PR_SET_PDEATHSIG`. For the test process: the keeper waits for it.
//! - SIGKILL for the keeper: the test process gets one, too, and the front, a subreaper as well, kills the rest.
//!
//! Each of the three is forked while its parent has one thread, because `PR_SET_PDEATHSIG` follows the parent's *thread*.

use std::io;
use std::time::Duration;

use crate::keeper::{
    KEPT, Leftovers, adopt, be_keeper, before_exec, block_signals, keep, kill_all, pid, reap,
    wait_signal,
};

/// Puts a keeper above the calling process, which must have one thread: returns in the process that is kept, which is
/// another one than before, and in no other. Does nothing where there is a keeper already.
pub fn keep_this_process() {
    if std::env::var_os(KEPT).is_some() {
        return;
    }
    block_signals();
    adopt();
    let left = Leftovers::prepare();
    let front = pid();
    match fork() {
        0 => {
            be_keeper(front);
            let keeper = pid();
            match fork() {
                0 => become_kept(keeper, &left),
                test => std::process::exit(keep(test, &left, None).status()),
            }
        }
        keeper => {
            let status = wait_for_keeper(keeper);
            // Nothing is left, unless somebody killed the keeper.
            kill_all();
            left.remove();
            std::process::exit(status);
        }
    }
}

/// The last steps of a process that is kept, before it runs anything of its own.
fn become_kept(keeper: i32, left: &Leftovers) {
    if before_exec(keeper).is_err() {
        std::process::exit(1);
    }
    for (name, value) in left.environment(&crate::root()) {
        // SAFETY: there is one thread, so none reads the environment.
        unsafe { std::env::set_var(name, value) };
    }
}

/// Waits until the keeper has ended, and hands SIGTERM on to it. Returns its exit status.
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
            // SAFETY: kill takes two numbers; the keeper is our child and not reaped.
            Some(_) => unsafe {
                libc::kill(keeper, libc::SIGTERM);
            },
        }
    }
}

fn fork() -> i32 {
    // SAFETY: the caller has one thread, so the child may do whatever the parent may.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", io::Error::last_os_error());
    child
}
