//! The session's serialized form is a contract: its keys, and that it reads back.

use tiptoe_event::{Cost as UnitCost, Reading};
use tiptoe_session::{Cost, Event, Part, Process, Refusal, Session, Via};

fn session() -> Session {
    let reading = Reading {
        count: 1000,
        lost: 2,
        time_enabled_ns: 2_000_000_000,
        time_running_ns: 1_000_000_000,
        ..Reading::default()
    };
    let mut event = Event::new("uprobe:redis-server:dictFind", Via::Agent, reading);
    event.cost_ns = 1500.0;
    let mut session = Session::new(vec!["redis-server".into()]);
    session.cost = Cost::estimated(
        1000,
        UnitCost::between(1.0, 1.5, 2.0).times(1000),
        1_000_000,
    );
    session.events.push(event);
    session
}

#[test]
fn the_documented_keys() {
    let json = serde_json::to_string(&Session {
        tiptoe: "1".into(),
        ..session()
    })
    .unwrap();
    assert_eq!(
        json,
        "{\"tiptoe\":\"1\",\"command\":[\"redis-server\"],\"events\":[{\
         \"event\":\"uprobe:redis-server:dictFind\",\"via\":\"agent\",\"count\":1000,\"lost\":2,\
         \"time_enabled_ns\":2000000000,\"time_running_ns\":1000000000,\"cost_ns\":1500.0}],\
         \"cost\":{\"fraction\":0.0015,\"low\":0.001,\"high\":0.002,\"basis\":\"estimated\",\
         \"hits\":1000,\"unit_ns\":1.5,\"unit_low_ns\":1.0,\"unit_high_ns\":2.0},\
         \"targets\":[],\"started_unix_ns\":0,\"duration_ns\":0,\"cpu_ns\":0}"
    );
}

#[test]
fn it_reads_back_and_tolerates_what_is_missing() {
    let mut whole = session();
    whole.events[0].by.push(Part::new("io_thd_1", 10));
    whole.refusals.push(Refusal::new(
        "uprobe:libc.so.6:dlsym",
        "looks at its own caller",
    ));
    whole.targets.push(Process {
        pid: 7,
        comm: "redis-server".into(),
    });
    whole.notes.push("the target was replaced by exec".into());
    whole.intervals.push(whole.as_interval(1_000_000_000));
    let json = serde_json::to_string(&whole).unwrap();
    assert_eq!(serde_json::from_str::<Session>(&json).unwrap(), whole);
    assert_eq!(
        serde_json::from_str::<Session>("{}").unwrap(),
        Session::default()
    );
}

#[test]
fn counts_are_scaled_only_when_asked() {
    let session = session();
    assert_eq!(session.events[0].count, 1000);
    assert_eq!(session.events[0].scaled(), 2000);
    assert_eq!(session.total(), 1000);
    assert_eq!(Cost::estimated(0, UnitCost::default(), 0), Cost::default());
}
