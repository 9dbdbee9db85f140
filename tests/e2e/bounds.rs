//! A target's files must not cost tiptoe unbounded time or memory, and signals must end tiptoe while it reads them.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tiptoe_tests::{Process, command, is_root, skipped, target};

const MOST_MEMORY: i64 = 1_000_000_000;

pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let name = format!("tiptoe-bounds-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        Folder(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    fn stripped(&self, zeros: u64) -> (PathBuf, PathBuf) {
        let (program, debug) = (self.0.join("hot"), self.0.join("hot.debug"));
        fs::write(&debug, "none\n").expect("a file");
        let link = format!("--add-gnu-debuglink={}", debug.display());
        let mut objcopy = Command::new("objcopy");
        objcopy.args(["--strip-all", &link]).arg(target("hot"));
        assert!(objcopy.arg(&program).status().expect("objcopy").success());
        // tiptoe refuses these symbols, because their checksum is not the one in the program's debug link.
        let mut keep = Command::new("objcopy");
        keep.args(["--only-keep-debug", "--remove-section=.note.gnu.build-id"]);
        let kept = keep.arg(target("hot")).arg(&debug).status();
        assert!(kept.expect("objcopy").success());
        let file = File::options().write(true).open(&debug);
        let file = file.expect("a debug file");
        file.set_len(zeros).expect("a sparse file");
        (program, debug)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn probe(process: &Process, spec: &str) -> Command {
    let mut command = command();
    command.args(["probe", spec, "--duration", "20ms", "-p"]);
    command.arg(process.pid().to_string());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

pub(crate) fn measured(mut child: Child) -> (String, i32, libc::rusage) {
    let mut said = child.stderr.take().expect("a pipe");
    let said = std::io::read_to_string(&mut said).expect("text");
    let mut status = 0;
    // SAFETY: an all-zero rusage is valid; both arguments outlive the call, and nothing else waits for the child.
    let used = unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        let pid = child.id().cast_signed();
        assert_eq!(libc::wait4(pid, &raw mut status, 0, &raw mut used), pid);
        used
    };
    (said, status, used)
}

#[track_caller]
fn check(child: std::io::Result<Child>, said: &str, exit: i32) {
    let (text, status, used) = measured(child.expect("tiptoe runs"));
    let memory = used.ru_maxrss * 1024;
    assert!(text.contains(said), "{text}");
    assert!(
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == exit,
        "{status:#x}: {text}"
    );
    assert!(memory < MOST_MEMORY, "{memory} bytes");
}

#[test]
fn no_checksum_is_computed_of_a_debug_file_of_terabytes() {
    let folder = Folder::new("terabytes");
    let (program, _) = folder.stripped(3 << 40);
    let program = Process::waiting(&program, &["1", "1000"]);
    let run = probe(&program, "add").spawn();
    check(run, "is too large to be read whole", 2);
}

#[test]
fn sections_of_gigabytes_cost_no_memory() {
    const CLAIMED: u64 = 3 << 30;
    let folder = Folder::new("sections");
    let program = folder.0.join("hot");
    fs::copy(target("hot"), &program).expect("a copy");
    claim(&program, ".eh_frame", CLAIMED);
    let program = Process::waiting(&program, &["1", "1000"]);
    check(probe(&program, "add").spawn(), "", 0);
}

#[test]
fn compressed_sections_that_claim_gigabytes_are_left_out() {
    let folder = Folder::new("compressed");
    let (program, packed) = (folder.0.join("hot"), folder.0.join("packed"));
    let claim = [b"ZLIB".to_vec(), (3_u64 << 30).to_be_bytes().to_vec()].concat();
    fs::write(&packed, [claim, vec![0; 1_200_000]].concat()).expect("a file");
    let mut objcopy = Command::new("objcopy");
    objcopy.arg("--strip-debug");
    for name in ["info", "abbrev", "str", "line", "str_offsets", "addr"] {
        let section = format!(".zdebug_{name}={}", packed.display());
        objcopy.arg("--add-section").arg(section);
    }
    objcopy.arg(target("hot")).arg(&program);
    assert!(objcopy.status().expect("objcopy").success());
    let program = Process::waiting(&program, &["1", "1000"]);
    let mut command = command();
    command.args(["watch", "calls->next", "--duration", "20ms", "-p"]);
    command.arg(program.pid().to_string());
    let run = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    check(run, "a part of the debug information is too large", 2);
}

fn claim(program: &Path, section: &str, size: u64) {
    let bytes = fs::read(program).expect("the program");
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let half = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let header = |index: usize| word(40) as usize + index * half(58);
    let names = word(header(half(62)) + 24) as usize;
    let is_wanted = |index: &usize| {
        let name = names
            + u32::from_le_bytes(bytes[header(*index)..][..4].try_into().expect("4")) as usize;
        bytes[name..].starts_with(section.as_bytes()) && bytes[name + section.len()] == 0
    };
    let index = (1..half(60)).find(is_wanted).expect("the section");
    let file = OpenOptions::new()
        .write(true)
        .open(program)
        .expect("the program");
    file.write_all_at(&size.to_le_bytes(), header(index) as u64 + 32)
        .expect("a write");
    file.set_len(size + (1 << 20)).expect("a sparse file");
}

fn reads(pid: u32, file: &Path) -> bool {
    let links = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    let mut links = links.flatten().map(|link| fs::read_link(link.path()));
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    links.any(|open| open.is_ok_and(|open| open == file)) || maps.contains(&*file.to_string_lossy())
}

#[test]
fn a_signal_ends_tiptoe_while_it_reads() {
    let folder = Folder::new("signal");
    // The largest file whose checksum tiptoe computes has 1 GiB.
    let (program, debug) = folder.stripped(1 << 30);
    let running = Process::waiting(&program, &["1", "1000"]);
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let mut started = command();
        started.args(["probe", "add", "--"]).arg(&program);
        for mut command in [probe(&running, "add"), started] {
            let mut tiptoe = Process::start(command.stderr(Stdio::null()));
            while !reads(tiptoe.pid(), &debug) {
                assert!(tiptoe.lives(), "it read nothing");
                std::thread::yield_now();
            }
            tiptoe.signal(signal);
            assert_eq!(tiptoe.wait().code(), Some(128 + signal), "{command:?}");
        }
    }
}

