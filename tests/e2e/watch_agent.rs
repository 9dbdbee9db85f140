//! `tiptoe watch --via agent`: breakpoints of the program's threads, which send a signal to the thread.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tiptoe_tests::process::output;
use tiptoe_tests::{Process, Report, Run, command, is_root, scaled, skipped, target};

use crate::watch::{find_row, hits, is_whole, said, turn, watch};

const BY_AGENT: [&str; 2] = ["--via", "agent"];

fn form(report: &Report) -> &Value {
    &report.value["watch"]["form"]
}

pub(crate) fn has_events(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let mut tasks = tasks.into_iter().flatten().flatten();
    let agent = tasks.find(|task| {
        let name = std::fs::read_to_string(task.path().join("comm"));
        name.is_ok_and(|name| name.trim() == "tiptoe-agent")
    });
    let files = agent.and_then(|agent| std::fs::read_dir(agent.path().join("fd")).ok());
    let mut files = files.into_iter().flatten().flatten();
    files.any(|file| {
        let link = std::fs::read_link(file.path());
        link.is_ok_and(|link| link.to_string_lossy().contains("[perf_event]"))
    })
}

struct PublicFolder(PathBuf);

impl PublicFolder {
    fn new() -> PublicFolder {
        let name = format!("tiptoe-watch-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(&folder, open).expect("our own folder");
        let put = |program: &Path, name: &str| {
            std::fs::copy(program, folder.join(name)).expect("a copy");
        };
        put(Path::new(command().get_program()), "tiptoe");
        put(&target("watched"), "watched");
        PublicFolder(folder)
    }

    fn run(&self, options: &[&str], mode: &str, rounds: u64) -> Run {
        let report = self.0.join("report");
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.arg(self.0.join("tiptoe"));
        command.args(["watch", "--json", "--budget", "off", "-o"]);
        command.arg(&report).args(options).arg("--");
        command
            .arg(self.0.join("watched"))
            .args([mode, &rounds.to_string()]);
        Run::new(output(&mut command), &report)
    }
}

impl Drop for PublicFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_user_without_rights_watches_his_own_programs() {
    let Some(_turn) = turn() else { return };
    if !is_root() {
        return skipped("another user", "needs root");
    }
    let public = PublicFolder::new();
    let run = public.run(&["total"], "churn", scaled(10_000));
    let report = run.good();
    is_whole(report);
    let total = said(&run, "total");
    assert_eq!(hits(report, 0), total);
    let add = find_row(report, "add");
    assert_eq!(
        (&add["count"], &add["changed"]),
        (&total.into(), &total.into())
    );
    let form = form(report);
    assert_eq!(form["by"], "agent", "{form:#}");
    assert_eq!(form["attached"]["threads"], 1, "{form:#}");
    let why = form["why"].as_str().expect("it is said why");
    assert!(why.contains("no permission"), "{why}");
    assert_eq!(report.value["watch"]["sees_kernel"], false);
    let refused = public.run(&["total", "--via", "kernel"], "churn", 1);
    assert_eq!(refused.status, 2, "{}", refused.stderr);
    assert!(refused.stdout.is_empty(), "it has run");
}

#[test]
fn threads_are_accounted_for_at_their_birth() {
    let Some(_turn) = turn() else { return };
    for (options, registers) in [(&["stats.state"][..], 1), (&["stats.state", "owner"], 2)] {
        let run = watch(&BY_AGENT).with(&["--stats"]).with(options);
        let run = run.run(&target("watched"), &["corrupt", "1"]);
        let report = run.good();
        assert_eq!(hits(report, 0), 1);
        let sides = &report.value["watch"]["reservations"];
        let count = |key| sides[0][key].as_u64().expect("a count");
        // A thread that starts during another reservation of registers is accounted for later, unless it has ended
        // by then.
        let (reserved, unreserved) = (count("reservations"), count("unreserved"));
        assert_eq!(reserved + unreserved, registers * 201, "{sides:#}");
        assert!(reserved >= unreserved, "{sides:#}");
    }
}

/// Regression: the report said that the program had changed its user.
#[test]
fn each_change_of_namespaces_closes_the_breakpoints_for_a_moment() {
    let Some(_turn) = turn() else { return };
    let run = watch(&BY_AGENT).with(&["total"]);
    let run = run.run(&target("watched"), &["unshared", "3"]);
    let notes = run.good().value["typed_notes"].as_array();
    let mut notes = notes.into_iter().flatten().map(|note| &note["note"]);
    let left = notes.find(|note| note["kind"] == "agent-left");
    assert_eq!(left.map(|note| &note["times"]), Some(&3.into()));
}

/// Regression: a thread that lost its CPU just after a hit got the hit's signal after the agent (tiptoe's library) had
/// left, and was killed.
#[test]
#[ignore = "nightly: loads the machine"]
fn a_thread_that_waits_for_a_cpu_survives_the_end_of_a_watch() {
    let Some(_turn) = turn() else { return };
    let _load = Process::start(Command::new(target("hot")).args(["3", "0"]));
    let mut nice = Command::new("nice");
    let nice = nice.args(["-n", "15"]).arg(target("watched"));
    let mut watched = Process::start(nice.args(["hot", "600000"]));
    let pid = watched.pid().to_string();
    let mut watches = 0;
    for _ in 0..scaled(2_000).max(20) {
        let mut command = command();
        command.args([
            "watch",
            "stats.hits",
            "--budget",
            "off",
            "--duration",
            "50ms",
        ]);
        let done = output(command.args(BY_AGENT).args(["-p", &pid]));
        // Under much load an attach may be refused.
        watches += u32::from(done.status.success());
        assert!(watched.lives(), "{done:?}");
    }
    assert!(watches > 0);
}
