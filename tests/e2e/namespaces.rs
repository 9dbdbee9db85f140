//! A target in a container with other mounts, process ids and root, and tiptoe in a container.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tiptoe_tests::{Probe, Process, WaitingTarget, command, is_root, process, skipped, target};

use crate::watch::{hits, said, turn};

const FUNCTIONS: &[&str] = &["add", "down", "digits", "scale", "fill", "choose"];
/// Makes a small root: `whole` is like a container (pivot_root, with /proc), `bare` has no /proc (chroot).
const ENTER: &str = r#"set -e
mount -t tmpfs tmpfs "$1"
mkdir -p "$1/bin" "$1/proc" "$1/old"
cp "$2" "$1/bin/"
ldd "$2" | grep -o '/[^ ]*' | while read -r file; do
    mkdir -p "$1$(dirname "$file")"
    cp -L "$file" "$1$file"
done
cd "$1"
program=/bin/$(basename "$2")
kind=$3
shift 3
if [ "$kind" = bare ]; then exec chroot . "$program" "$@"; fi
mount -t proc proc proc
pivot_root . old
exec /old/usr/sbin/chroot . "$program" "$@""#;

fn contained(kind: &str) -> (WaitingTarget, PathBuf) {
    contained_program(kind, "hot", &["2", "20000"])
}

fn contained_program(kind: &str, name: &str, arguments: &[&str]) -> (WaitingTarget, PathBuf) {
    let program = target(name);
    let root = format!("tiptoe-root-{kind}-{name}-{}", std::process::id());
    let root = std::env::temp_dir().join(root);
    std::fs::create_dir_all(&root).expect("a temporary folder");
    let mut command = Command::new("unshare");
    command
        .args([
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
            ENTER,
            "sh",
        ])
        .args([root.as_path(), &program])
        .arg(kind)
        .args(arguments);
    (WaitingTarget::start(&mut command, &program), root)
}

fn assert_other_namespaces(waiting: &WaitingTarget, root: &Path) {
    let own = |name: &str| std::fs::read_link(name).expect("it lives");
    let program = own(&format!("/proc/{}/exe", waiting.pid));
    assert!(
        !program.exists() && !root.join("bin").exists(),
        "{program:?}"
    );
    for name in ["ns/mnt", "ns/pid"] {
        let theirs = own(&format!("/proc/{}/{name}", waiting.pid));
        assert_ne!(theirs, own(&format!("/proc/self/{name}")));
    }
}

#[test]
fn a_container_is_counted_in_process() {
    if !is_root() {
        return skipped("a container", "needs root");
    }
    let (waiting, root) = contained("whole");
    assert_other_namespaces(&waiting, &root);
    let report = waiting.count(&Probe::new(FUNCTIONS), FUNCTIONS);
    assert_eq!(report.via("agent"), FUNCTIONS.len(), "{:#}", report.value);
    let _ = std::fs::remove_dir(root);
}

/// The loader opens tiptoe's library through /proc.
#[test]
fn a_container_without_proc_is_counted_by_the_kernel() {
    if !is_root() {
        return skipped("a container", "needs root");
    }
    let (waiting, root) = contained("bare");
    assert_other_namespaces(&waiting, &root);
    let report = waiting.count(&Probe::new(FUNCTIONS), FUNCTIONS);
    assert_eq!(report.via("kernel"), FUNCTIONS.len(), "{:#}", report.value);
    assert!(
        report.value["notes"].to_string().contains("sees no /proc"),
        "{:#}",
        report.value
    );
    let _ = std::fs::remove_dir(root);
}

/// Regression: the container's ids, which its locks contain, were taken for ids in /proc.
#[test]
fn deadlocks_of_a_container_had_no_ring() {
    if !is_root() {
        return skipped("a container", "needs root");
    }
    let for_a_moment = ["--by", "thread", "--duration", "0.2"];
    let via_kernel = ["--duration", "0.2", "--via", "kernel"];
    for program in ["deadlock", "join_ring"] {
        let (mut waiting, root) = contained_program("whole", program, &[]);
        assert_other_namespaces(&waiting, &root);
        waiting.process.go();
        assert_eq!(waiting.process.line(), "stuck");
        let tasks = std::fs::read_dir(format!("/proc/{}/task", waiting.pid)).expect("it lives");
        let tasks: Vec<String> = tasks
            .map(|task| {
                task.expect("a thread")
                    .file_name()
                    .into_string()
                    .expect("text")
            })
            .collect();
        let check = |ring: &[&Value]| {
            let mut names: Vec<&str> = ring
                .iter()
                .filter_map(|wait| wait["comm"].as_str())
                .collect();
            names.sort_unstable();
            assert_eq!(names, ["first", "second"], "{ring:#?}");
            for (wait, other) in [(ring[0], ring[1]), (ring[1], ring[0])] {
                assert!(
                    tasks.contains(&wait["tid"].to_string()),
                    "{tasks:?}: {wait:#}"
                );
                assert_eq!(wait["holder"], other["tid"], "{wait:#}");
                assert_eq!(wait["holder_comm"], other["comm"], "{wait:#}");
            }
        };
        let now = Probe::lock()
            .with(&["--now"])
            .attach_and_wait(&[waiting.pid]);
        let now = &now.good().value["now"];
        let [ring] = &now["deadlocks"].as_array().expect("rings")[..] else {
            panic!("{now:#}");
        };
        let waits = now["waits"].as_array().expect("they wait").iter();
        let is_in = |wait: &&Value| {
            ring.as_array()
                .is_some_and(|ring| ring.contains(&wait["tid"]))
        };
        check(&waits.filter(is_in).collect::<Vec<_>>());
        for options in [&for_a_moment[..], &via_kernel] {
            let run = Probe::lock().with(options).attach_and_wait(&[waiting.pid]);
            let locks = &run.good().value["locks"];
            let [ring] = &locks["deadlocks"].as_array().expect("rings")[..] else {
                panic!("{locks:#}");
            };
            check(
                &ring["waits"]
                    .as_array()
                    .expect("threads")
                    .iter()
                    .collect::<Vec<_>>(),
            );
        }
        waiting.process.close();
        assert!(waiting.process.finish().1.success());
        let _ = std::fs::remove_dir(root);
    }
}

