//! Counting by cgroup without BPF or rights, and refused requests.

use super::*;

#[test]
fn mistakes_are_refused() {
    let Some(within) = cgroup() else { return };
    within.make("workers");
    let name = within.name();
    for (cgroups, word) in [
        (
            format!("{name}/worker"),
            format!("similar names: {name}/workers"),
        ),
        (
            "no-such-cgroup-at-all".to_owned(),
            "patterns such as".to_owned(),
        ),
    ] {
        let done = output(&mut stat(&["--for-each-cgroup", &cgroups, "--", "true"]));
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{said}");
        assert!(said.contains(&word) && said.contains("no cgroup"), "{said}");
    }
}

/// Without BPF, tiptoe opens the kernel's events for each cgroup. Without the right to these events, tiptoe reads
/// the cgroups' files.
#[test]
fn without_bpf_kernel_events_or_files_are_used() {
    let Some(within) = cgroup() else { return };
    let name = within.name();
    let a = within.make("a");
    let pattern = format!("{name}/a");
    let denied: [(&[&str], &str); 2] = [
        (
            &["setpriv", "--bounding-set", "-bpf,-sys_admin", "--"],
            "events of its own",
        ),
        (
            &["setpriv", "--reuid", "65534", "--clear-groups", "--"],
            "cpu.stat",
        ),
    ];
    for (without, words) in denied {
        // The kernel enables a cgroup's events when a CPU switches tasks. Busy threads cause switches.
        let mut program = Process::waiting(&target("hot"), &["4", "0"]);
        Cgroup::put(&a, program.pid());
        let mut through = Command::new(without[0]);
        through.args(&without[1..]).arg(command().get_program());
        let options = [
            "stat",
            "--json",
            "-e",
            "task-clock,cycles",
            "--for-each-cgroup",
        ];
        through.args(options).args([&pattern, "--duration", "0.3"]);
        let before = Cgroup::usage_ns(&a);
        program.go();
        let done = output(&mut through);
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
        let session = Report::parse(&said).value;
        assert!(
            session["notes"].to_string().contains(words),
            "{}",
            session["notes"]
        );
        let counted = value(&session, Some(&pattern), "task-clock");
        assert!(counted > 0.0 && counted <= Cgroup::usage_ns(&a) - before + 10e6);
        drop(program);
    }
}

#[test]
fn unknown_tracepoints_are_refused() {
    let Some(within) = cgroup() else { return };
    let options = [
        "-e",
        "task-clock,sched:sched_nope",
        "--for-each-cgroup",
        &within.name(),
    ];
    let done = output(stat(&options).args(["--", "true"]));
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(said.contains("sched_nope"), "{said}");
}
