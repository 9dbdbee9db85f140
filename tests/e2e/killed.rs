//! What killed tiptoes leave in a program must not accumulate.

use std::time::Duration;

use tiptoe_tests::process::wait_until;
use tiptoe_tests::{Probe, Process, scaled, target};

use crate::watch::turn_of;

const THREADS: usize = 4;
/// How many more mappings are allowed. Shared memory of a new length may split a mapping. With more counters, new
/// generated code needs two new arenas (memory near code).
const MORE_MAPS: usize = 8;
/// Two arenas, in KB.
const MORE_SPACE: u64 = 128;

fn modes() -> Vec<Probe> {
    let probe = |options: &[&str]| Probe::new(&["leaf", "outer"]).with(options);
    vec![
        probe(&[]),
        probe(&["--latency"]),
        Probe::new(&["leaf"]).with(&["--under", "outer"]),
        probe(&["--record"]),
        probe(&["--by", "arg0"]),
        Probe::lock(),
        Probe::watch().with(&["turns", "--via", "agent"]),
        Probe::stat().with(&["--by", "scope"]),
    ]
}

fn size(pid: u32) -> (usize, u64) {
    let read =
        |what: &str| std::fs::read_to_string(format!("/proc/{pid}/{what}")).expect("it lives");
    let status = read("status");
    let space = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let space = space.and_then(|words| words.split_whitespace().next()?.parse().ok());
    (read("maps").lines().count(), space.expect("a size"))
}

fn wait_dormant(pid: u32) {
    let tasks = || std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    wait_until("the agent's end", Duration::from_secs(20), || {
        tasks() == THREADS + 1
    });
}

/// Regression: killed sessions (traces) left three mappings each, because an attach reused only the last session's
/// memory.
#[test]
#[ignore = "nightly: killed at many moments"]
fn killed_sessions_leave_no_more_than_sessions_that_end() {
    let mut process = Process::waiting(&target("survivor"), &[&THREADS.to_string()]);
    let pid = process.pid();
    process.go();
    let modes = modes();
    // Each mode runs twice, because shared memory alternates between two addresses.
    for mode in modes.iter().flat_map(|mode| [mode, mode]) {
        let _turn = turn_of(mode);
        let attached = mode.clone().with(&["--duration", "0.2"]).attach(&[pid]);
        attached.process.finish();
    }
    wait_dormant(pid);
    let (maps, space) = size(pid);
    for kill in 0..scaled(1000) {
        let moment = kill * 7_919 % 300;
        let mode = &modes[kill as usize % modes.len()];
        let _turn = turn_of(mode);
        let attached = mode.attach(&[pid]);
        std::thread::sleep(Duration::from_millis(moment));
        attached.process.signal(libc::SIGKILL);
        drop(attached);
    }
    let last = modes[0].clone().with(&["--duration", "0.2"]);
    assert!(last.attach_and_wait(&[pid]).good().count("leaf") > 0);
    wait_dormant(pid);
    let (now, space_now) = size(pid);
    println!("{maps} maps after sessions that ended well, {now} after killed ones");
    assert!(now <= maps + MORE_MAPS, "{now} maps after {maps}");
    assert!(
        space_now <= space + MORE_SPACE,
        "{space_now} kB after {space} kB"
    );
    let (output, status) = process.finish();
    assert!(
        status.success() && output.contains("expect turns"),
        "{status} {output}"
    );
}
