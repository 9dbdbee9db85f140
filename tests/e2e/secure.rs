//! Access that a hostile program or user must not get from tiptoe.

use std::ffi::CString;
use std::fs;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tiptoe_tests::{Probe, Process, is_root, skipped, target};

/// Regression: the agent (tiptoe's library) wrote to and closed descriptors named in a running program's
/// environment.
#[test]
fn the_environment_of_a_running_program_is_not_believed() {
    const OWN: &str = "this stays as it is\n";
    let folder = std::env::temp_dir().join(format!("tiptoe-environment-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let files = ["agent", "data", "plan"].map(|name| folder.join(name));
    files
        .iter()
        .for_each(|file| fs::write(file, OWN.repeat(500)).expect("a file"));
    let open = "exec 7<>$1 8<>$2 9<>$3; shift 3; exec \"$@\"";
    let mut command = Command::new("sh");
    command
        .args(["-c", open, "sh"])
        .args(&files)
        .arg(target("hot"))
        .args(["2", "1000", "wait"]);
    let mut program = Process::start(command.env("TIPTOE_AGENT", "7,8,9"));
    assert_eq!(program.line(), "ready");
    let run = Probe::new(&["libc.so.6:getenv"]).with(&["--duration", "50ms"]);
    let run = run.attach_and_wait(&[program.pid()]);
    assert_eq!(run.good().via("agent"), 1, "{:?}", run.report);
    for (number, file) in (7..).zip(&files) {
        let descriptor = format!("/proc/{}/fd/{number}", program.pid());
        assert_eq!(
            fs::read_link(&descriptor).as_deref().ok(),
            Some(Path::new(file))
        );
        assert_eq!(fs::read_to_string(file).expect("the file"), OWN.repeat(500));
    }
    program.go();
    assert!(program.finish().1.success());
    fs::remove_dir_all(&folder).expect("the folder");
}

/// Regression: the agent's thread kept two capabilities, a uid and groups.
#[test]
fn the_agents_thread_holds_no_rights() {
    if !is_root() {
        return skipped("rights", "needs root");
    }
    let program = Process::waiting(&target("hot"), &["2", "1000"]);
    let attached = Probe::new(&["libc.so.6:getenv"]).attach(&[program.pid()]);
    attached.wait_ready();
    let threads = fs::read_dir(format!("/proc/{}/task", program.pid())).expect("its threads");
    let statuses =
        threads.map(|thread| fs::read_to_string(thread.expect("one").path().join("status")));
    let statuses: Vec<String> = statuses.map(|status| status.expect("it lives")).collect();
    let agent = statuses
        .iter()
        .find(|status| status.contains("Name:\ttiptoe-agent\n"));
    let agent = agent.expect("the agent's thread");
    let field = |name: &str| {
        let line = agent.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}: {agent}")).trim()
    };
    assert_eq!(field("Groups:"), "");
    for ids in [field("Uid:"), field("Gid:")] {
        let ids = ids.split_whitespace().map(str::parse::<u32>);
        assert!(ids.flatten().all(|id| id >= 0xf000_0000), "{agent}");
    }
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    assert_eq!(field("NoNewPrivs:"), "1");
    drop(attached);
}

/// Root would own an undumpable program's files in /proc.
#[test]
fn the_program_stays_dumpable() {
    if !is_root() {
        return skipped("another user's program", "needs root");
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--clear-groups"]);
    command.args(["sh", "-c", "echo ready; read end"]);
    let mut program = Process::start(&mut command);
    assert_eq!(program.line(), "ready");
    let status = format!("/proc/{}/status", program.pid());
    let owner = || fs::metadata(&status).expect("it lives").uid();
    assert_eq!(owner(), 65534);
    let attached = Probe::new(&["libc.so.6:getenv"]).attach(&[program.pid()]);
    attached.wait_ready();
    assert_eq!(owner(), 65534);
}

#[test]
fn a_hijacked_agents_thread_can_do_nothing() {
    if !is_root() {
        return skipped("a hijacked thread", "needs root");
    }
    let own = std::env::temp_dir().join(format!("tiptoe-hijacked-{}", std::process::id()));
    fs::write(&own, "root's").expect("a file");
    let mut program = Process::waiting(&target("hot"), &["2", "1000"]);
    let attached = Probe::new(&["libc.so.6:getenv"]).attach(&[program.pid()]);
    attached.wait_ready();
    let mut hijack = Command::new(target("hijack"));
    let run = hijack.arg(program.pid().to_string()).arg(&own).output();
    let run = run.expect("hijack runs");
    let results = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.success(),
        "{results} {}",
        String::from_utf8_lossy(&run.stderr)
    );
    let (eperm, eacces) = (-libc::EPERM, -libc::EACCES);
    let calls = results.lines().filter_map(|line| line.split_once(' '));
    let all: Vec<(&str, i32)> = calls
        .map(|(call, result)| (call, result.parse().expect("a number")))
        .collect();
    assert_eq!(all.len(), 10, "{results}");
    assert!(
        all.iter()
            .all(|(_, result)| [eperm, eacces].contains(result)),
        "{results}"
    );
    attached.interrupt();
    program.go();
    assert!(program.finish().1.success());
    fs::remove_file(&own).expect("the file");
}

#[test]
fn a_pipe_in_the_place_of_a_mapped_file_is_not_opened() {
    let folder = std::env::temp_dir().join(format!("tiptoe-pipe-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let own = folder.join("hot");
    fs::copy(target("hot"), &own).expect("a copy");
    let mut program = Process::waiting(&own, &["2", "1000"]);
    fs::remove_file(&own).expect("it is there");
    // The kernel shows these paths for mappings of removed files.
    let pipes = ["hot", "hot (deleted)"].map(|name| folder.join(name));
    for pipe in &pipes {
        assert!(
            Command::new("mkfifo")
                .arg(pipe)
                .status()
                .expect("mkfifo runs")
                .success()
        );
    }
    let opened = OpenLog::of(&pipes);
    let run = Probe::new(&["libc.so.6:getenv"]).with(&["--duration", "50ms"]);
    assert_eq!(run.attach_and_wait(&[program.pid()]).good().via("agent"), 1);
    assert!(!opened.any(), "a pipe was opened");
    program.go();
    assert!(program.finish().1.success());
    fs::remove_dir_all(&folder).expect("the folder");
}

/// Records openings of some files (inotify(7)), but none with O_PATH.
struct OpenLog(OwnedFd);

impl OpenLog {
    fn of(files: &[PathBuf]) -> OpenLog {
        // SAFETY: the call takes a number and returns a new descriptor or an error.
        let inotify = unsafe { libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) };
        assert!(inotify >= 0);
        for file in files {
            let path = CString::new(file.as_os_str().as_bytes()).expect("a path");
            // SAFETY: the path ends with NUL.
            assert!(unsafe { libc::inotify_add_watch(inotify, path.as_ptr(), libc::IN_OPEN) } >= 0);
        }
        // SAFETY: the descriptor is new, and nothing else owns it.
        OpenLog(unsafe { OwnedFd::from_raw_fd(inotify) })
    }

    fn any(&self) -> bool {
        let file = fs::File::from(self.0.try_clone().expect("a descriptor"));
        (&file).read(&mut [0; 4096]).is_ok()
    }
}
