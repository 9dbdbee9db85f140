//! Contended locks of programs: all futex calls are reported, with the right lock and callers.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tiptoe_tests::memory::patched_bytes;
use tiptoe_tests::process::output;
use tiptoe_tests::{Debian, Probe, Process, Report, command, scaled, skipped, target};

pub(crate) fn rows(report: &Report) -> &[Value] {
    let rows = report.value["locks"]["rows"].as_array();
    rows.expect("the locks").as_slice()
}

/// Asserts that no wake is lost, and that only one thread at a time holds the lock.
fn check_let_go(target: &Path, kinds: &[&str]) {
    for kind in kinds {
        let mut program = Process::waiting(target, &[kind, "0"]);
        program.go();
        for _ in 0..scaled(500) {
            let ours = Probe::lock().with(&["--duration", "0.01"]);
            let run = ours.attach_and_wait(&[program.pid()]);
            assert!(run.good().value["locks"].is_object());
        }
        program.close();
        let said = program.line();
        let held: Vec<u64> = said
            .split(' ')
            .filter_map(|word| word.parse().ok())
            .collect();
        assert_eq!(held.len(), 2, "{kind}: {said:?}");
        if matches!(*kind, "mutex" | "syscall") {
            assert_eq!(held[0], held[1], "{kind}");
        }
        let (_, status) = program.finish();
        assert!(status.success(), "{kind}: {status}");
    }
}

#[test]
fn threads_that_wait_continue_after_attach_and_detach() {
    let kinds = [
        "mutex", "syscall", "sem", "cond", "rwlock", "barrier", "malloc",
    ];
    check_let_go(&target("contended"), &kinds);
}

#[test]
#[ignore = "nightly: another release of Debian"]
fn threads_of_other_releases_continue_after_attach_and_detach() {
    for release in ["trixie", "bullseye"] {
        match Debian::new(release) {
            Ok(root) => check_let_go(&root.target("contended"), &["sem", "cond"]),
            Err(why) => skipped(release, &why),
        }
    }
}

fn check_cancelled(program: &Path) {
    for mode in ["exit", "cond", "read", "pause", "test", "async", "main"] {
        let alone = Command::new(program).arg(mode).output();
        let alone = alone.expect("it runs");
        let run = Probe::lock().run(program, &[mode]);
        run.good();
        assert_eq!(run.stdout, alone.stdout, "{} {mode}", program.display());
    }
}

#[test]
fn cancelled_waits_unwind() {
    for name in ["ret_cancel", "ret_cancel_cc"] {
        check_cancelled(&target(name));
    }
}

/// glibc 2.41 checks the address at which a thread is cancelled. C++ on bullseye would need the release's compiler.
#[test]
#[ignore = "nightly: another release of Debian"]
fn cancelled_waits_of_other_releases_unwind() {
    for (release, names) in [
        ("trixie", &["ret_cancel", "ret_cancel_cc"][..]),
        ("bullseye", &["ret_cancel"]),
    ] {
        match Debian::new(release) {
            Ok(root) => names
                .iter()
                .for_each(|name| check_cancelled(&root.target(name))),
            Err(why) => skipped(release, &why),
        }
    }
}

#[test]
fn waits_with_a_time_out_keep_their_time() {
    let run = Probe::lock().run(&target("blocking"), &["3"]);
    run.good();
}

#[test]
fn a_slow_holder_is_named() {
    let program = target("slow_holder");
    let run = Probe::lock().run(&program, &["300"]);
    let report = run.good();
    let row = &rows(report)[0];
    assert_eq!(row["lock"], "slow_holder:cache_lock", "{row:#}");
    let site = row["callsite"].as_str().unwrap_or_default();
    assert!(site.starts_with("slow_holder:quick+"), "{row:#}");
    let blamed = row["blame"][0]["callsite"].as_str().unwrap_or_default();
    assert!(blamed.starts_with("slow_holder:slow_holder+"), "{row:#}");
    let total = row["total_ns"].as_u64().unwrap_or(0);
    let blamed = row["blame"].as_array().into_iter().flatten();
    let blamed = blamed.filter_map(|blame| blame["total_ns"].as_u64());
    let worst = blamed.max().expect("a holder of the lock");
    assert_eq!(row["blame"][0]["total_ns"], worst, "{row:#}");
    // The program reads its clock outside the call, so the program's time is longer.
    let own = run.expected().0["waited_ns"];
    assert!(total > 0 && total <= own, "{total} of {own}");
}

