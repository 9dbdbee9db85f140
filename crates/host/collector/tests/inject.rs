//! Injection into real programs: looping in the loader's and the allocator's own code, waiting
//! in every kind of call, with every register full, and with an injector that is killed.
//!
//! `TIPTOE_TEST_SCALE` multiplies the long tests; 1 is their full length, 0.01 the default.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use object::{Object as _, ObjectSymbol as _};
use tiptoe_collector::inject::{Inject, InjectError, Injected, inject, unblock};

/// A page that a test and its target share.
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

/// A running program, killed at the end.
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

    /// Stops a looping target and checks what it says of itself.
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
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("inject-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("test folder");
        folder
    })
}

/// Compiles tests/inject/NAME.c, once.
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

/// The stand-in agent and its entry's offset.
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
) -> Result<Injected, InjectError> {
    let (agent, entry_offset) = agent();
    let prepare = &mut |_: &OwnedFd, plan: &OwnedFd| {
        File::from(plan.try_clone()?).write_all_at(&1000i64.to_le_bytes(), 0)
    };
    inject(Inject {
        entry_offset,
        existing_entry,
        deadline,
        ..request(pid, &agent, prepare)
    })
}

fn inject_with(
    pid: u32,
    agent: &[u8],
    prepare: &mut dyn FnMut(&OwnedFd, &OwnedFd) -> std::io::Result<()>,
) -> Result<Injected, InjectError> {
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
    Inject {
        pid,
        agent,
        entry_offset: 0,
        existing_entry: None,
        data_size: 8192,
        plan_size: 4096,
        unblock: 0,
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

fn check(injected: &Injected, calls: i64) {
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

/// `full` times the scale, at least 3.
fn scaled(full: u32) -> u32 {
    let scale = std::env::var("TIPTOE_TEST_SCALE")
        .ok()
        .and_then(|scale| scale.parse().ok());
    ((f64::from(full) * scale.unwrap_or(0.01f64)) as u32).max(3)
}

/// Text segments' bytes, and those of the whole pages they lie on, are the files' own.
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
        if memory.read_exact_at(&mut now, hex(start)).is_err() {
            // The target's own dlclose may have come in between.
            let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
            assert!(
                !maps.lines().any(|now| now == line),
                "unreadable text: {line}"
            );
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

/// No thread, descriptor or mapping of ours but the agent and the stub's two pages.
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
            !link.to_string_lossy().contains("tiptoe-"),
            "descriptor {link:?} is left"
        );
    }
    assert_text_is_the_files(pid);
}

fn attach_many(kind: &str) {
    let target = Target::start("loops", &[kind], 3);
    let entry = first(target.pid());
    for call in 2..=scaled(200) {
        // Every other attach loads the agent anew, from another name.
        let existing = (call % 2 == 0).then_some(entry);
        attach(target.pid(), existing, PATIENT).unwrap_or_else(|error| panic!("{call}: {error}"));
    }
    assert_clean(target.pid(), 2);
    target.finish();
}

#[test]
fn threads_looping_in_malloc_are_borrowed_outside_of_it() {
    attach_many("malloc");
}

#[test]
fn threads_looping_in_dlopen_are_borrowed_outside_of_it() {
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

/// Injects while the target waits, and hands over what its call came to.
fn wait_in(call: &str, ms: i64, deadline: Duration, wake: impl Fn(&mut Target)) -> (i64, i64) {
    let mut target = Target::start("waits", &[call, &ms.to_string()], 4);
    std::thread::sleep(Duration::from_millis(50));
    let injected = attach(target.pid(), None, deadline).unwrap_or_else(|e| panic!("{call}: {e}"));
    check(&injected, 1);
    assert_eq!(
        target.control.get(0),
        0,
        "{call} returned during the injection"
    );
    assert_clean(target.pid(), 1);
    wake(&mut target);
    target.control.wait(call, |control| control.get(0) != 0);
    if ms > 0 {
        let elapsed = target.control.get(3);
        assert!(
            elapsed >= ms - 2,
            "{call} of {ms} ms returned after {elapsed} ms"
        );
    }
    (target.control.get(1), target.control.get(2))
}

#[test]
fn waits_with_a_time_out_end_when_they_should() {
    let timed_out = i64::from(libc::ETIMEDOUT);
    let again = i64::from(libc::EAGAIN);
    let cases = [
        ("epoll", (0, 0)),
        ("poll", (0, 0)),
        ("ppoll", (0, 0)),
        ("select", (0, 0)),
        ("nanosleep", (0, 0)),
        ("futex", (-1, timed_out)),
        ("sem_timedwait", (-1, timed_out)),
        ("recv", (-1, again)),
        ("sigtimedwait", (-1, again)),
    ];
    for (call, expected) in cases {
        let got = wait_in(call, 2000, Duration::from_secs(1), |_| {});
        assert_eq!(got, expected, "{call}");
    }
}

#[test]
fn waits_without_a_time_out_end_by_their_event() {
    for (call, expected) in [
        ("epoll", 1),
        ("poll", 1),
        ("ppoll", 1),
        ("select", 1),
        ("read", 1),
    ] {
        let got = wait_in(call, -1, PATIENT, |target| {
            let stdin = target.child.stdin.as_mut().expect("stdin");
            stdin.write_all(b"x").expect("write");
        });
        assert_eq!(got, (expected, 0), "{call}");
    }
}

#[test]
fn waits_for_a_signal_still_get_it() {
    let interrupted = (-1, i64::from(libc::EINTR));
    for call in ["pause", "sigsuspend", "epoll", "poll", "select", "read"] {
        let got = wait_in(call, -1, PATIENT, |target| {
            signal(target.pid(), libc::SIGUSR1)
        });
        assert_eq!(got, interrupted, "{call}");
    }
    let got = wait_in("sigtimedwait", -1, PATIENT, |target| {
        signal(target.pid(), libc::SIGUSR2)
    });
    assert_eq!(got, (i64::from(libc::SIGUSR2), 0));
}

/// A signal that comes while the thread runs the stub interrupts the call that it left.
#[test]
fn a_signal_during_the_injection_is_not_lost() {
    let (agent, _) = agent();
    for call in ["pause", "poll", "read", "epoll"] {
        let target = Target::start("waits", &[call, "-1"], 4);
        std::thread::sleep(Duration::from_millis(50));
        let pid = target.pid();
        inject_with(pid, &agent, &mut |_, _| {
            signal(pid, libc::SIGUSR1);
            Ok(())
        })
        .expect(call);
        target.control.wait(call, |control| control.get(0) != 0);
        let got = (
            target.control.get(1),
            target.control.get(2),
            target.control.get(5),
        );
        assert_eq!(got, (-1, i64::from(libc::EINTR), 1), "{call}");
    }
}

fn signal(pid: u32, signal: i32) {
    let signal = nix::sys::signal::Signal::try_from(signal).expect("signal");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), signal).expect("kill");
}

