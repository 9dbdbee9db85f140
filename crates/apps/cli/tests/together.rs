//! Several instruments (ways to count) in one request share tiptoe's library in the target, its memory and a clock.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd;

use tiptoe_collector::{Observer, Outcome, Request, RequestTarget};
use tiptoe_event::{Event, Via};
use tiptoe_session::{Call, Cost, Interval, Note, Session};
use tiptoe_tests::breakpoint::RegisterLock;
use tiptoe_tests::{is_root, skipped, target};

const THREADS: u64 = 4;
const ROUNDS: u64 = 200;

struct Silent;

impl Observer for Silent {
    fn interval(&mut self, _: &Interval) {}
    fn calls(&mut self, _: &[Call<'_>]) {}
    fn note(&mut self, _: &Note) {}
}

/// Replaces the stdin that the program inherits by an empty one, because the program exits at the end of stdin.
fn close_input() {
    let nothing = File::open("/dev/null").expect("it is there");
    // SAFETY: both descriptors are open, and no test reads stdin.
    let replaced = unsafe { libc::dup2(nothing.as_raw_fd(), libc::STDIN_FILENO) };
    assert_eq!(replaced, libc::STDIN_FILENO);
}

fn observed(events: &[&str], rounds: u64) -> Session {
    close_input();
    let program = target("contended").into_os_string();
    let words = ["mutex".into(), OsString::from(rounds.to_string())];
    let events = events.iter().map(|text| Event::parse(text));
    let request = Request {
        agent: tiptoe_image::AGENT,
        events: events.collect::<Result<_, _>>().expect("events"),
        target: RequestTarget::Command([program].into_iter().chain(words).collect()),
        via: Via::Agent,
        ..Request::default()
    };
    let outcome = tiptoe_collector::run(&request, &mut Silent);
    let Outcome {
        session,
        exit_status,
    } = outcome.expect("all of them run");
    assert_eq!(exit_status, Some(0), "{:?}", session.notes);
    session
}

fn count(session: &Session, beginning: &str) -> u64 {
    let mut events = session.events.iter();
    let event = events.find(|event| event.event.starts_with(beginning));
    let event = event.unwrap_or_else(|| panic!("no {beginning} in {:?}", session.events));
    assert!(!event.at_least, "{:?}", session.notes);
    event.count
}

fn is_sum(cost: &Cost, parts: &[u64]) {
    assert_eq!(cost.hits, parts.iter().sum::<u64>(), "{cost:?}");
    assert!(cost.unit_ns > 0.0 && cost.fraction > 0.0, "{cost:?}");
}

#[test]
fn a_probe_locks_a_watch_and_the_kernels_locks_share_one_run() {
    if !is_root() {
        return skipped("instruments in one run", "not root");
    }
    let _registers = RegisterLock::wait();
    let events = ["uprobe:hold", "ulock:*", "mem:counted", "klock:*"];
    let session = observed(&events, ROUNDS);
    let all = THREADS * ROUNDS;
    assert_eq!(count(&session, "uprobe:contended:hold"), all);
    assert_eq!(count(&session, "mem:contended:counted"), all);
    let waits = session.waits.as_ref().expect("waits");
    let in_kernel: u64 = waits.rows.iter().map(|row| row.count).sum();
    assert_eq!(count(&session, "klock:*"), in_kernel);
    let (locks, watch) = (session.locks.as_ref(), session.watch.as_ref());
    let (locks, watch) = (locks.expect("locks"), watch.expect("a watch"));
    assert!(
        locks.rows.iter().any(|row| row.lock.contains("hot_mutex")),
        "{locks:?}"
    );
    assert_eq!(watch.form.by, "agent");
    let accesses: u64 = watch.rows.iter().map(|row| row.count).sum();
    assert_eq!(accesses, all);
    assert_eq!(session.targets.len(), 1);
    let programs = session.cost.programs.expect("the kernel's locks have cost");
    is_sum(
        &session.cost,
        &[2 * all, locks.waits + locks.wakes, programs.runs],
    );
}

#[test]
fn a_probe_and_a_watch_share_one_segment() {
    if !is_root() {
        return skipped("instruments in one run", "not root");
    }
    let _registers = RegisterLock::wait();
    let session = observed(&["mem:counted", "uprobe:hold", "uretprobe:plain"], ROUNDS);
    let all = THREADS * ROUNDS;
    for beginning in ["uprobe:contended:hold", "uretprobe:contended:plain", "mem:"] {
        assert_eq!(count(&session, beginning), all, "{beginning}");
    }
    assert!(session.locks.is_none() && session.waits.is_none());
    is_sum(&session.cost, &[3 * all]);
}

/// Events that cannot count together must be refused before a command starts or a process is attached to.
#[test]
fn what_cannot_count_together_is_refused() {
    let own = std::process::id();
    let cases = [
        (["uprobe:hold", "cycles"], Via::Auto, "counters"),
        (["ulock:*", "ulock:*"], Via::Auto, "twice"),
        (["uprobe:hold", "mem:counted"], Via::Kernel, "variables"),
        (["uprobe:hold", "mem:counted"], Via::Auto, "one process"),
    ];
    for (events, via, word) in cases {
        let events = events.into_iter().map(Event::parse);
        let request = Request {
            events: events.collect::<Result<_, _>>().expect("events"),
            target: RequestTarget::Pids(vec![own, own]),
            via,
            ..Request::default()
        };
        let refused = tiptoe_collector::run(&request, &mut Silent).expect_err("nothing began");
        assert!(refused.to_string().contains(word), "{refused}");
    }
}
