//! Attaching and detaching must work while threads are inside malloc, the loader or stdio, even if tiptoe is
//! killed.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use tiptoe_tests::process::{output, wait_until};
use tiptoe_tests::{Probe, Process, Site, command, scaled, target};

const LIMIT: Duration = Duration::from_secs(20);

fn busy() -> (Process, Site) {
    let (program, plugin) = (target("busy"), target("plugin"));
    let mut process = Process::waiting(&program, &[plugin.to_str().expect("text")]);
    let site = Site::new(process.pid(), &program, "called");
    process.go();
    (process, site)
}

fn called(process: &mut Process) {
    process.go();
    assert_eq!(process.line(), "called");
}

#[test]
fn attaches_to_threads_in_malloc_the_loader_and_stdio() {
    let (process, site) = busy();
    for _ in 0..scaled(200).max(5) {
        let run = Probe::new(&["called"])
            .with(&["--duration", "0.05"])
            .attach_and_wait(&[process.pid()]);
        run.good();
        site.wait_original();
    }
    let (output, status) = process.finish();
    assert!(
        status.success() && output.contains("expect called"),
        "{status}"
    );
}

#[test]
#[ignore = "nightly: killed at many moments"]
fn the_target_survives_a_tiptoe_killed_at_any_moment() {
    let (process, site) = busy();
    let kills = scaled(500).max(10);
    for kill in 0..kills {
        let attached = Probe::new(&["called"])
            .with(&["--duration", "0.1"])
            .attach(&[process.pid()]);
        std::thread::sleep(Duration::from_micros(kill * 400_000 / kills));
        attached.process.signal(libc::SIGKILL);
        drop(attached);
        site.wait_original();
    }
    let run = Probe::new(&["called"])
        .with(&["--duration", "0.2"])
        .attach_and_wait(&[process.pid()]);
    assert!(run.good().count("called") > 0, "the next attach works");
    let (_, status) = process.finish();
    assert!(status.success(), "{status}");
}

/// The only thread's stack cannot be unwound, because tiptoe replaced a return address on it. tiptoe must still
/// attach, because calling a loaded agent (tiptoe's library) needs neither malloc nor unwinding.
#[test]
fn a_thread_inside_a_followed_call_can_be_borrowed_again() {
    let program = target("below");
    let mut process = Process::waiting(&program, &[]);
    let site = Site::new(process.pid(), &program, "waits");
    for _ in 0..3 {
        let attached = Probe::new(&["waits"])
            .with(&["--latency"])
            .attach(&[process.pid()]);
        site.wait_probed();
        process.go();
        assert_eq!(process.line(), "and waits again");
        let report = attached.interrupt();
        assert_eq!(report.via("agent"), 1, "{:#}", report.value);
        site.wait_original();
    }
    let (output, status) = process.finish();
    assert!(
        status.success() && output.contains("expect waits 4"),
        "{status} {output}"
    );
}

fn agent_sleeps(pid: u32) -> Option<u64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let status = tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    let mut agents = status.filter(|status| status.starts_with("Name:\ttiptoe-agent\n"));
    let agent = agents.next()?;
    let mut lines = agent.lines();
    let sleeps = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    sleeps?.trim().parse().ok()
}

/// Regression: if a thread that tiptoe borrowed to load the agent jumped out of a handler or was cancelled, all
/// later attaches failed.
#[test]
fn a_borrowed_thread_may_jump_out_of_a_handler_or_end() {
    for how in ["jump", "cancel"] {
        let mut process = Process::start(Command::new(target("escapes")).arg(how));
        assert_eq!(process.line(), "ready");
        for _ in 0..5 {
            let probe = Probe::new(&["escaped"]).with(&["--duration", "0.1"]);
            let run = probe.attach_and_wait(&[process.pid()]);
            assert_eq!(run.good().via("agent"), 1, "{how}: {:#}", run.good().value);
        }
        let (output, status) = process.finish();
        assert!(
            status.success() && output.contains("expect escaped"),
            "{how}: {status} {output}"
        );
    }
}

