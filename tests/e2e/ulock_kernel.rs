//! Where nothing can be patched, the kernel's futex tracepoints count user locks.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tiptoe_tests::foreign::ProbePoint;
use tiptoe_tests::process::output;
use tiptoe_tests::{
    Futexes, Probe, Process, Report, command, go_target, is_root, musl_target, scaled, skipped,
    target, target_with,
};

use crate::lock_kinds::KINDS;
use crate::locks::rows;

fn is_possible() -> bool {
    let format = "/sys/kernel/tracing/events/syscalls/sys_enter_futex/format";
    let possible =
        is_root() && Path::new(format).exists() && Path::new("/sys/kernel/btf/vmlinux").exists();
    if !possible {
        skipped(
            "futex tracepoints",
            "needs root, the tracepoints of system calls and BTF",
        );
    }
    possible
}

fn through_kernel() -> Probe {
    Probe::lock().with(&["--via", "kernel"])
}

fn contended(ours: &Probe, program: &Path, arguments: &[&str]) -> (Report, [u64; 2]) {
    let mut program = Process::waiting(program, arguments);
    let pid = program.pid();
    let ours = ours.attach(&[pid]);
    ours.wait_ready();
    let kernel = Futexes::of(pid).expect("the tracepoint is there");
    program.go();
    let said = program.line();
    assert!(said.starts_with("done "), "{arguments:?}: {said:?}");
    let counts = kernel.counts();
    let report = ours.interrupt();
    let (_, status) = program.finish();
    assert!(status.success(), "{arguments:?}: {status}");
    (report, counts)
}

/// While another test's tiptoe is preempted in a change of a BPF map, the kernel runs no BPF program on that CPU. Then
/// perf counts calls that tiptoe misses.
const MISSED: &str = "the kernel did not run tiptoe's BPF program";

fn missed(report: &Report) -> u64 {
    let drops = report.value["locks"]["drops"].as_array().into_iter();
    let missed = drops.flatten().filter(|dropped| is_missed(dropped));
    missed.filter_map(|dropped| dropped["count"].as_u64()).sum()
}

fn is_missed(dropped: &Value) -> bool {
    let reason = dropped["reason"].as_str();
    reason.is_some_and(|reason| reason.contains(MISSED))
}

#[track_caller]
fn assert_counted(report: &Report, counts: [u64; 2], what: &str) {
    let reported = report.lock_calls().map(|count| count.unwrap_or(0));
    let short = [0, 1].map(|which| counts[which].checked_sub(reported[which]));
    let short = short[0].zip(short[1]).map(|(waits, wakes)| waits + wakes);
    assert!(
        short.is_some_and(|short| short <= missed(report)),
        "{what}: {reported:?} of {counts:?}: {:#}",
        report.value
    );
}

/// Up to this many waits may all be the main thread's waits for the end of other threads.
const JOINS: u64 = 4;

fn check(kind: &str, (report, [waits, wakes]): &(Report, [u64; 2]), is: &str, named: &str) {
    let locks = &report.value["locks"];
    assert_counted(report, [*waits, *wakes], kind);
    assert!(
        locks["unfinished"].as_u64() <= Some(missed(report)),
        "{kind}: {:#}",
        report.value
    );
    let drops = locks["drops"].as_array().map_or(&[][..], Vec::as_slice);
    // Each call of `once` has its own lock, so there may be no room for some locks. If tiptoe misses a wait's end, it
    // drops other calls, too.
    let is_amiss = |dropped: &Value| !is_missed(dropped) && missed(report) == 0;
    assert!(
        kind == "once" || !drops.iter().any(is_amiss),
        "{kind}: {:#}",
        report.value
    );
    let mine = |row: &&Value| {
        row["type"] == is && row["lock"].as_str().unwrap_or_default().contains(named)
    };
    let found = rows(report).iter().find(mine);
    assert!(
        *waits <= JOINS || found.is_some(),
        "{kind}: {:#}",
        report.value
    );
    // A statically linked libc's locks are not the program's own futexes.
    let is_futex = |row: &Value| row["type"] == "futex";
    assert!(
        is != "libc's own" || !rows(report).iter().any(is_futex),
        "{kind}: {:#}",
        report.value
    );
}

fn notes(report: &Report) -> String {
    report.value["notes"].to_string()
}