#[test]
#[ignore = "nightly: asserts a time"]
fn a_slow_holder_is_blamed_for_most_of_the_waiting_time() {
    let run = Probe::lock().run(&target("slow_holder"), &["300"]);
    let row = &rows(run.good())[0];
    let share = row["blame"][0]["total_ns"].as_u64().unwrap_or(0) * 2;
    let total = row["total_ns"].as_u64().unwrap_or(0);
    assert!(share > total, "{row:#}");
    let own: u64 = run.expected().0["waited_ns"];
    assert!(total <= own && total > own / 2, "{total} of {own}");
}

#[test]
fn a_deadlock_is_found() {
    let mut program = Process::waiting(&target("deadlock"), &[]);
    program.go();
    assert_eq!(program.line(), "stuck");
    let run = Probe::lock()
        .with(&["--now"])
        .attach_and_wait(&[program.pid()]);
    let now = &run.good().value["now"];
    let waits = now["waits"].as_array().expect("they wait");
    let of = |comm: &str| waits.iter().find(|wait| wait["comm"] == comm).expect(comm);
    let [first, second, third] = ["first", "second", "third"].map(of);
    for (wait, lock, holder) in [
        (first, "deadlock:lock_b", second),
        (second, "deadlock:lock_a", first),
        (third, "deadlock:lock_a", first),
    ] {
        assert_eq!(wait["lock"], lock, "{now:#}");
        assert_eq!(wait["holder"], holder["tid"], "{now:#}");
        assert_eq!(wait["type"], "mutex", "{now:#}");
        let site = wait["callsite"].as_str().unwrap_or_default();
        assert!(site.starts_with("deadlock:take+"), "{now:#}");
        assert!(wait["asleep_ns"].is_u64(), "how long: {now:#}");
    }
    let rings = now["deadlocks"].as_array().expect("a ring");
    assert_eq!(rings.len(), 1, "{now:#}");
    let ring = rings[0].as_array().expect("threads");
    assert!(ring.len() == 2 && !ring.contains(&third["tid"]), "{now:#}");
    assert_eq!(patched_bytes(program.pid()), 0);
}

#[test]
fn unnamed_locks_are_named_by_their_location() {
    let name = format!("tiptoe-locks-{}", std::process::id());
    let path = std::env::temp_dir().join(&name);
    let file = path.to_str().expect("a name");
    let mut program = Process::start(Command::new(target("lock_places")).arg(file));
    assert_eq!(program.line(), "ready");
    let first = program.pid();
    let ours = Probe::lock().attach(&[first]);
    ours.wait_ready();
    program.go();
    let said = program.line();
    let holder = said.strip_prefix("waited ").expect(&said).to_owned();
    let rows = ours.interrupt().value["locks"]["rows"].clone();
    program.go();
    assert_eq!(program.line(), "stuck");
    let now = Probe::lock().with(&["--now"]).attach_and_wait(&[first]);
    let now = now.good().value["now"]["waits"].clone();
    assert_eq!(now.as_array().map(Vec::len), Some(5), "{now:#}");
    for locks in [&now, &rows] {
        let locks = locks.as_array().expect("waits").iter();
        let locks: Vec<&str> = locks.filter_map(|wait| wait["lock"].as_str()).collect();
        let places = [
            format!("stack of thread {holder} holder"),
            format!("stack of thread {first} lock_places"),
            name.clone(),
            "[heap]".to_owned(),
        ];
        for place in places {
            let ends = |lock: &&&str| {
                lock.split_once(' ')
                    .is_some_and(|(_, at)| at.starts_with(&place))
            };
            assert!(
                locks.iter().any(|lock| ends(&lock)),
                "{place} in {locks:#?}"
            );
        }
    }
    let all = now.as_array().expect("waits");
    let writer = all
        .iter()
        .find(|wait| wait["type"] == "rwlock")
        .expect("one writes");
    assert_eq!(
        (&writer["readers"], &writer["mode"]),
        (&2.into(), &"write".into()),
        "{now:#}"
    );
    let mut rows = rows.as_array().expect("rows").iter();
    let writes = rows
        .find(|row| row["type"] == "rwlock")
        .expect("one writes");
    assert!(writes["slept"].as_u64() >= Some(3), "{writes:#}");
    assert_eq!(writes["readers"]["average"], 2.0, "{writes:#}");
    assert_eq!(writes["readers"]["most"], 2, "{writes:#}");
    program.close();
    assert!(program.finish().1.success());
    std::fs::remove_file(&path).expect("it was there");
}

