//! Other tracers put uprobes (foreign probes) on probed functions and remove them. Programs check every result, and
//! afterwards each of tiptoe's probes must count.

use std::thread::sleep;
use std::time::{Duration, Instant};

use tiptoe_tests::foreign::ProbePoint;
use tiptoe_tests::process::wait_until;
use tiptoe_tests::tiptoe::AttachedTiptoe;
use tiptoe_tests::{
    ExpectedCounts, ForeignProbe, Probe, Process, Report, Site, command, scaled, target_with,
};

const FIRSTS: [&str; 17] = [
    "push", "push15", "endbr64", "mov", "mov32", "load", "xor", "lea", "lea32", "sub", "call",
    "jmp", "nop5", "nops", "frame", "two", "loop",
];

const INT3: u8 = 0xcc;

const THREADS: usize = 4;

struct LoadedProgram {
    process: Process,
    functions: Vec<String>,
    sites: Vec<Site>,
    places: Vec<ProbePoint>,
}

impl LoadedProgram {
    /// Starts the program; `None`, with a message, if uprobes are unavailable. Each test needs its own file,
    /// because the removal of a uprobe also overwrites tiptoe's trap in other processes with uprobes.
    fn start(test: &str) -> Option<LoadedProgram> {
        let program = target_with("firsts", &[&format!("-DTEST_{test}")]).expect("it builds");
        let mut process = Process::waiting(&program, &[&THREADS.to_string()]);
        let functions: Vec<String> = FIRSTS.iter().map(|name| format!("first_{name}")).collect();
        let pid = process.pid();
        let sites = functions.iter().map(|name| Site::new(pid, &program, name));
        let sites = sites.collect();
        process.go();
        // `ProbePoint::new` selects the youngest thread, so all threads must exist.
        wait_until("its threads", Duration::from_secs(10), || {
            threads(pid) == THREADS + 1
        });
        let place = |name: &String| ProbePoint::new(pid, &program, name);
        let places: Option<Vec<ProbePoint>> = functions.iter().map(place).collect();
        if !tiptoe_tests::is_root() || places.is_none() {
            tiptoe_tests::skipped("foreign probes", "needs root and uprobe events");
            return None;
        }
        Some(LoadedProgram {
            process,
            functions,
            sites,
            places: places?,
        })
    }

    fn pids(&self) -> [u32; 1] {
        [self.process.pid()]
    }

    fn probe(&self) -> Probe {
        Probe::new(&self.functions)
    }

    fn wait_probed(&self, ours: &AttachedTiptoe) -> Vec<Vec<u8>> {
        ours.wait_ready();
        self.sites.iter().map(Site::now).collect()
    }

    fn wait_for(&self, bytes: &[Vec<u8>]) {
        let until = Instant::now() + Duration::from_secs(10);
        let dead = || {
            let sites = self.functions.iter().zip(&self.sites).zip(bytes);
            let other = sites.filter(|((_, site), bytes)| site.now() != **bytes);
            let bytes_now = other.map(|((name, site), bytes)| (name, bytes, site.now()));
            bytes_now.collect::<Vec<_>>()
        };
        while !dead().is_empty() {
            assert!(Instant::now() < until, "dead: {:x?}", dead());
            sleep(Duration::from_millis(10));
        }
    }

    fn disturb(&self, times: u64) {
        for (turn, place) in (0..times).zip(self.places.iter().cycle()) {
            let foreign = match turn % 4 {
                3 => place.arm_return(),
                _ => place.arm(),
            };
            sleep(Duration::from_micros([0, 100, 1000][turn as usize % 3]));
            drop(foreign);
        }
    }

    /// Returns the functions whose foreign probe is not hit while another is hit 100 times. The program calls all
    /// functions in turn.
    fn dead(&self, foreign: &[ForeignProbe]) -> Vec<&str> {
        let until = Instant::now() + Duration::from_secs(20);
        let before: Vec<u64> = foreign.iter().map(ForeignProbe::count).collect();
        loop {
            let pairs = foreign.iter().zip(&before);
            let hits: Vec<u64> = pairs.map(|(now, before)| now.count() - before).collect();
            if hits.iter().any(|hits| *hits > 100) || Instant::now() > until {
                let pairs = self.functions.iter().zip(&hits);
                let dead = pairs.filter(|(_, hits)| **hits == 0);
                return dead.map(|(name, _)| &**name).collect();
            }
            sleep(Duration::from_millis(10));
        }
    }

    fn ends_well(self) -> ExpectedCounts {
        let (output, status) = self.process.finish();
        assert!(status.success(), "the program: {status}");
        ExpectedCounts::parse(&output)
    }
}

fn threads(pid: u32) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    tasks.expect("the program lives").count()
}

fn assert_told(report: &Report) {
    let notes = report.value["notes"].to_string();
    assert!(
        notes.contains("another tracer probed"),
        "{:#}",
        report.value
    );
}

