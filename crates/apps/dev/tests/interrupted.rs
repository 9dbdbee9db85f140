//! Tests that a bench that a signal ends leaves no child process, no folder and no cgroup.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tiptoe_sys::host::cgroup::Cgroups;

#[path = "../../../../tests/support/skipped.rs"]
mod skipped;

const LIMIT: Duration = Duration::from_secs(60);

struct Bench(Child);

impl Bench {
    fn start(name: &str, folder: &Path) -> Bench {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tiptoe-dev"));
        command
            .args(["bench", name, "--ms", "10000"])
            .env("TMPDIR", folder);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Bench(child.expect("tiptoe-dev runs"))
    }

    /// Returns the id of the bench's program; `None` if the bench ends first.
    fn program(&mut self) -> Option<u32> {
        let until = Instant::now() + LIMIT;
        while Instant::now() < until {
            if self.0.try_wait().expect("a child").is_some() {
                return None;
            }
            let is_program = |pid: &u32| {
                let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
                name.is_ok_and(|name| name == "program\n")
            };
            if let Some(pid) = children(self.0.id()).into_iter().find(is_program) {
                return Some(pid);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("no program was started");
    }

    fn end(&mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.0), signal).expect("it runs");
        self.0.wait().expect("a child").code()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn children(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let lists = threads.filter_map(|at| std::fs::read_to_string(at.path().join("children")).ok());
    let lists = lists.collect::<Vec<String>>().join(" ");
    lists.split_whitespace().flat_map(str::parse).collect()
}

/// A killed process may be a zombie.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
}

#[test]
fn a_signal_ends_the_program_and_removes_its_folder() {
    for (signal, number) in [(Signal::INT, 2), (Signal::TERM, 15)] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut bench = Bench::start("scope", folder.path());
        let program = bench.program().expect("a program");
        assert_eq!(bench.end(signal), Some(128 + number));
        assert!(!runs(program), "{program}");
        let left: Vec<_> = std::fs::read_dir(folder.path())
            .expect("it is there")
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

fn cgroups(root: &Path, pid: u32) -> PathBuf {
    root.join(format!("tiptoe-bench-{pid}"))
}

#[test]
fn a_signal_removes_cgroups() {
    let found = Cgroups::detect().ok().and_then(|found| found.v2);
    let probe = found
        .as_deref()
        .map(|root| cgroups(root, std::process::id()));
    let Some(probe) = probe.filter(|probe| std::fs::create_dir(probe).is_ok()) else {
        return skipped::skipped("cgroups of a bench", "no cgroup can be made");
    };
    std::fs::remove_dir(&probe).expect("it is empty");
    let folder = tempfile::tempdir().expect("a folder");
    let mut bench = Bench::start("cgroup", folder.path());
    let program = bench.program().expect("a program");
    let path = cgroups(probe.parent().expect("a root"), bench.0.id());
    assert!(path.is_dir(), "{path:?}");
    assert_eq!(bench.end(Signal::TERM), Some(128 + 15));
    assert!(!runs(program) && !path.exists(), "{path:?}");
}