/// The threads slept for 50 ms before the program printed anything.
#[test]
#[ignore = "nightly: asserts a time"]
fn a_deadlock_has_its_age() {
    let began = std::time::Instant::now();
    let mut program = Process::waiting(&target("deadlock"), &[]);
    program.go();
    assert_eq!(program.line(), "stuck");
    let now = Probe::lock().with(&["--now"]);
    let now = now.attach_and_wait(&[program.pid()]);
    let now = &now.good().value["now"];
    for wait in now["waits"].as_array().expect("they wait") {
        let asleep = wait["asleep_ns"]
            .as_u64()
            .expect("this kernel says how long");
        assert!(
            asleep > 10_000_000 && asleep < began.elapsed().as_nanos() as u64,
            "{now:#}"
        );
    }
}

#[test]
fn the_number_of_readers_is_reported() {
    let run = Probe::lock().run(&target("readers"), &["5", "20"]);
    let report = run.good();
    let all = rows(report).iter();
    let locks: Vec<_> = all.filter(|row| row["type"] == "rwlock").collect();
    for mode in ["write", "read"] {
        // Readers that meet a holding or waiting writer have a row of their own.
        let has_readers = |row: &&&Value| row["mode"] == mode && !row["readers"].is_null();
        let row = locks.iter().find(has_readers);
        let readers = &row.unwrap_or_else(|| panic!("{mode}: {locks:#?}"))["readers"];
        assert_eq!(readers["most"], 5, "{locks:#?}");
        // On a busy machine a waiter may sleep after some readers left.
        let average = readers["average"].as_f64().expect("a number");
        assert!(average > 1.0 && average <= 5.0, "{locks:#?}");
    }
    let semaphore = rows(report).iter().find(|row| row["type"] == "semaphore");
    assert!(semaphore.expect("they wait")["readers"].is_null());
}

/// Regression: hold times of an adaptive mutex were too long.
#[test]
fn holds_are_timed() {
    let watch = || Probe::lock().with(&["--hold", "cache_lock"]);
    for kind in ["normal", "adaptive"] {
        let run = watch().run(&target("slow_holder"), &["300", kind]);
        let report = run.good();
        let holds = report.value["locks"]["holds"].as_array().expect("holds");
        let held = |site: &str| {
            let from = |hold: &&Value| {
                hold["callsite"]
                    .as_str()
                    .is_some_and(|at| at.starts_with(site))
            };
            let found = holds
                .iter()
                .find(from)
                .unwrap_or_else(|| panic!("{site}: {holds:#?}"));
            assert_eq!(found["lock"], "slow_holder:cache_lock");
            ["count", "total_ns"].map(|what| found[what].as_u64().expect(what))
        };
        let [count, slow_ns] = held("slow_holder:slow_holder+");
        let own = run.expected().0;
        assert_eq!(count, own["holds"]);
        // The program times each hold twice: within it and around it.
        let bounds = own["held_ns"]..=own["rounds_ns"];
        assert!(bounds.contains(&slow_ns), "{kind}: {slow_ns} in {bounds:?}");
        let [count, quick_ns] = held("slow_holder:quick+");
        assert!(count > 0);
        let time = report.value["duration_ns"].as_u64();
        assert!(
            Some(slow_ns + quick_ns) <= time,
            "{kind}: {holds:#?} in {time:?}"
        );
    }
    for (name, why) in [
        ("no_such", "no variable"),
        ("cache_lock+0xffffffffffffffff", "beyond the last address"),
        ("0x10", "no memory is writable"),
    ] {
        let run = Probe::lock()
            .with(&["--hold", name])
            .run(&target("slow_holder"), &["1"]);
        assert!(
            run.status == 2 && run.stderr.contains(why),
            "{name}: {}",
            run.stderr
        );
    }
}

#[test]
#[ignore = "nightly: asserts a time"]
fn holds_are_timed_closely() {
    let run = Probe::lock()
        .with(&["--hold", "cache_lock"])
        .run(&target("slow_holder"), &["300"]);
    let holds = run.good().value["locks"]["holds"].as_array();
    let total_ns = |site: &str| {
        let mut holds = holds.expect("holds").iter();
        let is_it = |hold: &&Value| {
            hold["callsite"]
                .as_str()
                .is_some_and(|at| at.starts_with(site))
        };
        let hold = holds.find(is_it).expect(site);
        hold["total_ns"].as_u64().expect("a time")
    };
    let own = run.expected().0["held_ns"];
    let slow = total_ns("slow_holder:slow_holder+");
    assert!(own <= slow && slow < own + own / 4, "{slow} of {own}");
    let quick = total_ns("slow_holder:quick+");
    assert!(quick < own / 4, "{quick} of {own}");
}

