//! Everything that a test starts ends with the test, however the test ends.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tiptoe_tests::keeper::{self, KEPT};
use tiptoe_tests::process::wait_until;

const VICTIMS: &[&str] = &["attach::", "daemons::", "cgroups::", "locks::", "watch::"];
const ROUNDS: usize = 20;

#[test]
fn a_test_program_that_is_killed_leaves_nothing() {
    // Orphans become our children, so that the test finds them.
    keeper::adopt();
    let folder = std::env::temp_dir();
    let before = [probes_of_the_kernel(), shared_memory()];
    for round in 0..ROUNDS {
        let mut tests = Command::new(std::env::current_exe().expect("our own path"));
        tests.args([
            VICTIMS[round % VICTIMS.len()],
            "--skip",
            "harness::",
            "--test-threads",
            "2",
        ]);
        let tests = tests
            .env_remove(KEPT)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let front = tests.spawn().expect("our own program").id().cast_signed();
        std::thread::sleep(Duration::from_millis((round as u64 * 7_919 + 13) % 500));
        let chain = chain(front);
        let victim = chain[(round % 3).min(chain.len() - 1)];
        // SAFETY: kill takes two numbers, and none of these processes was reaped.
        unsafe { libc::kill(victim, libc::SIGKILL) };
        let name = format!("tiptoe-test-{front}");
        wait_until(
            "the end of all that it started",
            Duration::from_secs(20),
            || {
                while keeper::reap().is_some() {}
                keeper::below(keeper::pid()).is_empty()
            },
        );
        assert!(
            !folder.join(&name).exists(),
            "round {round}: {name} is left"
        );
        let cgroups = keeper::cgroup_root().map_or(Vec::new(), |root| names(&root));
        assert!(
            !cgroups.iter().any(|cgroup| cgroup.starts_with(&name)),
            "round {round}: {cgroups:?}"
        );
        // Other tests may have probes and shared memory now, so the test waits for their end.
        wait_until("no probe or shared memory", Duration::from_secs(20), || {
            [probes_of_the_kernel(), shared_memory()] == before
        });
    }
}

fn chain(front: i32) -> Vec<i32> {
    let mut chain = vec![front];
    while chain.len() < 3 {
        let last = chain[chain.len() - 1];
        let children = std::fs::read_to_string(format!("/proc/{last}/task/{last}/children"));
        let child = children
            .ok()
            .and_then(|text| text.split(' ').next()?.parse().ok());
        let Some(child) = child else { break };
        chain.push(child);
    }
    chain
}

fn probes_of_the_kernel() -> Vec<String> {
    let text = std::fs::read_to_string("/sys/kernel/tracing/uprobe_events").unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn shared_memory() -> Vec<String> {
    names(Path::new("/dev/shm"))
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
