//! Programs that lock all their memory (mlockall) must not lock the memory of the agent (tiptoe's library).

use std::process::Command;

use tiptoe_tests::{Probe, Process, is_root, skipped, target};

const CURRENT: u32 = 1;
const FUTURE: u32 = 2;
const ON_FAULT: u32 = 4;
/// Most systems' default RLIMIT_MEMLOCK.
const LIMITED: &[&str] = &[
    "setpriv",
    "--reuid",
    "64322",
    "--clear-groups",
    "prlimit",
    "--memlock=8388608",
];
/// How many KiB more than without tiptoe may be locked, and resident.
const ROOM: u64 = 1024;

fn said(stdout: &str) -> Vec<(String, [u64; 3])> {
    let number = |word: &str| word.parse().ok();
    let lines = stdout.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[
            who,
            "returned",
            error,
            "locked",
            locked,
            "resident",
            resident,
        ] = &words[..]
        else {
            return None;
        };
        let numbers = [number(error)?, number(locked)?, number(resident)?];
        Some((who.to_owned(), numbers))
    });
    let lines: Vec<_> = lines.collect();
    assert_eq!(lines.len(), 3, "{stdout}");
    lines
}

fn bare(through: &[&str], flags: &str) -> Vec<(String, [u64; 3])> {
    let mut command = Command::new(through[0]);
    command
        .args(&through[1..])
        .arg(target("mlockall"))
        .arg(flags);
    let output = command.output().expect("it runs");
    said(&String::from_utf8_lossy(&output.stdout))
}

fn attached(through: &[&str], flags: u32, probe: &Probe) {
    let flags = flags.to_string();
    let mut command = Command::new(through[0]);
    command.args(&through[1..]).arg(target("mlockall"));
    let mut process = Process::start(command.args([&*flags, "100", "wait"]));
    assert_eq!(process.line(), "ready");
    let attached = probe.attach(&[process.pid()]);
    attached.wait_ready();
    process.go();
    let (stdout, status) = process.finish();
    assert!(status.success(), "{status}: {stdout}");
    let report = attached.finish();
    if report.event("called").is_some() {
        assert_eq!(
            (report.count("called"), report.via("agent")),
            (100, 1),
            "{:#}",
            report.value
        );
    }
    compare(&bare(through, &flags), &said(&stdout), &flags);
}

fn compare(bare: &[(String, [u64; 3])], traced: &[(String, [u64; 3])], flags: &str) {
    for ((who, bare), (_, traced)) in bare.iter().zip(traced) {
        let [same, locked, resident] = [0, 1, 2].map(|at| (bare[at], traced[at]));
        assert_eq!(
            same.0, same.1,
            "{who} of flags {flags}: {bare:?} {traced:?}"
        );
        let fits = |(bare, traced): (u64, u64)| traced <= bare + ROOM;
        assert!(fits(locked), "{who} of flags {flags}: {bare:?} {traced:?}");
        assert!(
            fits(resident),
            "{who} of flags {flags}: {bare:?} {traced:?}"
        );
        assert!(
            locked.1 >= locked.0,
            "{who} of flags {flags}: {bare:?} {traced:?}"
        );
    }
}

const FLAGS: &[u32] = &[
    CURRENT,
    FUTURE,
    CURRENT | FUTURE,
    CURRENT | ON_FAULT,
    CURRENT | FUTURE | ON_FAULT,
    8,
    ON_FAULT,
];

#[test]
fn a_program_locks_no_memory_of_the_agents() {
    for flags in FLAGS {
        attached(&["env"], *flags, &Probe::new(&["called"]));
    }
}

/// Regression: the call failed, because the kernel compares all mapped memory, including the agent's, with the
/// limit.
#[test]
fn a_program_below_its_limit_may_lock_its_memory() {
    if !is_root() {
        return skipped("a limit on locked memory", "needs root");
    }
    for flags in FLAGS {
        attached(LIMITED, *flags, &Probe::new(&["called"]));
    }
    attached(LIMITED, CURRENT | FUTURE, &Probe::lock());
    attached(
        LIMITED,
        CURRENT | FUTURE,
        &Probe::new(&["called"]).with(&["--latency"]),
    );
}

#[test]
fn a_program_above_its_limit_may_not_lock_its_memory() {
    if !is_root() {
        return skipped("a limit on locked memory", "needs root");
    }
    for limit in ["0", "1000000"] {
        let limit = format!("--memlock={limit}");
        let user = [
            "setpriv",
            "--reuid",
            "64324",
            "--clear-groups",
            "prlimit",
            &limit,
        ];
        attached(&user, CURRENT, &Probe::new(&["called"]));
        attached(
            &["prlimit", &limit],
            CURRENT | FUTURE,
            &Probe::new(&["called"]),
        );
    }
}

#[test]
fn a_started_program_locks_no_memory_of_the_agents() {
    for flags in [CURRENT, CURRENT | FUTURE] {
        let flags = flags.to_string();
        let bare = bare(&["env"], &flags);
        let modes = [
            (Probe::new(&["called"]), &[&*flags][..]),
            (Probe::new(&["called"]), &[&flags, "100", "own"]),
            (Probe::new(&["called"]).with(&["--latency"]), &[&flags]),
            (Probe::lock(), &[&flags]),
        ];
        for (probe, arguments) in modes {
            let run = probe.run(&target("mlockall"), arguments);
            assert_eq!(run.status, 0, "{}", run.stderr);
            compare(&bare, &said(&String::from_utf8_lossy(&run.stdout)), &flags);
        }
    }
}
