//! The serialized form of waits for the kernel's locks is a contract.

use tiptoe_event::Histogram as Times;
use tiptoe_session::{Cost, Dropped, Histogram, Mode, Outcome, Programs, Session, Wait, Waits};

fn waits() -> Waits {
    let mut times = Times::default();
    times.record(1000);
    Waits {
        by: "process".into(),
        rows: vec![Wait {
            kind: "mmap_lock".into(),
            mode: Mode::Write,
            outcome: Outcome::Failed,
            key: Some("42 redis".into()),
            callsite: Some("vm_mmap_pgoff+0xe0".into()),
            callsites: 1,
            callers: Vec::new(),
            count: 1,
            total_ns: 1000,
            histogram: Histogram::new(&times, 1000),
        }],
        unfinished: 1,
        drops: vec![Dropped {
            reason: "why".into(),
            count: 2,
        }],
    }
}

#[test]
fn the_documented_keys() {
    let json = serde_json::to_string(&waits()).unwrap();
    assert_eq!(
        json,
        "{\"by\":\"process\",\"rows\":[{\"type\":\"mmap_lock\",\"mode\":\"write\",\
         \"outcome\":\"failed\",\"key\":\"42 redis\",\"callsite\":\"vm_mmap_pgoff+0xe0\",\
         \"callsites\":1,\"count\":1,\"total_ns\":1000,\
         \"histogram\":{\"scale\":3,\"zero_count\":0,\"offset\":79,\"counts\":[1],\
         \"p50_ns\":1000,\"p90_ns\":1000,\"p99_ns\":1000,\"max_ns\":1000}}],\
         \"unfinished\":1,\"drops\":[{\"reason\":\"why\",\"count\":2}]}"
    );
}

#[test]
fn it_reads_back() {
    let programs = Programs {
        runs: 10,
        run_ns: 5000,
        all_runs: Some(20),
        all_run_ns: Some(7000),
    };
    let session = Session {
        waits: Some(waits()),
        cpus: Some(2),
        cost: Cost::measured(programs, 1_000_000),
        ..Session::default()
    };
    let cost = &session.cost;
    let shares = [cost.fraction, cost.low, cost.high];
    assert_eq!(shares, [0.005, 0.005, 0.007]);
    let json = serde_json::to_string(&session).unwrap();
    assert_eq!(serde_json::from_str::<Session>(&json).unwrap(), session);
}
