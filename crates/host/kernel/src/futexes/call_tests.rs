//! Runs the BPF programs on the futex calls of this process.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::futex;

use super::{Calls, Futexes, FutexesWanted};

/// Held by each test, because tests of one process would count each other's calls.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn count(wanted: FutexesWanted, act: impl FnOnce()) -> Option<Futexes> {
    let loaded = Futexes::load(wanted);
    let loaded = loaded.and_then(|mut futexes| futexes.start().map(|()| futexes));
    match loaded {
        Ok(mut futexes) => {
            act();
            futexes.stop();
            Some(futexes)
        }
        Err(error) => {
            crate::skipped::skipped("futex calls in the kernel", &error.to_string());
            None
        }
    }
}

fn us(by_thread: bool) -> FutexesWanted {
    FutexesWanted {
        pid: std::process::id(),
        by_thread,
        before_exec: false,
        beside_agent: false,
        agent_thread: None,
    }
}

fn wait_while(word: &AtomicU32, value: u32) {
    while word.load(Ordering::SeqCst) == value {
        let _ = futex::wait(word, futex::Flags::PRIVATE, value, None);
    }
}

#[test]
fn each_end_of_a_wait_is_counted_separately() {
    let _alone = ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    static WORD: AtomicU32 = AtomicU32::new(1);
    let Some(futexes) = count(us(true), || {
        let private = futex::Flags::PRIVATE;
        let changed = futex::wait(&WORD, private, 7, None);
        assert_eq!(changed, Err(rustix::io::Errno::AGAIN));
        let soon = Duration::from_millis(2).try_into().expect("a time");
        let late = futex::wait(&WORD, private, 1, Some(&soon));
        assert_eq!(late, Err(rustix::io::Errno::TIMEDOUT));
        let waker = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            WORD.store(2, Ordering::SeqCst);
            futex::wake(&WORD, private, 1).expect("a wake");
        });
        wait_while(&WORD, 1);
        waker.join().expect("it ends");
    }) else {
        return;
    };
    let rows = futexes.read().expect("rows");
    let here = rows
        .iter()
        .filter(|(key, _)| key.address == (&raw const WORD) as u64);
    let rows: Vec<_> = here.map(|(_, row)| row).collect();
    let sum =
        |field: fn(&super::FutexCounts) -> u64| rows.iter().map(|row| field(row)).sum::<u64>();
    let ends = [
        sum(|r| r.ends.at_once),
        sum(|r| r.ends.timed_out),
        sum(|r| r.ends.woken),
    ];
    assert_eq!(ends, [1, 1, 1], "{rows:#?}");
    assert_eq!([sum(|r| r.calls()), sum(|r| r.ends.other)], [3, 0]);
    assert_eq!(rows.iter().map(|row| row.times().total()).sum::<u64>(), 2);
    assert!(sum(|r| r.slept_ns) > 20_000_000, "{rows:#?}");
    let blamed: Vec<_> = rows.iter().flat_map(|row| row.wakers()).collect();
    assert_eq!(blamed.len(), 1, "{rows:#?}");
    assert!(blamed[0].count == 1 && blamed[0].total_ns > 15_000_000);
    let Calls { waits, wakes } = futexes.calls().expect("calls");
    assert!(waits >= 3 && wakes >= 1);
    assert!(futexes.times().expect("times").runs >= waits + wakes);
}

#[test]
fn calls_of_an_agents_thread_are_not_counted() {
    let _alone = ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    static WORD: AtomicU32 = AtomicU32::new(1);
    let own = rustix::thread::gettid().as_raw_nonzero().get();
    for beside_agent in [false, true] {
        let wanted = FutexesWanted {
            beside_agent,
            agent_thread: Some(own.cast_unsigned()),
            ..us(false)
        };
        let Some(futexes) = count(wanted, || {
            let changed = || futex::wait(&WORD, futex::Flags::PRIVATE, 7, None);
            changed().expect_err("it differs");
            let other = std::thread::spawn(move || changed().expect_err("it differs"));
            other.join().expect("it ends");
        }) else {
            return;
        };
        let rows = futexes.read().expect("rows");
        let here = rows
            .iter()
            .filter(|(key, _)| key.address == (&raw const WORD) as u64);
        let at_once = here.map(|(_, row)| row.ends.at_once).sum::<u64>();
        assert_eq!(at_once, 1, "{rows:#?}");
    }
}