#[test]
#[ignore = "nightly: all kinds of locks, two tracers"]
fn every_kind_is_counted_as_perf_counts_it() {
    if !is_possible() {
        return;
    }
    let stat = target_with("contended", &["-static"]).expect("it builds");
    for (kind, is, named) in KINDS {
        let rounds = if kind == "join" {
            200
        } else {
            scaled(1_000_000)
        };
        let rounds = rounds.to_string();
        let arguments = [kind, &rounds];
        let asked = contended(&through_kernel(), &target("contended"), &arguments);
        check(kind, &asked, is, named);
        assert_eq!(asked.0.value["locks"]["via"], "kernel");
        assert!(
            notes(&asked.0).contains("as `--via kernel` requests"),
            "{}",
            notes(&asked.0)
        );
        let found = contended(&Probe::lock(), &stat, &arguments);
        check(kind, &found, is, named);
        assert!(
            notes(&found.0).contains("statically linked"),
            "{}",
            notes(&found.0)
        );
    }
}

#[test]
fn the_cost_is_measured() {
    if !is_possible() {
        return;
    }
    let arguments = ["mutex", "20000"];
    let (report, [waits, wakes]) = contended(&through_kernel(), &target("contended"), &arguments);
    let cost = &report.value["cost"];
    assert_eq!(cost["basis"], "measured", "{cost:#}");
    let runs = cost["programs"]["runs"].as_u64().unwrap_or(0);
    assert!(
        runs >= waits + wakes && runs <= 2 * waits + wakes,
        "{cost:#}"
    );
    assert!(
        cost["programs"]["run_ns"].as_u64().unwrap_or(0) > 0,
        "{cost:#}"
    );
}

#[test]
fn a_slow_holder_is_named() {
    if !is_possible() {
        return;
    }
    let stat = target_with("slow_holder", &["-static"]).expect("it builds");
    let plain = target("slow_holder");
    for (probe, program) in [(Probe::lock(), &stat), (through_kernel(), &plain)] {
        let name = program
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let run = probe.run(program, &["300"]);
        let row = &rows(run.good())[0];
        assert_eq!(row["lock"], format!("{name}:cache_lock"), "{row:#}");
        assert_eq!(row["type"], "mutex", "{row:#}");
        let site = row["callsite"].as_str().unwrap_or_default();
        assert!(site.starts_with(&format!("{name}:quick+")), "{row:#}");
        let blamed = row["blame"][0]["callsite"].as_str().unwrap_or_default();
        let holder = format!("{name}:slow_holder+");
        assert!(blamed.starts_with(&holder), "{row:#}");
        let own: u64 = run.expected().0["waited_ns"];
        let reported = row["total_ns"].as_u64().unwrap_or(0);
        assert!(reported > 0 && reported <= own, "{reported} of {own}");
        let calls = |key: &str| row[key].as_u64().unwrap_or(0);
        let all = calls("slept") + calls("at_once");
        assert!(all >= calls("episodes"), "{row:#}");
    }
}

#[test]
#[ignore = "nightly: asserts a time"]
fn a_slow_holder_is_blamed_for_most_of_the_waiting_time() {
    if !is_possible() {
        return;
    }
    let run = through_kernel().run(&target("slow_holder"), &["300"]);
    let reported = rows(run.good())[0]["total_ns"].as_u64().unwrap_or(0);
    let own: u64 = run.expected().0["waited_ns"];
    assert!(reported <= own && reported > own / 2, "{reported} of {own}");
}

#[test]
fn musl_programs_are_seen_started_or_running() {
    if !is_possible() {
        return;
    }
    for flags in [&[][..], &["-static"]] {
        let program = match musl_target("contended", flags) {
            Ok(program) => program,
            Err(log) => return skipped("musl", &log),
        };
        let found = contended(&Probe::lock(), &program, &["mutex", "20000"]);
        check("musl", &found, "futex", "hot_mutex");
        let blamed = rows(&found.0)[0]["blame"][0]["callsite"].as_str();
        assert!(
            blamed.unwrap_or_default().contains("pthread_mutex_unlock"),
            "{:#}",
            found.0.value
        );
    }
    let program = musl_target("slow_holder", &[]).expect("it builds");
    let run = Probe::lock().run(&program, &["200"]);
    let report = run.good();
    let lock = rows(report)[0]["lock"].as_str().unwrap_or_default();
    assert!(lock.contains("cache_lock"), "{:#}", report.value);
    assert!(notes(report).contains("musl"), "{}", notes(report));
}

