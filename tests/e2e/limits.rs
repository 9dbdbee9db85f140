//! Full disks, and targets without free memory, descriptors or threads. The targets must survive, and the kernel
//! must count if the agent (tiptoe's library) has no room.

use std::path::Path;
use std::process::Command;

use tiptoe_tests::{
    ExpectedCounts, Probe, Process, Report, Site, WaitingTarget, command, is_root, skipped, target,
};

const FUNCTIONS: &[&str] = &["add", "choose"];

fn by_kernel(limit: &[&str], program: &Path, functions: &[&str], words: &str) -> Report {
    let waiting = WaitingTarget::through(limit, program, &["2", "1000"]);
    let before = open_resources(waiting.pid);
    let twice = Probe::new(functions).with(&["--duration", "0.1"]);
    says(twice.attach_and_wait(&[waiting.pid]).good(), words);
    assert_eq!(
        open_resources(waiting.pid),
        before,
        "the attempt must release what it took"
    );
    let report = waiting.count(&Probe::new(functions), functions);
    assert_eq!(report.via("kernel"), functions.len(), "{:#}", report.value);
    says(&report, words);
    report
}

fn says(report: &Report, words: &str) {
    let notes = report.value["notes"].to_string();
    assert!(notes.contains(words), "no `{words}` in {notes}");
}

fn open_resources(pid: u32) -> (usize, bool) {
    let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives");
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it lives");
    // Mappings of generated code may stay.
    let mut lines = maps.lines().filter(|line| !line.contains(" r-xs "));
    let segments = lines.any(|line| line.contains("tiptoe-data") || line.contains("tiptoe-plan"));
    (fds.count(), segments)
}

#[test]
fn the_kernel_counts_if_no_descriptor_is_free() {
    by_kernel(
        &["prlimit", "--nofile=4"],
        &target("hot"),
        FUNCTIONS,
        "Too many open files",
    );
}

#[test]
fn the_kernel_counts_if_the_address_space_is_limited() {
    by_kernel(
        &["prlimit", "--as=156000000"],
        &target("hot"),
        FUNCTIONS,
        "RLIMIT_AS",
    );
    let limits = ["prlimit", "--as=156000000"];
    let waiting = WaitingTarget::through(&limits, &target("hot"), &["2", "1000"]);
    let report = waiting.count(&Probe::new(FUNCTIONS).with(&["--force"]), FUNCTIONS);
    assert_eq!(report.via("agent"), FUNCTIONS.len(), "{:#}", report.value);
}

