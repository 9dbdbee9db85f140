//! Injects the agent (here a test's library) into real programs whose threads are in the loader, in the allocator or
//! in a system call, or use every register. One test kills the injector.
//!
//! `TIPTOE_TEST_SCALE` multiplies the rounds of long tests; 1 is their full length, 0.004 the default.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use object::{Object as _, ObjectSymbol as _};
use tiptoe_attach::inject::{
    Inject, InjectError, Injection, MaskFailure, Masks, Resident, Words, inject,
};
use tiptoe_sys::host::procfs::Process;

#[path = "inject/refusals.rs"]
mod refusals;
#[path = "inject/waits.rs"]
mod waits;

struct Control {
    file: File,
    path: PathBuf,
}

impl Control {
    fn new() -> Self {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let next = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = folder().join(format!("control-{next}"));
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .expect("control page");
        file.set_len(4096).expect("control page's size");
        Self { file, path }
    }

    fn get(&self, word: u64) -> i64 {
        let mut bytes = [0; 8];
        self.file
            .read_exact_at(&mut bytes, word * 8)
            .expect("control word");
        i64::from_le_bytes(bytes)
    }

    fn set(&self, word: u64, value: i64) {
        self.file
            .write_all_at(&value.to_le_bytes(), word * 8)
            .expect("control word");
    }