/// A stopped tiptoe still owns the shared memory, so the agent must keep the probes.
#[test]
fn a_stopped_tiptoe_keeps_its_probes() {
    let (mut process, site) = busy();
    let attached = Probe::new(&["called"]).attach(&[process.pid()]);
    attached.wait_ready();
    attached.process.signal(libc::SIGSTOP);
    let tiptoe = format!("/proc/{}/status", attached.process.pid());
    wait_until("tiptoe to stop", LIMIT, || {
        let status = std::fs::read_to_string(&tiptoe).expect("it lives");
        status.contains("State:\tT")
    });
    // The agent must have checked more than once whether tiptoe lives.
    let sleeps = agent_sleeps(process.pid()).expect("an agent");
    wait_until("the agent to look", LIMIT, || {
        agent_sleeps(process.pid()) >= Some(sleeps + 3)
    });
    called(&mut process);
    assert!(process.lives() && site.is_probed());
    attached.process.signal(libc::SIGCONT);
    assert!(attached.interrupt().count("called") > 0);
    site.wait_original();
}

#[test]
fn the_target_may_die_while_traced() {
    let (mut process, _) = busy();
    let attached = Probe::new(&["called"]).attach(&[process.pid()]);
    attached.wait_ready();
    called(&mut process);
    process.signal(libc::SIGKILL);
    assert!(attached.finish().count("called") > 0);
}

/// Regression: mappings at the same offset within 256 MB evicted each other from AMD's first-level cache.
#[test]
fn the_agents_mappings_do_not_all_begin_at_one_place_of_256_mb() {
    let (mut process, _) = busy();
    let attached = Probe::new(&["uretprobe:called"]).attach(&[process.pid()]);
    attached.wait_ready();
    // At a thread's first probed call, the agent maps memory for the thread's frames.
    called(&mut process);
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", process.pid())).expect("it lives");
    let starts = maps.lines().filter_map(|line| {
        let start = u64::from_str_radix(line.split_once('-')?.0, 16).ok()?;
        let is_far = (0x5500_0000_0000..0x5554_0000_0000).contains(&start);
        let ours = is_far && start.is_multiple_of(4 << 20);
        ours.then_some(start % (256 << 20))
    });
    let starts: Vec<u64> = starts.collect();
    let places: BTreeSet<u64> = starts.iter().copied().collect();
    assert!(
        starts.len() >= 4,
        "its state, plan, data and frames: {maps}"
    );
    assert!(places.len() > 1, "{maps}");
    attached.interrupt();
}

fn another_build() -> Vec<u8> {
    // `nop`, then the end of a signal handler. Handlers return to the second byte, so the `nop` never runs.
    const NOP: [u8; 10] = [0x90, 0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];
    let mut bytes = std::fs::read(command().get_program()).expect("tiptoe");
    let found: Vec<usize> = memchr::memmem::find_iter(&bytes, &NOP).collect();
    assert!(!found.is_empty(), "no agent");
    for at in found {
        bytes[at] = 0xcc;
    }
    bytes
}

/// Running programs keep their agent when tiptoe is upgraded.
#[test]
fn an_agent_of_another_build_is_not_used() {
    let (process, site) = busy();
    let pid = process.pid().to_string();
    let [bytes, file] = ["bytes", "tiptoe"].map(|part| {
        let name = format!("tiptoe-another-{pid}-{part}");
        std::env::temp_dir().join(name)
    });
    std::fs::write(&bytes, another_build()).expect("a temporary folder");
    // If this process wrote the file, another test's child could inherit the descriptor, and exec would fail
    // (ETXTBSY).
    let mut install = Command::new("install");
    assert!(
        install
            .arg("-m755")
            .args([&bytes, &file])
            .status()
            .expect("install")
            .success()
    );
    let mut other = Command::new(&file);
    other.args([
        "probe",
        "called",
        "--via",
        "agent",
        "--duration",
        "0.1",
        "-p",
        &pid,
    ]);
    let output = output(&mut other);
    for file in [bytes, file] {
        std::fs::remove_file(file).expect("it is ours");
    }
    assert!(output.status.success(), "{output:?}");
    site.wait_original();
    let probe = Probe::new(&["called"]).with(&["--duration", "0.2"]);
    let refused = probe.clone().with(&["--via", "agent"]);
    let refused = refused.attach_and_wait(&[process.pid()]);
    let words = "it has the agent of another build of tiptoe";
    assert!(refused.stderr.contains(words), "{}", refused.stderr);
    assert_eq!(refused.status, 2);
    let run = probe.attach_and_wait(&[process.pid()]);
    assert_eq!(run.good().via("kernel"), 1, "{:#}", run.good().value);
    assert!(run.good().count("called") > 0, "{:#}", run.good().value);
    let (_, status) = process.finish();
    assert!(status.success(), "{status}");
}