/// A traced command inherits tiptoe's limits.
#[test]
fn tiptoes_own_address_space_is_limited() {
    let output = Command::new("prlimit")
        .arg("--as=900000000")
        .arg(command().get_program())
        .args(["probe", "add", "--json", "--budget", "off", "--"])
        .arg(target("hot"))
        .args(["2", "1000"])
        .output()
        .expect("prlimit runs");
    let report = Report::parse(&String::from_utf8_lossy(&output.stderr));
    says(&report, "RLIMIT_AS");
    let expected = ExpectedCounts::parse(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(report.count("add"), expected.0["add"]);
}

#[test]
fn the_kernel_counts_if_no_thread_can_start() {
    if !is_root() {
        return skipped("a limit on threads", "needs root");
    }
    let user = [
        "setpriv",
        "--reuid",
        "64321",
        "--clear-groups",
        "prlimit",
        "--nproc=1",
    ];
    let functions = ["shape_mov", "shape_ret"];
    by_kernel(&user, &target("shapes"), &functions, "RLIMIT_NPROC");
    let waiting = WaitingTarget::through(&user, &target("shapes"), &["2", "1000"]);
    let report = waiting.count(&Probe::new(&functions).with(&["--force"]), &functions);
    assert_eq!(report.via("kernel"), functions.len(), "{:#}", report.value);
    says(&report, "temporarily unavailable");
}

#[test]
fn the_agent_leaves_the_program_all_threads_that_it_may_start() {
    if !is_root() {
        return skipped("a limit on threads", "needs root");
    }
    let user = [
        "setpriv",
        "--reuid",
        "64322",
        "--clear-groups",
        "prlimit",
        "--nproc=3",
    ];
    by_kernel(&user, &target("hot"), FUNCTIONS, "RLIMIT_NPROC");
}

/// mlockall(MCL_FUTURE) locks later mappings, so the agent must unlock its own memory.
#[test]
fn the_agents_memory_stays_unlocked_with_mlockall() {
    let waiting = WaitingTarget::through(&["env"], &target("locked"), &["5000"]);
    let report = waiting.count(&Probe::new(&["called"]), &["called"]);
    assert_eq!(report.via("agent"), 1, "{:#}", report.value);
}

#[test]
fn segments_are_mapped_in_pieces_below_a_limit_of_locked_memory() {
    if !is_root() {
        return skipped("a limit on locked memory", "needs root");
    }
    let user = [
        "setpriv",
        "--reuid",
        "64323",
        "--clear-groups",
        "prlimit",
        "--memlock=8000000",
    ];
    let waiting = WaitingTarget::through(&user, &target("locked"), &["5000"]);
    let report = waiting.count(&Probe::new(&["called"]), &["called"]);
    assert_eq!(report.via("agent"), 1, "{:#}", report.value);
}

#[test]
fn the_data_segment_is_limited() {
    by_kernel(
        &["prlimit", "--data=12000000"],
        &target("shapes"),
        &["shape_mov", "shape_ret"],
        "Cannot allocate memory",
    );
}

fn full(output: &Path) {
    let waiting = WaitingTarget::through(&["env"], &target("hot"), &["2", "1000"]);
    let site = waiting.site("add");
    let traced = command()
        .args([
            "probe",
            "add",
            "--duration",
            "0.1",
            "-p",
            &waiting.pid.to_string(),
            "-o",
        ])
        .arg(output)
        .output()
        .expect("the command runs");
    let said = String::from_utf8_lossy(&traced.stderr);
    assert_eq!(traced.status.code(), Some(2), "{said}");
    let (counting, failed) = said.split_once('\n').unwrap_or_default();
    assert!(counting.starts_with("counting: "), "{said}");
    assert!(
        failed.starts_with("error: ") && failed.contains("No space left on device"),
        "{said}"
    );
    assert!(
        failed.lines().count() <= 2 && traced.stdout.is_empty(),
        "{said}"
    );
    assert!(!site.is_probed());
    waiting.end();
}

#[test]
fn a_full_device() {
    full(Path::new("/dev/full"));
}

#[test]
fn a_full_disk() {
    if !is_root() {
        return skipped("a full disk", "needs root");
    }
    let waiting = WaitingTarget::through(&["env"], &target("hot"), &["2", "1000"]);
    let script = "set -e; mount -t tmpfs -o size=4k tmpfs /mnt; head -c 4096 /dev/zero >/mnt/all; \
                  exec \"$@\" -o /mnt/report";
    let traced = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(command().get_program())
        .args([
            "probe",
            "add",
            "--duration",
            "0.1",
            "-p",
            &waiting.pid.to_string(),
        ])
        .output()
        .expect("unshare runs");
    let said = String::from_utf8_lossy(&traced.stderr);
    assert_eq!(traced.status.code(), Some(2), "{said}");
    assert!(
        said.contains("/mnt/report") && said.contains("No space left on device"),
        "{said}"
    );
    waiting.end();
}

#[test]
fn a_full_disk_took_the_records_along() {
    if !is_root() {
        return skipped("a full disk", "needs root");
    }
    const PAGE: usize = 4096;
    let script = "set -e; mount -t tmpfs -o size=4k tmpfs /mnt; status=0; \"$@\" >/dev/null || status=$?; \
                  cat /mnt/lines; exit $status";
    let traced = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(command().get_program())
        .args([
            "probe",
            "--record",
            "add",
            "--budget",
            "off",
            "-o",
            "/mnt/lines",
            "--",
        ])
        .arg(target("hot"))
        .args(["1", "2000"])
        .output()
        .expect("unshare runs");
    let said = String::from_utf8_lossy(&traced.stderr);
    assert_eq!(traced.status.code(), Some(2), "{said}");
    assert!(
        said.contains("/mnt/lines") && said.contains("No space left on device"),
        "{said}"
    );
    let lines = String::from_utf8_lossy(&traced.stdout);
    assert_eq!(lines.len(), PAGE, "{lines}");
    let mut whole: Vec<&str> = lines.lines().collect();
    whole.pop();
    assert!(whole.iter().all(|line| line.contains(":add  ")), "{lines}");
}

#[test]
fn a_command_and_a_full_device() {
    for (script, status) in [("exit 7", 7), ("exit 0", 2)] {
        let run = command()
            .args([
                "probe",
                "libc.so.6:getenv",
                "-o",
                "/dev/full",
                "--",
                "/bin/sh",
                "-c",
                script,
            ])
            .output()
            .expect("the command runs");
        let said = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(status), "{said}");
        assert!(said.contains("No space left on device"), "{said}");
    }
}

#[test]
fn a_limit_on_file_size_is_an_error() {
    let waiting = Process::waiting(&target("hot"), &["1", "0"]);
    let pid = waiting.pid().to_string();
    let program = target("hot").display().to_string();
    let report = std::env::temp_dir().join(format!("tiptoe-fsize-{pid}"));
    let report = report.display().to_string();
    for (limit, arguments) in [
        ("1000000", &["probe", "add", "--", &program][..]),
        ("1000000", &["probe", "add", "--via", "agent", "-p", &pid]),
        ("10", &["stat", "-o", &report, "--", "true"]),
    ] {
        let output = Command::new("prlimit")
            .arg(format!("--fsize={limit}"))
            .arg(command().get_program())
            .args(arguments)
            .output()
            .expect("prlimit runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        let why = format!("File too large: the limit on file sizes is {limit} bytes here");
        assert!(said.contains("error: ") && said.contains(&why), "{said}");
        assert!(said.contains("`ulimit -f unlimited`"), "{said}");
    }
}

/// Unused counters would be gigabytes of zeros in a core dump.
#[test]
fn the_agents_memory_is_in_no_core_dump() {
    let program = target("hot");
    let process = Process::waiting(&program, &["2", "0"]);
    let site = Site::new(process.pid(), &program, "add");
    let attached = Probe::new(FUNCTIONS).attach(&[process.pid()]);
    site.wait_probed();
    let smaps = std::fs::read_to_string(format!("/proc/{}/smaps", process.pid()));
    let smaps = smaps.expect("it lives");
    let (_, segment) = smaps.split_once("/memfd:tiptoe-data").expect("a segment");
    let flags = segment.lines().find(|line| line.starts_with("VmFlags:"));
    assert!(
        flags.is_some_and(|flags| flags.contains(" dd")),
        "{flags:?}"
    );
    attached.interrupt();
}

#[test]
fn calls_of_hundreds_of_threads_are_timed() {
    let run = Probe::new(&["*"])
        .with(&["--latency"])
        .run(&target("hot"), &["200", "20"]);
    let report = run.good();
    for function in FUNCTIONS {
        assert!(report.count(function) > 0, "{:#}", report.value);
        assert_eq!(report.number(function, "only_counted"), 0, "{function}");
    }
}
