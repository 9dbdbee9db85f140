//! Uprobes in a real program, whose calls the tests command.

#[path = "../../../../tests/support/skipped.rs"]
mod skipped;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use skipped::skipped;
use tiptoe_kernel::{CountedThreads, Error, KernelProbe, UprobeSet};
use tiptoe_sys::host::capabilities::Check;
use tiptoe_sys::host::procfs::path_of;
use tiptoe_sys::host::{Capabilities, Process};

struct Target {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    counted: u64,
}

impl Target {
    fn start(name: &str) -> Self {
        let mut child = Command::new(compile(name))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the target starts");
        let mut target = Self {
            stdin: child.stdin.take().unwrap(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            counted: 0,
        };
        let address = target.line();
        target.counted = u64::from_str_radix(address.trim_start_matches("0x"), 16).unwrap();
        target
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim().into()
    }

    fn run(&mut self, command: &str) {
        writeln!(self.stdin, "{command}").unwrap();
        assert_eq!(self.line(), "done", "{command}");
    }

    fn process(&self) -> Process {
        Process::new(self.child.id()).unwrap()
    }

    fn probe(&self) -> (KernelProbe, std::fs::File) {
        let maps = self.process().maps().unwrap();
        let mapping = maps.iter().find(|m| m.contains(self.counted)).unwrap();
        let file = self.process().open_mapped(mapping).unwrap();
        let probe = KernelProbe {
            path: path_of(&file),
            offset: mapping.file_offset(self.counted).unwrap(),
        };
        (probe, file)
    }

    fn open(&self) -> UprobeSet {
        let (probe, _file) = self.probe();
        let set = UprobeSet::open(self.process(), &[probe]).unwrap();
        assert_eq!(set.who(), CountedThreads::Process);
        set
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn compile(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/target.c");
    let name = format!("tiptoe-uprobes-{name}-{}", std::process::id());
    let program = std::env::temp_dir().join(name);
    let status = Command::new("cc")
        .args(["-O2", "-pthread", "-o"])
        .args([&program, &source])
        .status();
    assert!(status.expect("a C compiler").success());
    program
}

fn allowed() -> bool {
    can("process uprobes", Capabilities::get().process_uprobes)
}

fn can(what: &str, check: Check) -> bool {
    match check {
        Ok(()) => true,
        Err(refusal) => {
            skipped(what, &refusal.to_string());
            false
        }
    }
}

fn count(set: &UprobeSet) -> u64 {
    let [reading] = set.read().unwrap()[..] else {
        panic!("one probe, one reading")
    };
    assert_eq!(reading.time_enabled_ns, reading.time_running_ns);
    reading.count
}

#[test]
fn every_thread_counts_and_children_do_not() {
    if !allowed() {
        return;
    }
    let mut target = Target::start("threads");
    target.run("main 5");
    let set = target.open();
    assert_eq!(count(&set), 0);
    for (command, total) in [
        ("main 1000", 1000),
        ("worker 500", 1500),
        ("thread 250", 1750),
        ("fork 100", 1750),
        ("main 1", 1751),
    ] {
        target.run(command);
        assert_eq!(count(&set), total, "{command}");
    }
    drop(target);
    assert_eq!(count(&set), 1751, "after the program has ended");
}

#[test]
fn perf_events_count_their_threads_and_leave_clone_alone() {
    if !can("thread uprobes", Capabilities::get().thread_uprobes) {
        return;
    }
    let mut target = Target::start("perf");
    let (probe, _file) = target.probe();
    let threads = target.process().threads().unwrap();
    let set = UprobeSet::open_threads(&threads, &[probe]).unwrap();
    assert_eq!(set.who(), CountedThreads::Threads(threads));
    for (command, total) in [
        ("main 100", 100),
        ("worker 10", 110),
        ("thread 7", 110),
        ("fork 7", 110),
    ] {
        target.run(command);
        assert_eq!(count(&set), total, "{command}");
    }
    drop(target);
    assert_eq!(count(&set), 110, "after the program has ended");
}

#[test]
fn a_program_that_has_not_run_yet_is_counted_from_its_start() {
    if !allowed() {
        return;
    }
    let other = Target::start("exec");
    let (probe, _file) = other.probe();
    let mut child = Command::new("sh")
        .args(["-c", r#"read go; exec "$0""#])
        .arg(compile("exec-late"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let late = KernelProbe {
        path: compile("exec-late"),
        offset: probe.offset,
    };
    let set = UprobeSet::open(Process::new(child.id()).unwrap(), &[late]).unwrap();
    // The shell reads one byte at a time; the rest is the target's.
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"go\nmain 12\nthread 3\n")
        .unwrap();
    child.wait().unwrap();
    assert_eq!(count(&set), 15);
}

#[test]
fn many_probes_cost_one_descriptor() {
    if !allowed() {
        return;
    }
    let mut target = Target::start("many");
    let (probe, _file) = target.probe();
    let mut probes = vec![probe; 600];
    probes[345].offset = 1 << 40;
    let set = UprobeSet::open(target.process(), &probes).unwrap();
    target.run("worker 99");
    let readings = set.read().unwrap();
    for (index, reading) in readings.iter().enumerate() {
        assert_eq!(reading.count, if index == 345 { 0 } else { 99 }, "{index}");
    }
    let refused: Vec<_> = set.refused().iter().map(|r| r.probe).collect();
    assert_eq!(refused, [345]);
}

#[test]
fn a_process_outlives_its_main_thread() {
    if !allowed() {
        return;
    }
    let mut target = Target::start("leave");
    let early = target.open();
    target.run("leave 0");
    while target.process().status().unwrap().state != 'Z' {
        std::thread::yield_now();
    }
    target.run("main 20");
    assert_eq!(count(&early), 20, "opened before it ended");
    drop(early);
    let (probe, _file) = target.probe();
    let late = UprobeSet::open(target.process(), &[probe]).unwrap();
    target.run("main 30");
    assert_eq!(count(&late), 30, "opened afterwards");
    let threads = target.process().threads().unwrap();
    assert_eq!(late.who(), CountedThreads::Threads(threads));
}

#[test]
fn a_dropped_set_leaves_nothing() {
    if !allowed() {
        return;
    }
    let mut target = Target::start("dropped");
    let code = |target: &Target| {
        let mut bytes = [0; 16];
        let memory = std::fs::File::open(format!("/proc/{}/mem", target.child.id())).unwrap();
        std::os::unix::fs::FileExt::read_exact_at(&memory, &mut bytes, target.counted).unwrap();
        bytes
    };
    let before = code(&target);
    let set = target.open();
    target.run("main 1");
    assert_ne!(code(&target), before);
    drop(set);
    assert_eq!(code(&target), before);
}

/// Returns the closed probe's count, once the kernel has disarmed it (0.2 ms).
fn close_first(set: &mut UprobeSet, target: &mut Target) -> u64 {
    set.close(&[0]);
    for _ in 0..10_000 {
        let before = set.counts().unwrap()[0];
        target.run("main 1");
        if set.counts().unwrap()[0] == before {
            return before;
        }
    }
    panic!("it counts on")
}

#[test]
fn a_closed_probe_costs_nothing_and_counts_again_after_it_is_opened() {
    if !allowed() {
        return;
    }
    let mut target = Target::start("closed");
    let (probe, _file) = target.probe();
    // Beyond 32 places, probes share a link, so closing one probe re-arms others.
    for probes in [vec![probe.clone(); 2], vec![probe; 200]] {
        let last = probes.len() - 1;
        let mut set = UprobeSet::open(target.process(), &probes).unwrap();
        let counts = |set: &UprobeSet| [0, last].map(|at| set.counts().unwrap()[at]);
        target.run("main 5");
        let closed = close_first(&mut set, &mut target);
        let open = counts(&set)[1];
        target.run("main 7");
        assert_eq!(counts(&set), [closed, open + 7]);
        let readings = set.read().unwrap();
        assert!(readings[0].is_partial() && readings[0].at_least);
        assert_eq!(readings[1].at_least, last > 32);
        assert!(!readings[last].at_least);
        assert!(set.open_again(0));
        target.run("worker 3");
        assert_eq!(counts(&set), [closed + 3, open + 10]);
    }
}

#[test]
fn threads_count_again_after_their_probe_is_opened() {
    if !can("thread uprobes", Capabilities::get().thread_uprobes) {
        return;
    }
    let mut target = Target::start("closed-perf");
    let (probe, _file) = target.probe();
    target.run("leave 0");
    while target.process().status().unwrap().state != 'Z' {
        std::thread::yield_now();
    }
    let mut set = UprobeSet::open(target.process(), &[probe]).unwrap();
    assert!(matches!(set.who(), CountedThreads::Threads(_)));
    target.run("main 5");
    let closed = close_first(&mut set, &mut target);
    assert!(set.open_again(0));
    target.run("main 3");
    let [reading] = set.read().unwrap()[..] else {
        panic!("one probe, one reading")
    };
    assert!(reading.at_least);
    assert_eq!(reading.count, closed + 3);
}

#[test]
fn two_sets_count_separately() {
    if !allowed() {
        return;
    }
    let mut target = Target::start("two");
    let first = target.open();
    target.run("main 10");
    let second = target.open();
    target.run("main 7");
    assert_eq!((count(&first), count(&second)), (17, 7));
}

#[test]
fn an_impossible_probe_is_refused_alone() {
    if !allowed() {
        return;
    }
    let mut target = Target::start("refused");
    let (good, _file) = target.probe();
    let far = KernelProbe {
        offset: 1 << 40,
        ..good.clone()
    };
    let absent = KernelProbe {
        path: "/no/such/file".into(),
        offset: 0,
    };
    let probes = [far, good, absent];
    let threads = target.process().threads().unwrap();
    let process = target.process();
    let by_process = || UprobeSet::open(process, &probes);
    let by_thread = || UprobeSet::open_threads(&threads, &probes);
    for open in [&by_process as &dyn Fn() -> _, &by_thread] {
        let set: UprobeSet = open().unwrap();
        target.run("main 3");
        let counts: Vec<_> = set.read().unwrap().iter().map(|r| r.count).collect();
        assert_eq!(counts, [0, 3, 0]);
        let [far, absent] = set.refused() else {
            panic!("{:?}", set.refused())
        };
        assert_eq!((far.probe, absent.probe), (0, 2));
        assert!(
            matches!(far.error, Error::BadOffset { .. }),
            "{}",
            far.error
        );
        assert!(
            matches!(absent.error, Error::NoSuchFile { .. }),
            "{}",
            absent.error
        );
    }
}

#[test]
fn a_program_that_has_ended_is_an_error() {
    if !allowed() {
        return;
    }
    let target = Target::start("ended");
    let (probe, _file) = target.probe();
    let process = target.process();
    let threads = process.threads().unwrap();
    drop(target);
    for set in [
        UprobeSet::open(process, std::slice::from_ref(&probe)),
        UprobeSet::open_threads(&threads, &[probe]),
    ] {
        let error = set.unwrap_err();
        assert!(matches!(error, Error::NoSuchThread), "{error}");
    }
}

#[test]
fn more_probes_than_descriptors_are_refused_before_any_is_armed() {
    if !allowed() {
        return;
    }
    let target = Target::start("descriptors");
    let (probe, _file) = target.probe();
    let threads = vec![target.child.id(); 1 << 20];
    let error = UprobeSet::open_threads(&threads, &vec![probe; 1 << 10]).unwrap_err();
    assert!(error.to_string().contains("file descriptors"), "{error}");
    assert!(error.hint().unwrap().contains("ulimit -n"));
}
