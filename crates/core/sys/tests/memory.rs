//! The limit on tiptoe's memory.
#![cfg(feature = "host")]

use std::hint::black_box;
use std::process::Command;

use tiptoe_sys::host::memory::{Bounded, has_room};

#[global_allocator]
static ALLOCATOR: Bounded = Bounded;

#[test]
fn more_than_the_limit_ends_the_process() {
    const GREEDY: &str = "TIPTOE_TEST_GREEDY";
    if std::env::var_os(GREEDY).is_some() {
        let half = black_box(Vec::<u8>::with_capacity(500 << 20));
        assert!(has_room(100 << 20) && !has_room(200 << 20));
        let more = black_box(Vec::<u8>::with_capacity(500 << 20));
        unreachable!("{} and {}", half.capacity(), more.capacity());
    }
    let this = std::env::current_exe().expect("its path");
    let name = "more_than_the_limit_ends_the_process";
    let run = Command::new(this)
        .args([name, "--nocapture"])
        .env(GREEDY, "1")
        .output();
    let run = run.expect("it runs");
    let stderr = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("error: ") && stderr.contains("\nhint: "),
        "{stderr}"
    );
}