#[test]
fn foreign_probes_are_added_on_our_sites() {
    let Some(load) = LoadedProgram::start("on_top_of_ours") else {
        return;
    };
    let ours = load.probe().with(&["--via", "agent"]);
    let ours = ours.attach(&load.pids());
    let patched = load.wait_probed(&ours);
    load.disturb(scaled(1000));
    let last: Vec<_> = load.places.iter().map(ProbePoint::arm).collect();
    // tiptoe restores lost probes when it checks its sites (patched places).
    wait_until("no dead probe", Duration::from_secs(60), || {
        load.dead(&last).is_empty()
    });
    drop(last);
    load.wait_for(&patched);
    load.ends_well();
    let report = ours.finish();
    assert_told(&report);
    let notes = report.value["notes"].to_string();
    assert!(
        notes.contains("probes of another tracer were removed"),
        "{notes}"
    );
    let counted = |name: &&str| report.count(&format!("first_{name}")) > 0;
    assert!(FIRSTS.iter().all(counted), "{:#}", report.value);
}

/// Where tiptoe's site is after the function's first instruction, both tracers' probes must count.
#[test]
fn sites_with_foreign_probes_are_refused() {
    const LATER_SITES: [&str; 4] = ["endbr64", "mov32", "load", "nop5"];
    const WHY: &str = "its code in memory differs from its file: another tool patched it";
    let Some(load) = LoadedProgram::start("under_ours") else {
        return;
    };
    let foreign: Vec<_> = load.places.iter().map(ProbePoint::arm).collect();
    // At these hits, the kernel replaces some of its traps by calls.
    assert_eq!(load.dead(&foreign), [""; 0]);
    let before: Vec<_> = load.sites.iter().map(Site::now).collect();
    for turn in 0..scaled(500) {
        let via = ["agent", "auto"][usize::from(turn % 2 == 1)];
        let ours = load.probe().with(&["--duration", "0.01", "--via", via]);
        let run = ours.attach_and_wait(&load.pids());
        let report = run.good();
        assert_eq!(report.via("agent"), LATER_SITES.len(), "{:#}", report.value);
        match via {
            "agent" => assert_eq!(report.refusals()[WHY], FIRSTS.len() - LATER_SITES.len()),
            _ => assert!(report.value["notes"].to_string().contains(WHY)),
        }
        load.wait_for(&before);
    }
    assert_eq!(load.dead(&foreign), [""; 0]);
    drop(foreign);
    load.sites.iter().for_each(Site::wait_original);
    load.ends_well();
}

#[test]
#[ignore = "nightly: a storm of probes"]
fn foreign_probes_change_while_ours_do() {
    let Some(load) = LoadedProgram::start("while_ours_come_and_go") else {
        return;
    };
    let mut ours = command();
    ours.arg("probe").args(&load.functions);
    ours.args(["--budget", "off", "--toggles", "1000000000"]);
    let ours = Process::start(ours.args(["-p", &load.process.pid().to_string()]));
    load.disturb(scaled(1000));
    ours.signal(libc::SIGINT);
    let (_, status) = ours.finish();
    assert!(status.success(), "{status}");
    load.sites.iter().for_each(Site::wait_original);
    load.ends_well();
}

/// A foreign probe stops counting if our detach removes a shared trap byte. tiptoe needs a trap byte on a two-byte
/// loop, and on a call or jump without room for generated code nearby.
#[test]
#[ignore = "nightly: a storm of probes"]
fn foreign_probes_outlast_ours() {
    const BARELY: [&str; 3] = ["first_call", "first_jmp", "first_loop"];
    let Some(load) = LoadedProgram::start("left_when_we_leave") else {
        return;
    };
    for _ in 0..scaled(100) {
        let ours = load.probe().with(&["--via", "agent"]);
        let ours = ours.attach(&load.pids());
        let patched = load.wait_probed(&ours);
        let foreign: Vec<_> = load.places.iter().map(ProbePoint::arm).collect();
        ours.interrupt();
        let trapped = FIRSTS
            .iter()
            .zip(&patched)
            .filter(|(_, now)| now[0] == INT3);
        let trapped: Vec<String> = trapped.map(|(name, _)| format!("first_{name}")).collect();
        assert!(
            trapped.iter().all(|name| BARELY.contains(&&**name)),
            "{trapped:?}"
        );
        assert_eq!(load.dead(&foreign), trapped);
        drop(foreign);
        load.sites.iter().for_each(Site::wait_original);
    }
    load.ends_well();
}

/// A foreign probe inside our jump changes the jump's target. tiptoe must remove the jump before a thread runs the
/// function.
#[test]
fn a_foreign_probe_is_inside_our_jump() {
    let function = "first_frame";
    let program = target_with("firsts", &["-DTEST_inside_of_ours"]).expect("it builds");
    let mut process = Process::waiting(&program, &["4"]);
    let site = Site::new(process.pid(), &program, function);
    let place = ProbePoint::new(process.pid(), &program, function);
    let (true, Some(place)) = (tiptoe_tests::is_root(), place) else {
        return tiptoe_tests::skipped("foreign probes", "needs root and uprobe events");
    };
    let original = site.now();
    let ours = Probe::new(&[function]).attach(&[process.pid()]);
    ours.wait_ready();
    let patched = site.now();
    for _ in 0..scaled(100) {
        let foreign = place.clone().after(4).arm();
        // If the jump's byte already equals a trap byte, tiptoe can notice only the removal of the foreign probe.
        if site.now() != patched {
            site.wait_for(&[&original[..4], &[0xcc], &original[5..]].concat());
        }
        drop(foreign);
        site.wait_for(&patched);
    }
    process.go();
    let (_, status) = process.finish();
    assert!(status.success(), "the program: {status}");
    let report = ours.finish();
    assert_told(&report);
    assert!(report.count(function) > 0);
}