    fn wait(&self, what: &str, done: impl Fn(&Self) -> bool) {
        let until = Instant::now() + Duration::from_secs(30);
        while !done(self) {
            assert!(Instant::now() < until, "{what}: waited too long");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

struct Target {
    child: Child,
    control: Control,
}

impl Target {
    fn start(name: &str, args: &[&str], ready: u64) -> Self {
        Self::start_under(&[], name, args, ready)
    }

    fn start_under(wrapper: &[&str], name: &str, args: &[&str], ready: u64) -> Self {
        let control = Control::new();
        let program = compile(name, &["-O2", "-pthread", "-ldl"]);
        let mut line: Vec<&std::ffi::OsStr> = wrapper.iter().map(|word| word.as_ref()).collect();
        line.extend([program.as_os_str(), control.path.as_os_str()]);
        line.extend(args.iter().map(|arg| std::ffi::OsStr::new(*arg)));
        let child = Command::new(line[0])
            .args(&line[1..])
            .stdin(Stdio::piped())
            .spawn()
            .expect("the target starts");
        control.wait("start", |control| control.get(ready) != 0);
        Self { child, control }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait_asleep(&self) {
        let path = format!("/proc/{}/syscall", self.pid());
        self.control.wait("a call", |_| {
            let call = fs::read_to_string(&path).expect("it lives");
            call.starts_with(|first: char| first.is_ascii_digit())
        });
    }

    fn finish(mut self) {
        let rounds = self.control.get(1);
        self.control
            .wait("progress", |control| control.get(1) > rounds + 10);
        self.control.set(0, 1);
        let status = self.child.wait().expect("the target ends");
        assert!(status.success(), "{status}: {} errors", self.control.get(2));
        assert_eq!(self.control.get(2), 0, "errors that the target counted");
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("tiptoe-inject-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("test folder");
        folder
    })
}

fn compile(name: &str, flags: &[&str]) -> PathBuf {
    static DONE: std::sync::Mutex<Vec<PathBuf>> = std::sync::Mutex::new(Vec::new());
    let mut done = DONE.lock().expect("no test panics in here");
    let output = folder().join(name);
    if !done.contains(&output) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/inject/{name}.c"));
        let status = Command::new("cc")
            .arg(source)
            .arg("-o")
            .arg(&output)
            .args(flags)
            .status();
        assert!(status.expect("cc runs").success(), "cc {name}.c");
        done.push(output.clone());
    }
    output
}

fn agent() -> (Vec<u8>, u64) {
    let flags = ["-O2", "-shared", "-fPIC", "-nostdlib", "-Wl,-z,noexecstack"];
    let bytes = fs::read(compile("agent", &flags)).expect("agent");
    let file = object::File::parse(&*bytes).expect("agent's ELF");
    let entry = file
        .dynamic_symbols()
        .find(|symbol| symbol.name() == Ok("entry"));
    let entry = entry.expect("entry").address();
    (bytes, entry)
}

fn attach(
    pid: u32,
    existing_entry: Option<u64>,
    deadline: Duration,
) -> Result<Injection, InjectError> {
    let (agent, entry_offset) = agent();
    let prepare = &mut |_: &OwnedFd, plan: &OwnedFd| {
        File::from(plan.try_clone()?).write_all_at(&1000i64.to_le_bytes(), 0)
    };
    inject(Inject {
        entry_offset,
        resident: &|| existing_entry.map_or(Resident::None, Resident::Entry),
        deadline,
        ..request(pid, &agent, prepare)
    })
}

fn inject_with(
    pid: u32,
    agent: &[u8],
    prepare: &mut dyn FnMut(&OwnedFd, &OwnedFd) -> std::io::Result<()>,
) -> Result<Injection, InjectError> {
    let entry_offset = self::agent().1;
    inject(Inject {
        entry_offset,
        ..request(pid, agent, prepare)
    })
}

fn request<'a>(
    pid: u32,
    agent: &'a [u8],
    prepare: &'a mut dyn FnMut(&OwnedFd, &OwnedFd) -> std::io::Result<()>,
) -> Inject<'a> {
    let process = Process::new(pid);
    Inject {
        pid,
        program: process
            .and_then(Process::running_program)
            .unwrap_or_default(),
        agent,
        entry_offset: 0,
        resident: &|| Resident::None,
        data_size: 8192,
        plan_size: 4096,
        allow_seccomp: false,
        deadline: PATIENT,
        prepare,
    }
}

const PATIENT: Duration = Duration::from_secs(20);

fn first(pid: u32) -> u64 {
    let injected = attach(pid, None, PATIENT).expect("first attach");
    check(&injected, 1);
    injected.agent_base + agent().1
}

fn check(injected: &Injection, calls: i64) {
    assert_eq!(injected.entry_result, calls);
    let mut word = [0; 8];
    let data = File::from(injected.data.try_clone().expect("data"));
    data.read_exact_at(&mut word, 0).expect("data");
    assert_eq!(
        i64::from_le_bytes(word),
        calls + 1000,
        "what the agent left in the data segment"
    );
    assert!(
        data.set_len(1).is_err(),
        "the data segment can be truncated"
    );
}

fn scaled(full: u32) -> u32 {
    let scale = std::env::var("TIPTOE_TEST_SCALE")
        .ok()
        .and_then(|scale| scale.parse().ok());
    ((f64::from(full) * scale.unwrap_or(0.004f64)) as u32).max(3)
}

fn assert_text_is_the_files(pid: u32) {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
    let memory = File::open(format!("/proc/{pid}/mem")).expect("mem");
    for line in maps
        .lines()
        .filter(|line| line.contains(" r-xp ") && line.contains(" /"))
    {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        if words[5].starts_with("/memfd:") {
            continue;
        }
        let (start, end) = words[0].split_once('-').expect("range");
        let hex = |word| u64::from_str_radix(word, 16).expect("number");
        let mut now = vec![0; (hex(end) - hex(start)) as usize];
        // The target may call dlclose and dlopen in between.
        let mut read = || memory.read_exact_at(&mut now, hex(start)).is_ok();
        let looked = (0..100).find_map(|_| match read() {
            true => Some(true),
            false if is_mapped(pid, line) => None,
            false => Some(false),
        });
        if !looked.unwrap_or_else(|| panic!("unreadable text: {line}")) {
            continue;
        }
        let mut file = vec![0; now.len()];
        let read = File::open(words[5])
            .expect("file")
            .read_at(&mut file, hex(words[2]))
            .expect("read");
        assert!(
            now[..read] == file[..read],
            "text of {} differs from its file",
            words[5]
        );
    }
}

fn is_mapped(pid: u32, line: &str) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
    maps.lines().any(|now| now == line)
}