/// Not a test by itself: the process that `an_injector_may_be_killed_at_any_moment` kills.
#[test]
fn injector() {
    let Ok(pid) = std::env::var("TIPTOE_TEST_INJECT") else {
        return;
    };
    let pid = pid.parse().expect("pid");
    while attach(pid, None, PATIENT).is_ok() {}
}

#[test]
fn an_injector_may_be_killed_at_any_moment() {
    agent();
    let mut step = 0u64;
    for _ in 0..scaled(100) {
        // The first injection into a target goes through a cave, the others do not.
        let target = Target::start("loops", &["malloc"], 3);
        for longest in [40_000, 40_000, 400_000, 400_000, 400_000] {
            let mut injector = Command::new(std::env::current_exe().expect("own path"))
                .args(["--exact", "injector"])
                .env("TIPTOE_TEST_INJECT", target.pid().to_string())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("the injector starts");
            // Moments spread evenly: multiples of the golden section.
            step += 1;
            std::thread::sleep(Duration::from_micros(step * 618_034 % longest));
            injector.kill().expect("kill");
            injector.wait().expect("wait");
            let rounds = target.control.get(1);
            target
                .control
                .wait("life", |control| control.get(1) > rounds + 10);
        }
        // The stub goes home alone within its lease.
        std::thread::sleep(Duration::from_millis(800));
        assert_clean(target.pid(), 2);
        target.finish();
    }
}

