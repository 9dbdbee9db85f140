//! Contended locks of programs: every futex call is told of, and told right.

use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use tiptoe_tests::memory::patched_bytes;
use tiptoe_tests::process::wait_until;
use tiptoe_tests::{Futexes, Probe, Process, Report, is_root, scaled, skipped, target};

/// A kind of lock, as the target has it; the type that is told, and the variable.
const KINDS: [(&str, &str, &str); 20] = [
    ("mutex", "mutex", "hot_mutex"),
    ("recursive", "mutex", "hot_mutex"),
    ("errorcheck", "mutex", "hot_mutex"),
    ("adaptive", "mutex", "hot_mutex"),
    ("robust", "mutex", "hot_mutex"),
    ("inheriting", "mutex", "hot_mutex"),
    ("shared", "mutex", "hot_mutex"),
    ("timed", "mutex", "hot_mutex"),
    ("rwlock", "rwlock", "hot_rwlock"),
    ("rwtimed", "rwlock", "hot_rwlock"),
    ("cond", "condition", "hot_cond"),
    ("condtimed", "condition", "hot_cond"),
    ("sem", "semaphore", "hot_sems"),
    ("semtimed", "semaphore", "hot_sems"),
    ("barrier", "barrier", "hot_barrier"),
    ("once", "once", "hot_once"),
    ("join", "join", ""),
    ("stdio", "libc's own", ""),
    ("malloc", "libc's own", ""),
    ("syscall", "futex", "hot_word"),
];

/// A program that contends for locks of one kind, with tiptoe attached; what it saw, and the
/// waits and wakes as the kernel counted them.
fn contended(kind: &str, rounds: u64) -> Option<(Report, [u64; 2])> {
    let mut program = Process::waiting(&target("contended"), &[kind, &rounds.to_string()]);
    let pid = program.pid();
    let ours = Probe::lock().attach(&[pid]);
    wait_until("the patches", Duration::from_secs(20), || {
        let before = patched_bytes(pid);
        sleep(Duration::from_millis(100));
        before > 100 && before == patched_bytes(pid)
    });
    // The agent's own thread is none that the first one starts from now on.
    let Some(kernel) = is_root().then(|| Futexes::of(pid)).flatten() else {
        skipped(
            "futex calls",
            "needs root and the tracepoints of system calls",
        );
        return None;
    };
    program.go();
    let said = program.line();
    assert!(said.starts_with("done "), "{kind}: {said:?}");
    let counts = kernel.counts();
    let report = ours.interrupt();
    let (_, status) = program.finish();
    assert!(status.success(), "{kind}: {status}");
    Some((report, counts))
}

fn rows(report: &Report) -> &[Value] {
    let rows = report.value["locks"]["rows"].as_array();
    rows.expect("the locks").as_slice()
}

#[test]
fn every_kind_is_counted_as_the_kernel_counts_it() {
    for (kind, is, named) in KINDS {
        let rounds = if kind == "join" {
            200
        } else {
            scaled(2_000_000)
        };
        let Some((report, [waits, wakes])) = contended(kind, rounds) else {
            return;
        };
        let locks = &report.value["locks"];
        let told = [&locks["waits"], &locks["wakes"]].map(|count| count.as_u64());
        let main_waits = report.value["locks"]["unfinished"].as_u64();
        assert_eq!(told, [waits, wakes].map(Some), "{kind}: {:#}", report.value);
        assert_eq!(main_waits, Some(0), "{kind}: {:#}", report.value);
        if waits == 0 && kind == "malloc" {
            continue; // it spins no longer than others hold it
        }
        let mine = |row: &&Value| {
            let lock = row["lock"].as_str().unwrap_or_default();
            row["type"] == is && lock.contains(named)
        };
        let found = rows(&report).iter().find(mine);
        assert!(found.is_some(), "{kind}: {:#}", report.value);
    }
}

/// Attached and detached again and again while threads wait and wake: no wake is lost, and nobody holds the lock
/// together with another.
#[test]
fn threads_that_wait_are_attached_to_and_let_go() {
    for kind in ["mutex", "raw", "sem", "cond", "malloc"] {
        let endless = matches!(kind, "mutex" | "raw" | "malloc");
        let rounds = if endless { 0 } else { scaled(2_000_000) };
        let kind = if kind == "raw" { "syscall" } else { kind };
        let mut program = Process::waiting(&target("contended"), &[kind, &rounds.to_string()]);
        program.go();
        for _ in 0..scaled(1000) {
            let ours = Probe::lock().with(&["--duration", "0.01"]);
            let run = ours.attach_and_wait(&[program.pid()]);
            if !program.lives() {
                break;
            }
            assert!(run.good().value["locks"].is_object());
        }
        program.close();
        let said = program.line();
        let held: Vec<u64> = said
            .split(' ')
            .filter_map(|word| word.parse().ok())
            .collect();
        assert_eq!(held.len(), 2, "{kind}: {said:?}");
        if matches!(kind, "mutex" | "syscall") {
            assert_eq!(held[0], held[1], "{kind}");
        }
        let (_, status) = program.finish();
        assert!(status.success(), "{kind}: {status}");
    }
}

/// Threads that are cancelled where they wait unwind through libc as without us.
#[test]
fn cancelled_waits_unwind() {
    for name in ["ret_cancel", "ret_cancel_cc"] {
        for mode in ["exit", "cond", "read", "pause", "test", "async", "main"] {
            let program = target(name);
            let alone = std::process::Command::new(&program).arg(mode).output();
            let alone = alone.expect("it runs");
            let run = Probe::lock().run(&program, &[mode]);
            run.good();
            assert_eq!(run.stdout, alone.stdout, "{name} {mode}");
        }
    }
}

/// Waits with a time-out give what they give without us.
#[test]
fn waits_with_a_time_out_keep_their_time() {
    let run = Probe::lock().run(&target("blocking"), &["3"]);
    run.good();
}

/// The lock, who waited for it, and who held it.
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
    let share = row["blame"][0]["total_ns"].as_u64().unwrap_or(0) * 2;
    assert!(share > row["total_ns"].as_u64().unwrap_or(0), "{row:#}");
    // What the program measured itself.
    let own: u64 = run.expected().0["waited_ns"];
    let told = row["total_ns"].as_u64().unwrap_or(0);
    assert!(told <= own && told > own / 2, "{told} of {own}");
}

/// A process that hangs is asked who waits for whom; nothing is patched.
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
    }
    let rings = now["deadlocks"].as_array().expect("a ring");
    assert_eq!(rings.len(), 1, "{now:#}");
    let ring = rings[0].as_array().expect("threads");
    assert!(ring.len() == 2 && !ring.contains(&third["tid"]), "{now:#}");
    assert_eq!(patched_bytes(program.pid()), 0);
}
