//! What the end-to-end tests share: building the target programs, running the command, reading its report.
//!
//! Targets print `expect FUNCTION COUNT` for each function whose calls they can count themselves, and check
//! their own results: a target that ends well has seen nothing of tiptoe. Where calls may end otherwise than by
//! a return, they print that too: `truth`.

pub mod breakpoint;
pub mod cgroup;
pub mod debian;
pub mod evidence;
pub mod foreign;
mod front;
pub mod futexes;
pub mod heard;
pub mod keeper;
pub mod memory;
pub mod process;
pub mod ready;
pub mod report;
mod skipped;
pub mod target;
pub mod tiptoe;
pub mod tracepoint;
pub mod truth;
mod turn;
pub mod waiting;

pub use cgroup::Cgroup;
pub use debian::Debian;
pub use foreign::Foreign;
pub use futexes::Futexes;
pub use memory::Site;
pub use process::Process;
pub use ready::Ready;
pub use report::{Expected, Report};
pub use skipped::skipped;
pub use target::{go_target, java_target, musl_target, rust_target, target, target_with};
pub use tiptoe::{Probe, Run, command};
pub use tracepoint::Tracepoint;
pub use waiting::Waiting;

use std::path::{Path, PathBuf};

/// Runs before `main`, while there is one thread: nothing that a test program starts outlives it.
#[used]
#[unsafe(link_section = ".init_array")]
static KEEP: extern "C" fn() = keep;

extern "C" fn keep() {
    front::keep_this_process();
}

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests lies in the workspace")
        .to_path_buf()
}

/// `whole` repetitions, scaled by `TIPTOE_TEST_SCALE` (0.004 in the gate, 0.01 in `make nightly`, 1 in `make stress`), at least one.
pub fn scaled(whole: u64) -> u64 {
    ((whole as f64 * scale()) as u64).max(1)
}

/// All of `whole` in `make stress`, else every third from the first on: what is asked again in another way.
pub fn sampled<T>(whole: &[T]) -> impl Iterator<Item = &T> {
    let step = if scale() < 1.0 { 3 } else { 1 };
    whole.iter().step_by(step)
}

fn scale() -> f64 {
    let scale = std::env::var("TIPTOE_TEST_SCALE").ok();
    scale.and_then(|scale| scale.parse().ok()).unwrap_or(0.004)
}

/// Where a program is, by its name; none where it is not installed.
pub fn installed(program: &str) -> Option<PathBuf> {
    ["/usr/bin", "/usr/sbin", "/bin", "/usr/local/go/bin"]
        .iter()
        .map(|folder| Path::new(folder).join(program))
        .find(|path| path.exists())
}

/// Is this process root?
pub fn is_root() -> bool {
    // SAFETY: geteuid reads the caller's credentials and cannot fail.
    unsafe { libc::geteuid() == 0 }
}