#[test]
fn blocked_signals_are_told_and_unblocked() {
    let mut target = Target::start("waits", &["sigsuspend", "-1"], 4);
    std::thread::sleep(Duration::from_millis(50));
    let usr2 = 1 << (libc::SIGUSR2 - 1);
    assert_eq!(
        unblock(target.pid(), &[target.pid()], usr2).expect("unblock"),
        1
    );
    assert_eq!(target.control.get(0), 0, "sigsuspend returned");
    signal(target.pid(), libc::SIGUSR1);
    target
        .control
        .wait("sigsuspend", |control| control.get(0) != 0);
    assert_eq!(target.control.get(5), 1);
    target.child.wait().expect("the target ends");
}

#[test]
fn a_process_whose_first_thread_has_ended_is_reached() {
    let target = Target::start("loops", &["orphan"], 3);
    first(target.pid());
    target.finish();
}

#[test]
fn a_target_that_dies_is_said_to_have_died() {
    let target = Target::start("loops", &["spin"], 3);
    let pid = target.pid();
    let error = inject_with(pid, &agent().0, &mut |_, _| {
        signal(pid, libc::SIGKILL);
        Ok(())
    });
    let error = error.expect_err("dead");
    assert!(matches!(error, InjectError::Died { .. }), "{error}");
}

#[test]
fn a_refused_agent_leaves_the_target_as_it_was() {
    let target = Target::start("loops", &["malloc"], 3);
    let error = inject_with(target.pid(), b"no agent", &mut |_, _| Ok(())).expect_err("refused");
    assert!(matches!(error, InjectError::Refused { .. }), "{error}");
    let failing = &mut |_: &OwnedFd, _: &OwnedFd| Err(std::io::Error::other("no plan"));
    let error = inject_with(target.pid(), &agent().0, failing).expect_err("no plan");
    assert!(error.to_string().contains("no plan"), "{error}");
    std::thread::sleep(Duration::from_millis(100));
    assert_clean(target.pid(), 2);
    first(target.pid());
    target.finish();
}

#[test]
fn a_traced_or_stopped_target_is_left_alone() {
    let target = Target::start("loops", &["spin"], 3);
    let pid = nix::unistd::Pid::from_raw(target.pid() as i32);
    let options = nix::sys::ptrace::Options::empty();
    std::thread::spawn(move || {
        nix::sys::ptrace::seize(pid, options).expect("seize");
        let error = attach(pid.as_raw() as u32, None, PATIENT).expect_err("traced");
        assert!(
            matches!(error, InjectError::AlreadyTraced { .. }),
            "{error}"
        );
    })
    .join()
    .expect("the tracer");

    signal(target.pid(), libc::SIGSTOP);
    let error = attach(target.pid(), None, Duration::from_millis(300)).expect_err("stopped");
    assert!(
        matches!(&error, InjectError::Busy { why, .. } if why.contains("state T")),
        "{error}"
    );
    signal(target.pid(), libc::SIGCONT);
    first(target.pid());
    target.finish();
}

#[test]
fn refusals_say_why() {
    let gone = {
        Command::new("true")
            .spawn()
            .map(|mut c| (c.id(), c.wait()))
            .expect("true")
            .0
    };
    let error = attach(gone, None, PATIENT).expect_err("gone");
    assert!(
        matches!(error, InjectError::NoSuchProcess { .. }),
        "{error}"
    );

    let source = folder().join("static.c");
    fs::write(
        &source,
        "#include <unistd.h>\nint main(void) { return pause(); }",
    )
    .expect("source");
    let program = folder().join("static");
    let cc = Command::new("cc")
        .arg("-static")
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .status();
    assert!(cc.expect("cc").success());
    let mut child = Command::new(program).spawn().expect("static");
    std::thread::sleep(Duration::from_millis(50));
    let error = attach(child.id(), None, PATIENT).expect_err("static");
    child.kill().expect("kill");
    child.wait().expect("wait");
    assert!(matches!(error, InjectError::Static { .. }), "{error}");
}