#[test]
fn threads_of_go_are_seen() {
    if !is_possible() {
        return;
    }
    for flags in [&[][..], &["-ldflags=-s -w"]] {
        let program = match go_target("parks", flags) {
            Ok(program) => program,
            Err(why) => return skipped("go", &why),
        };
        let run = Probe::lock().run(&program, &[]);
        let report = run.good();
        assert_eq!(run.stdout, b"done\n");
        let mut rows = rows(report).iter();
        let parked = rows.find(|row| row["type"] == "parked M");
        let parked = parked.expect("threads that waited");
        assert_eq!(parked["idle"], true);
        let site = parked["callsite"].as_str().unwrap_or_default();
        let is_users = !site.contains("futex") && !site.contains("note");
        let begins = if flags.is_empty() {
            "parks:runtime."
        } else {
            "parks-ldflags--s -w+"
        };
        assert!(site.starts_with(begins) && is_users, "{parked:#}");
        let notes = notes(report);
        assert!(notes.contains("go tool pprof"), "{notes}");
    }
}

#[test]
fn a_program_under_seccomp_is_seen() {
    if !is_possible() {
        return;
    }
    let arguments = ["mutex", "20000", "seccomp"];
    let found = contended(&Probe::lock(), &target("contended"), &arguments);
    check("seccomp", &found, "mutex", "hot_mutex");
    assert!(
        notes(&found.0).contains("runs under seccomp"),
        "{}",
        notes(&found.0)
    );
}

#[test]
fn the_kernel_counts_locks_at_sites_that_cannot_be_patched() {
    if !is_possible() {
        return;
    }
    let path = target("contended");
    for (via, seen) in [("auto", true), ("agent", false)] {
        let mut program = Process::waiting(&path, &["inline", "20000"]);
        let Some(place) = ProbePoint::new(program.pid(), &path, "inlined") else {
            return skipped("uprobes", "the kernel has no uprobe events");
        };
        let _foreign = place.arm();
        let ours = Probe::lock().with(&["--via", via]).attach(&[program.pid()]);
        ours.wait_ready();
        let kernel = Futexes::of(program.pid()).expect("the tracepoint is there");
        program.go();
        assert!(program.line().starts_with("done "));
        let [waits, wakes] = kernel.counts();
        let report = ours.interrupt();
        let row = rows(&report).iter().find(|row| {
            row["lock"]
                .as_str()
                .unwrap_or_default()
                .contains("hot_word")
        });
        let refused = report.value["refusals"].to_string();
        assert_eq!(
            refused.contains("its calls are not seen"),
            !seen,
            "{:#}",
            report.value
        );
        assert_eq!(row.is_some(), seen, "{:#}", report.value);
        if seen {
            assert_counted(&report, [waits, wakes], via);
            assert!(
                notes(&report).contains("futex:contended:inlined"),
                "{}",
                notes(&report)
            );
        } else {
            assert!(report.lock_calls()[0] < Some(waits), "{:#}", report.value);
        }
    }
}

#[test]
fn children_are_not_counted() {
    if !is_possible() {
        return;
    }
    let stat = target_with("futex_forks", &["-static"]).expect("it builds");
    for (probe, program) in [
        (through_kernel(), target("futex_forks")),
        (Probe::lock(), stat),
    ] {
        let run = probe.run(&program, &["500"]);
        let locks = &run.good().value["locks"];
        let expected = run.expected();
        assert_eq!(
            locks["waits"],
            expected.0["waits"],
            "{:#}",
            run.good().value
        );
        assert_eq!(
            locks["wakes"],
            expected.0["wakes"],
            "{:#}",
            run.good().value
        );
        let row = &rows(run.good())[0];
        assert_eq!(
            (&row["at_once"], &row["timed_out"]),
            (&500.into(), &1.into()),
            "{row:#}"
        );
    }
}

