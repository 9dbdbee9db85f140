//! Runs one test under a keeper, which kills what the test leaves running.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

#[path = "../../tests/support/evidence.rs"]
mod evidence;
#[path = "../../tests/support/keeper.rs"]
mod keeper;

pub use keeper::{adopt, kill_all};

/// Runs a program for at most `seconds`. Returns its status as a shell does; 124 if it ran out of time.
#[expect(
    clippy::zombie_processes,
    reason = "the keeper reaps it and its descendants"
)]
pub fn run(seconds: &str, program: &str, arguments: &[&str]) -> i32 {
    let limit = seconds.parse().map(Duration::from_secs);
    let limit = limit.unwrap_or_else(|error| panic!("{seconds}: {error}"));
    // SAFETY: getppid touches no memory.
    let front = unsafe { libc::getppid() };
    keeper::block_signals();
    keeper::be_keeper(front);
    let left = keeper::Leftovers::of(keeper::pid());
    left.prepare();
    let own = std::process::id().cast_signed();
    let mut test = Command::new(program);
    test.args(arguments).envs(left.environment(&crate::root()));
    // SAFETY: the closure makes system calls only.
    unsafe { test.pre_exec(move || keeper::before_exec(own)) };
    let child = test
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    keeper::keep(child.id().cast_signed(), &left, Some(limit)).status()
}
