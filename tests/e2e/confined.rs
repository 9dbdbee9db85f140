//! Programs that give up rights while traced. The thread of the agent (tiptoe's library) must never hold a right
//! that the program lacks. If the thread cannot give up a right, it must end, even while tiptoe is stopped.

use std::path::PathBuf;
use std::process::Command;

use tiptoe_tests::memory::patched_bytes;
use tiptoe_tests::process::wait_until;
use tiptoe_tests::tiptoe::AttachedTiptoe;
use tiptoe_tests::{Probe, Process, Report, Site, is_root, sampled, skipped, target};

const CALLS: &str = "1000";

struct ConfinedTarget {
    process: Process,
    site: Site,
    attached: AttachedTiptoe,
}

#[derive(Clone, Copy, PartialEq)]
enum Tiptoe {
    Runs,
    IsStopped,
}

impl ConfinedTarget {
    fn after(ways: &str, tiptoe: Tiptoe) -> ConfinedTarget {
        let program: PathBuf = target("confined");
        let mut process = Process::waiting(&program, &[ways, CALLS]);
        let site = Site::new(process.pid(), &program, "called");
        let attached = Probe::new(&["called"]).attach(&[process.pid()]);
        attached.wait_ready();
        assert!(site.is_probed(), "{ways}");
        if tiptoe == Tiptoe::IsStopped {
            attached.process.signal(libc::SIGSTOP);
        }
        process.go();
        assert_eq!(process.line(), "done", "{ways}");
        ConfinedTarget {
            process,
            site,
            attached,
        }
    }

    fn end(mut self) -> Report {
        self.attached.process.signal(libc::SIGCONT);
        self.process.go();
        let (output, status) = self.process.finish();
        assert!(status.success(), "{status} {output}");
        self.attached.finish()
    }

    fn has_been_left(self, ways: &str, because: &str) {
        let pid = self.process.pid();
        self.site.wait_original();
        wait_until(
            "the agent's end",
            std::time::Duration::from_secs(20),
            || agents_thread(pid).is_none(),
        );
        let report = self.end();
        let notes = report.value["notes"].to_string();
        assert!(notes.contains(because), "{ways}: {notes}");
        assert_eq!(report.count("called"), 1000, "{ways}");
    }

    fn goes_on(self, ways: &str) {
        let report = self.end();
        assert_eq!(report.count("called"), 2000, "{ways}: {:#}", report.value);
    }
}

fn agents_thread(pid: u32) -> Option<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let names = tasks.flatten().map(|task| task.path());
    let mut found = names.filter(|task| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "tiptoe-agent\n")
    });
    found.next()?.file_name()?.to_str()?.parse().ok()
}

const RIGHTS: &str = "gave up rights or a namespace";

/// Regression: after unshare(CLONE_NEWPID) a process can start no thread, so no new agent's thread restored the
/// code.
#[test]
fn a_program_that_cannot_start_threads_is_restored() {
    if !is_root() {
        return skipped("namespaces", "needs root");
    }
    for way in ["pid", "join-pid", "user-pid"] {
        let confined = ConfinedTarget::after(way, Tiptoe::Runs);
        assert!(!confined.site.is_probed(), "{way}: seen beforehand");
        confined.has_been_left(way, RIGHTS);
    }
}

/// The agent's thread stays: it does not notice inline calls, which no hook sees, and may stay after
/// `unshare(CLONE_NEWTIME)` (`time`).
#[test]
fn a_program_that_cannot_start_threads_is_still_traced() {
    if !is_root() {
        return skipped("namespaces", "needs root");
    }
    for way in ["inline-pid", "inline-join-pid", "time"] {
        ConfinedTarget::after(way, Tiptoe::Runs).goes_on(way);
    }
}