#[test]
fn a_file_truncated_while_it_was_read_killed_tiptoe() {
    const LONG: u64 = 64 << 20;
    let folder = Folder::new("truncated");
    let (program, debug) = folder.stripped(LONG);
    let program = Process::waiting(&program, &["1", "1000"]);
    let (done, own) = (Arc::new(AtomicBool::new(false)), debug.clone());
    let is_done = Arc::clone(&done);
    let truncating = std::thread::spawn(move || {
        let file = OpenOptions::new().write(true).open(own).expect("a file");
        while !is_done.load(Ordering::Relaxed) {
            file.set_len(0).expect("a length");
            file.set_len(LONG).expect("a length");
        }
    });
    let runs = [(); 3].map(|()| {
        let run = probe(&program, "libc.so.6:getenv").spawn();
        measured(run.expect("tiptoe runs"))
    });
    done.store(true, Ordering::Relaxed);
    truncating.join().expect("it truncates");
    for (said, status, _) in runs {
        assert_eq!(status, 0, "{said}");
    }
}

/// A read in FUSE waits in the kernel for the server, and no signal ends that wait.
#[test]
fn a_file_of_a_server_that_does_not_answer_is_not_read() {
    if !is_root() || !Path::new("/dev/fuse").exists() {
        return skipped("FUSE", "needs root and /dev/fuse");
    }
    let mut served = Command::new(target("served"));
    let mut program = Process::start(served.arg(target("hot")).args(["1", "1000", "wait"]));
    assert_eq!(program.line(), "ready");
    let run = probe(&program, "add").spawn();
    check(run, "another user's program serves its file system", 2);
    program.go();
    assert!(program.finish().1.success());
}
