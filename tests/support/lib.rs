//! Helpers of the end-to-end tests.
//!
//! Targets print `expect FUNCTION COUNT`, and check their own results. A target that exits with 0 was not disturbed.

pub mod breakpoint;
pub mod cgroup;
pub mod debian;
pub mod evidence;
pub mod foreign;
mod form;
mod front;
pub mod futexes;
pub mod keeper;
pub mod logged;
pub mod memory;
pub mod process;
pub mod ready;
pub mod report;
mod schema;
pub mod screen;
mod skipped;
pub mod target;
pub mod tiptoe;
pub mod tracepoint;
pub mod truth;
mod turn;
pub mod waiting;

pub use cgroup::Cgroup;
pub use debian::Debian;
pub use foreign::ForeignProbe;
pub use form::Form;
pub use futexes::Futexes;
pub use memory::{Site, symbol_value, symbols};
pub use process::Process;
pub use ready::Ready;
pub use report::{ExpectedCounts, Report};
pub use screen::OnTerminal;
pub use skipped::skipped;
pub use target::{go_target, java_target, musl_target, rust_target, target, target_with};
pub use tiptoe::{Probe, Run, command, dev_command};
pub use tracepoint::Tracepoint;
pub use waiting::WaitingTarget;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Forks the keeper (which kills what tests leave) before `main`, because there must be only one thread.
#[used]
#[unsafe(link_section = ".init_array")]
static KEEP: extern "C" fn() = keep;

extern "C" fn keep() {
    front::keep_this_process();
}

/// Returns the root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests is in the workspace")
        .to_path_buf()
}

/// Scales `whole` by `TIPTOE_TEST_SCALE` (1 in `make stress`), to at least one.
pub fn scaled(whole: u64) -> u64 {
    ((whole as f64 * scale()) as u64).max(1)
}

/// Returns all cases in `make stress`, otherwise every third.
pub fn sampled<T>(whole: &[T]) -> impl Iterator<Item = &T> {
    let step = if scale() < 1.0 { 3 } else { 1 };
    whole.iter().step_by(step)
}

/// Checks each case, then fails with the names of those that failed.
pub fn each<'c>(cases: impl IntoIterator<Item = &'c &'c str>, check: impl Fn(&str)) {
    let failure = |case: &'c &'c str| {
        let error = catch_unwind(AssertUnwindSafe(|| check(case))).err()?;
        let said = error.downcast_ref::<String>().map(String::as_str);
        let said = said.or(error.downcast_ref::<&str>().copied());
        Some(format!("{case}: {}", said.unwrap_or_default()))
    };
    let failures: Vec<String> = cases.into_iter().filter_map(failure).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn scale() -> f64 {
    let scale = std::env::var("TIPTOE_TEST_SCALE").ok();
    scale.and_then(|scale| scale.parse().ok()).unwrap_or(0.004)
}

/// Returns the path of an installed program.
pub fn installed(program: &str) -> Option<PathBuf> {
    ["/usr/bin", "/usr/sbin", "/bin", "/usr/local/go/bin"]
        .iter()
        .map(|folder| Path::new(folder).join(program))
        .find(|path| path.exists())
}

/// Returns whether this process is root.
pub fn is_root() -> bool {
    // SAFETY: geteuid touches no memory.
    unsafe { libc::geteuid() == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "b: not b\nc: not c")]
    fn each_failed_case_is_named() {
        each(&["a", "b", "c"], |case| assert!(case < "b", "not {case}"));
    }
}