fn assert_clean(pid: u32, threads: usize) {
    let count = |folder| {
        fs::read_dir(format!("/proc/{pid}/{folder}"))
            .expect(folder)
            .count()
    };
    assert_eq!(count("task"), threads, "threads");
    for fd in fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("fd")
        .flatten()
    {
        let link = fs::read_link(fd.path()).unwrap_or_default();
        assert!(
            !link.to_string_lossy().starts_with("/memfd:tiptoe-"),
            "descriptor {link:?} is left"
        );
    }
    assert_text_is_the_files(pid);
}

fn attach_many(kind: &str) {
    let target = Target::start("loops", &[kind], 3);
    let entry = first(target.pid());
    for call in 2..=scaled(200) {
        // Every other round loads the agent again, under another name.
        let existing = (call % 2 == 0).then_some(entry);
        attach(target.pid(), existing, PATIENT).unwrap_or_else(|error| panic!("{call}: {error}"));
    }
    assert_clean(target.pid(), 2);
    target.finish();
}

#[test]
fn threads_that_loop_in_malloc_are_borrowed_outside_of_it() {
    attach_many("malloc");
}

#[test]
fn threads_that_loop_in_dlopen_are_borrowed_outside_of_it() {
    attach_many("dlopen");
}

#[test]
fn threads_looping_in_printf_are_borrowed() {
    attach_many("printf");
}

#[test]
fn registers_survive() {
    let target = Target::start("registers", &[], 3);
    let entry = first(target.pid());
    for call in 2..=scaled(500) {
        check(
            &attach(target.pid(), Some(entry), PATIENT).expect("attach"),
            i64::from(call),
        );
    }
    assert_clean(target.pid(), 1);
    target.finish();
}

#[test]
fn a_target_in_other_namespaces_is_reached() {
    let wrapper = [
        "unshare",
        "--pid",
        "--mount",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ];
    let target = Target::start_under(&wrapper, "loops", &["spin"], 3);
    let children = format!("/proc/{0}/task/{0}/children", target.pid());
    let inner = fs::read_to_string(children).expect("children");
    let inner = inner.trim().parse().expect("one child");
    first(inner);
    assert_clean(inner, 2);
    target.finish();
}

/// Not a test: `an_injector_may_be_killed_at_any_moment` runs this as the process that it kills.
#[test]
fn injector() {
    let Ok(pid) = std::env::var("TIPTOE_TEST_INJECT") else {
        return;
    };
    let pid = pid.parse().expect("pid");
    while attach(pid, None, PATIENT).is_ok() {}
}

#[test]
#[ignore = "nightly: kills at any moment"]
fn an_injector_may_be_killed_at_any_moment() {
    agent();
    let mut step = 0u64;
    for _ in 0..scaled(100) {
        // Only the first injection into a target starts in a cave (unused bytes after a file's code).
        let target = Target::start("loops", &["malloc"], 3);
        for longest in [40_000, 40_000, 400_000, 400_000, 400_000] {
            let mut injector = Command::new(std::env::current_exe().expect("own path"))
                .args(["--exact", "injector"])
                .env("TIPTOE_TEST_INJECT", target.pid().to_string())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("the injector starts");
            // Multiples of the golden section spread the moments evenly.
            step += 1;
            std::thread::sleep(Duration::from_micros(step * 618_034 % longest));
            injector.kill().expect("kill");
            injector.wait().expect("wait");
            let rounds = target.control.get(1);
            target
                .control
                .wait("life", |control| control.get(1) > rounds + 10);
        }
        // The stub (injected code) of a killed injector must return to the program by itself.
        std::thread::sleep(Duration::from_millis(800));
        assert_clean(target.pid(), 2);
        target.finish();
    }
}