/// The thread that gives up a right must restore the program.
#[test]
fn a_stopped_tiptoe_leaves_no_program_patched() {
    if !is_root() {
        return skipped("namespaces", "needs root");
    }
    for way in sampled(&["user-pid", "pid", "join-pid"]) {
        ConfinedTarget::after(way, Tiptoe::IsStopped).has_been_left(way, RIGHTS);
    }
}

/// Regression: after an inline system call the agent's thread kept the old namespace or root, or stayed without the
/// seccomp filter.
#[test]
fn the_agents_thread_stays_in_no_namespace_that_the_program_left() {
    if !is_root() {
        return skipped("namespaces", "needs root");
    }
    for (way, because) in [
        ("inline-net", RIGHTS),
        ("inline-fs-root", RIGHTS),
        ("inline-mnt", RIGHTS),
        ("inline-filter", "under seccomp"),
    ] {
        ConfinedTarget::after(way, Tiptoe::Runs).has_been_left(way, because);
    }
}

#[test]
fn the_agents_thread_ends_even_if_tiptoe_is_stopped() {
    if !is_root() {
        return skipped("namespaces", "needs root");
    }
    for (way, because) in [("inline-net", RIGHTS), ("inline-filter", "under seccomp")] {
        ConfinedTarget::after(way, Tiptoe::IsStopped).has_been_left(way, because);
    }
}

/// Installing a seccomp filter for all threads (TSYNC) would fail if the agent's thread had its own filter.
#[test]
fn all_threads_can_be_put_under_a_filter() {
    for (way, tiptoe) in [
        ("tsync", Tiptoe::Runs),
        ("tsync", Tiptoe::IsStopped),
        ("inline-tsync", Tiptoe::IsStopped),
    ] {
        ConfinedTarget::after(way, tiptoe).has_been_left(way, "under seccomp");
    }
}

#[test]
fn a_filter_that_kills_finds_no_call_of_the_agents() {
    for way in ["inline-strict", "inline-tsync"] {
        let mut confined = ConfinedTarget::after(way, Tiptoe::Runs);
        confined.site.wait_original();
        assert!(confined.process.lives());
        assert_eq!(patched_bytes(confined.process.pid()), 0, "{way}");
        let report = confined.end();
        let notes = report.value["notes"].to_string();
        assert!(notes.contains("under seccomp"), "{way}: {notes}");
        assert_eq!(report.count("called"), 1000, "{way}");
    }
}

#[test]
fn the_agents_thread_has_no_right_that_a_program_gives_up() {
    if !is_root() {
        return skipped("rights", "needs root");
    }
    let ways = [
        "inline-ids:inline-nnp:inline-landlock",
        "inline-root:inline-caps",
        "ids:nnp:landlock",
        "root:caps",
    ];
    for ways in ways {
        let mut confined = ConfinedTarget::after(ways, Tiptoe::IsStopped);
        let results = hijacked(confined.process.pid());
        let refused = [-libc::EPERM, -libc::EACCES, -libc::ENOENT];
        assert!(
            results.len() == 10 && results.iter().all(|result| refused.contains(result)),
            "{ways}: {results:?}"
        );
        assert!(
            confined.process.lives() && confined.site.is_probed(),
            "{ways}"
        );
        confined.goes_on(ways);
    }
}

fn hijacked(pid: u32) -> Vec<i32> {
    let mut hijack = Command::new(target("hijack"));
    let run = hijack.arg(pid.to_string()).arg("/etc/passwd").output();
    let results = String::from_utf8_lossy(&run.expect("hijack runs").stdout).into_owned();
    let numbers = results.lines().filter_map(|line| line.split_once(' '));
    numbers
        .map(|(_, result)| result.parse().expect("a number"))
        .collect()
}

/// When the agent's thread changes its ids, the process becomes undumpable.
#[test]
fn a_program_that_may_not_be_dumped_stays_so() {
    let confined = ConfinedTarget::after("undumpable", Tiptoe::Runs);
    confined.goes_on("undumpable");
}