#[test]
fn threads_of_a_container_were_taken_for_ended_ones() {
    if !is_root() {
        return skipped("a container", "needs root");
    }
    let (mut waiting, root) = contained_program("whole", "deadlock", &[]);
    assert_other_namespaces(&waiting, &root);
    let ours = Probe::lock()
        .with(&["--by", "thread"])
        .attach(&[waiting.pid]);
    ours.wait_ready();
    waiting.process.go();
    assert_eq!(waiting.process.line(), "stuck");
    let report = ours.interrupt();
    let locks = &report.value["locks"];
    assert_eq!(locks["unfinished"], 3, "{locks:#}");
    assert_eq!(
        locks["deadlocks"].as_array().map(Vec::len),
        Some(1),
        "{locks:#}"
    );
    let left = |row: &Value| row["left"].as_u64().unwrap_or(0);
    assert!(
        crate::locks::rows(&report).iter().all(|row| left(row) == 0),
        "{locks:#}"
    );
    waiting.process.close();
    assert!(waiting.process.finish().1.success());
    let _ = std::fs::remove_dir(root);
}

#[test]
fn threads_that_entered_namespaces_at_once_started_two_agents() {
    if !is_root() {
        return skipped("namespaces", "needs root");
    }
    let mut joins = Process::waiting(&target("joins"), &["2", "100"]);
    let tasks = format!("/proc/{}/task", joins.pid());
    let attached = Probe::new(&["called"]).attach(&[joins.pid()]);
    attached.wait_ready();
    for _ in 0..3 {
        joins.go();
        assert_eq!(joins.line(), "joined");
        process::wait_until("one agent", Duration::from_secs(10), || {
            std::fs::read_dir(&tasks).expect("it lives").count() == 2
        });
    }
    assert!(joins.finish().1.success());
    let report = attached.finish();
    assert_eq!((report.via("agent"), report.count("called")), (1, 600));
}

/// BPF programs see ids of the outer namespace, which the container does not know.
#[test]
fn tiptoe_in_a_container_knows_its_processes() {
    let Some(_turn) = turn() else { return };
    let watch = Probe::watch().with(&["stats.hits"]).contained();
    let run = watch.run(&target("watched"), &["forked", "1"]);
    assert_eq!(hits(run.good(), 0), 20);
    assert_eq!(run.good().value["watch"]["foreign"], 30);
    let own = run.good().value["targets"][0]["pid"].as_u64();
    assert!(own.is_some_and(|pid| pid < 10), "{own:?}");
    let watch = Probe::watch().with(&["total", "--via", "kernel-task"]);
    let run = watch.contained().run(&target("watched"), &["churn", "20"]);
    assert_eq!(
        hits(run.good(), 0),
        said(&run, "total"),
        "{:#}",
        run.good().value
    );
    let [kernels, own] = ["mmap_contended", "contended"].map(target);
    for (options, program, arguments, counted) in [
        (
            &["--kernel"][..],
            kernels,
            ["6", "2", "400"].as_slice(),
            "/waits/rows/0/count",
        ),
        (
            &["--via", "kernel"],
            own,
            &["mutex", "20000"],
            "/locks/rows/0/slept",
        ),
    ] {
        let lock = Probe::lock().with(options).contained();
        let run = lock.run(&program, arguments);
        let count = run.good().value.pointer(counted).and_then(Value::as_u64);
        assert!(count > Some(0), "{:#}", run.good().value);
    }
}

/// tiptoe does not know ids of a nested namespace, and BPF programs do not know ids of tiptoe's namespace.
#[test]
fn tiptoe_in_a_container_refuses_a_nested_container() {
    if !is_root() {
        return skipped("a container", "needs root");
    }
    // The search is repeated, because the child is named `sleep` only after its exec.
    const WITHIN: &str = "unshare --pid --fork sleep 60 & until pid=$(pgrep -x sleep -P $!); do sleep 0.01; done; \
                          exec \"$0\" lock --via kernel -p $pid";
    let mut tiptoe = Command::new("unshare");
    tiptoe.args([
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        WITHIN,
    ]);
    let done = process::output(tiptoe.arg(command().get_program()));
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(
        said.contains("in a pid namespace within") && said.contains("outside"),
        "{said}"
    );
}