#[test]
fn every_hold_is_counted() {
    const THREADS: u64 = 4;
    let rounds = scaled(100_000);
    for (kind, lock) in [
        ("mutex", "hot_mutex"),
        ("recursive", "hot_mutex"),
        ("adaptive", "hot_mutex"),
        ("spin", "hot_spin"),
        ("timed", "hot_mutex"),
        ("rwlock", "hot_rwlock"),
        ("rwtimed", "hot_rwlock"),
        ("cond", "hot_mutex"),
    ] {
        let mut program = Process::waiting(&target("contended"), &[kind, &rounds.to_string()]);
        let ours = Probe::lock().with(&["--hold", &format!("contended:{lock}")]);
        let ours = ours.attach(&[program.pid()]);
        ours.wait_ready();
        program.go();
        let said = program.line();
        assert!(said.starts_with("done "), "{kind}: {said:?}");
        let report = ours.interrupt();
        assert!(program.finish().1.success(), "{kind}");
        let holds = report.value["locks"]["holds"].as_array();
        let holds = holds.unwrap_or_else(|| panic!("{kind}: {:#}", report.value));
        let sum = |what: &str| -> u64 { holds.iter().filter_map(|hold| hold[what].as_u64()).sum() };
        let count = sum("count");
        if !kind.starts_with("rw") {
            // Regression: spinning counted as holding, so spin locks were held longer than the run.
            let time = report.value["duration_ns"].as_u64();
            assert!(
                Some(sum("total_ns")) <= time,
                "{kind}: {holds:#?} in {time:?}"
            );
        }
        match kind {
            // A thread that waits for the condition retakes the mutex afterwards.
            "cond" => assert!(count >= rounds * THREADS, "{count}"),
            _ => assert_eq!(count, rounds * THREADS, "{kind}: {holds:#?}"),
        }
    }
}

#[test]
fn waits_of_ended_threads_are_not_attributed_to_others() {
    let by_thread = Probe::lock().with(&["--by", "thread"]);
    let run = by_thread.run(&target("short_waiters"), &[]);
    let all = rows(run.good()).iter();
    let mutexes = all.filter(|row| row["type"] == "mutex");
    let mut slept: Vec<_> = mutexes
        .map(|row| {
            let thread = row["lock"].as_str().unwrap_or_default();
            let name = thread.split_once(' ').map_or("", |(_, name)| name);
            (name, row["slept"].as_u64().unwrap_or(0))
        })
        .collect();
    slept.sort_unstable();
    let names: Vec<&str> = slept.iter().map(|(name, _)| *name).collect();
    let want = ["short0", "short1", "short2", "short3", "short4", "short5"];
    assert_eq!(names, want, "{slept:?}");
    assert!(slept.iter().all(|(_, slept)| *slept >= 1), "{slept:?}");
}

#[test]
fn a_deadlock_through_a_join_was_not_reported() {
    let mut programs = [(); 2].map(|()| Process::waiting(&target("join_ring"), &[]));
    for program in &mut programs {
        program.go();
        assert_eq!(program.line(), "stuck");
    }
    let pids = programs.each_ref().map(|program| program.pid().to_string());
    let mut now = command();
    now.args(["lock", "--now", "--json", "-p", &pids.join(",")]);
    let output = output(&mut now);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let reports: Vec<Report> = text.lines().map(Report::parse).collect();
    assert_eq!(reports.len(), 2, "{text}");
    for program in &programs {
        let is_its = |report: &&Report| report.value["targets"][0]["pid"] == program.pid();
        let now = &reports.iter().find(is_its).expect("its report").value["now"];
        let waits = now["waits"].as_array().expect("they wait");
        let of = |comm: &str| waits.iter().find(|wait| wait["comm"] == comm).expect(comm);
        let (first, second) = (of("first"), of("second"));
        assert_eq!(first["type"], "join", "{now:#}");
        assert_eq!(second["lock"], "join_ring:ring_lock", "{now:#}");
        for (wait, other) in [(first, second), (second, first)] {
            assert_eq!(wait["holder"], other["tid"], "{now:#}");
            assert_eq!(wait["holder_comm"], other["comm"], "{now:#}");
        }
        let rings = now["deadlocks"].as_array().expect("a ring");
        assert_eq!(rings.len(), 1, "{now:#}");
        assert!(
            rings[0]
                .as_array()
                .is_some_and(|ring| ring.contains(&program.pid().into()))
        );
    }
}