/// Regression: the program ended before tiptoe had read its mappings, and all its waits were lost.
#[test]
fn a_command_that_ends_at_once_is_counted() {
    if !is_possible() {
        return;
    }
    let program = target_with("brief", &["-static"]).expect("it builds");
    let run = Probe::lock().run(&program, &[]);
    let report = run.good();
    assert_eq!(report.value["locks"]["waits"], 7, "{:#}", report.value);
    let row = &rows(report)[0];
    assert_eq!(row["at_once"], 7, "{row:#}");
    assert_eq!(row["lock"], "brief-static:word", "{row:#}");
}

#[test]
fn another_program_is_not_counted() {
    if !is_possible() {
        return;
    }
    let calls = target("futex_forks");
    let script = format!("sleep 0.2; exec {} 500", calls.display());
    let run = through_kernel().run(Path::new("/bin/sh"), &["-c", &script]);
    let report = run.good();
    assert_eq!(report.value["locks"]["waits"], 0, "{:#}", report.value);
    let notes = notes(report);
    assert!(notes.contains("ran another program"), "{notes}");
}

#[test]
fn a_tiptoe_that_is_killed_leaves_nothing() {
    if !is_possible() {
        return;
    }
    let stat = target_with("contended", &["-static"]).expect("it builds");
    let mut program = Process::waiting(&stat, &["mutex", "0"]);
    program.go();
    for _ in 0..scaled(500) {
        let ours = Probe::lock().attach(&[program.pid()]);
        ours.wait_ready();
        ours.process.signal(libc::SIGKILL);
        drop(ours);
        assert!(program.lives());
    }
    let run = Probe::lock()
        .with(&["--duration", "0.2"])
        .attach_and_wait(&[program.pid()]);
    assert!(run.good().value["locks"]["waits"].as_u64() > Some(0));
    program.close();
    let said = program.line();
    let held: Vec<&str> = said.split(' ').skip(1).collect();
    assert!(held.len() == 2 && held[0] == held[1], "{said}");
    assert!(program.finish().1.success());
}

#[test]
fn what_cannot_be_done_is_said() {
    if !is_possible() {
        return;
    }
    let stat = target_with("slow_holder", &["-static"]).expect("it builds");
    let stat = stat.to_str().expect("text");
    let refused = |through: &[&str], options: &[&str], program: &str, words: &[&str]| {
        let mut tiptoe = Command::new(through[0]);
        tiptoe.args(&through[1..]).arg(command().get_program());
        let done = output(tiptoe.arg("lock").args(options).args(["--", program, "10"]));
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(2), "{said}");
        for word in words {
            assert!(said.contains(word), "no `{word}` in {said}");
        }
    };
    refused(
        &["env"],
        &["--via", "agent"],
        stat,
        &["statically linked program", "`--via kernel`"],
    );
    if let Ok(small) = target_with("slow_holder", &["-m32"]) {
        let small = small.to_str().expect("text");
        refused(&["env"], &[], small, &["is a 32-bit program"]);
    }
    let hidden = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        "umount -l /sys/kernel/tracing; umount -l /sys/kernel/debug 2>/dev/null; exec \"$0\" \"$@\"",
    ];
    refused(
        &hidden,
        &[],
        stat,
        &["tracefs is not mounted", "mount -t tracefs"],
    );
}

#[test]
fn the_agent_of_another_tiptoe_is_no_lock() {
    if !is_possible() {
        return;
    }
    let mut program = Process::waiting(&target("contended"), &["mutex", "2000"]);
    let first = Probe::lock().attach(&[program.pid()]);
    first.wait_ready();
    let second = Probe::lock().attach(&[program.pid()]);
    second.wait_ready();
    program.go();
    let said = program.line();
    assert!(said.starts_with("done "), "{said:?}");
    // When the first tiptoe ends, its agent (library in the program) makes futex calls.
    first.interrupt();
    let report = second.interrupt();
    assert!(
        notes(&report).contains("another tiptoe traces process"),
        "{}",
        notes(&report)
    );
    assert!(!rows(&report).is_empty(), "{:#}", report.value);
    let text = report.value["locks"].to_string();
    assert!(!text.contains("tiptoe-agent"), "{:#}", report.value);
    assert_eq!(report.value["locks"]["unfinished"], 0, "{:#}", report.value);
    let (_, status) = program.finish();
    assert!(status.success(), "{status}");
}
