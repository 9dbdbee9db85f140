//! The serialized form is a contract: keys must stay, and a session must read back unchanged.

use tiptoe_event::{Cost as UnitCost, Histogram, Reading};
use tiptoe_session::{
    AddressSpace, Cost, CountPart, Ends, Event, Interval, KernelNote, Latency, Process, Refusal,
    Session, Via, argument_key,
};

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
        "{\"tiptoe\":\"1\",\"version\":2,\"command\":[\"redis-server\"],\"events\":[{\
         \"event\":\"uprobe:redis-server:dictFind\",\"via\":\"agent\",\"count\":1000,\"lost\":2,\
         \"time_enabled_ns\":2000000000,\"time_running_ns\":1000000000,\"cost_ns\":1500.0}],\
         \"cost\":{\"fraction\":0.0015,\"low\":0.001,\"high\":0.002,\"basis\":\"estimated\",\
         \"hits\":1000,\"unit_ns\":1.5,\"unit_low_ns\":1.0,\"unit_high_ns\":2.0},\
         \"targets\":[],\"started_unix_ns\":0,\"duration_ns\":0,\"cpu_ns\":0}"
    );
}

fn timed() -> (Reading, Histogram) {
    let mut times = Histogram::default();
    [0, 1000, 1025].iter().for_each(|ns| times.record(*ns));
    let ends = tiptoe_event::Ends {
        returns: 3,
        left: 1,
        inside: 1,
        only_counted: 1,
    };
    let latency = tiptoe_event::Latency {
        total_ns: 2025,
        self_ns: 1500,
        max_ns: 1025,
    };
    let reading = Reading {
        count: 6,
        ends: Some(ends),
        latency: Some(latency),
        ..Reading::default()
    };
    (reading, times)
}

#[test]
fn the_keys_of_a_timed_event_are_beside_the_others() {
    let (reading, times) = timed();
    let event = Event::new("uprobe:f", Via::Agent, reading).with_histogram(&times);
    assert_eq!(event.latency.as_ref().map(|l| l.mean_ns()), Some(675.0));
    let json = serde_json::to_string(&event).unwrap();
    assert_eq!(
        json,
        "{\"event\":\"uprobe:f\",\"via\":\"agent\",\"count\":6,\"lost\":0,\
         \"time_enabled_ns\":0,\"time_running_ns\":0,\"cost_ns\":0.0,\
         \"returns\":3,\"left\":1,\"inside\":1,\"only_counted\":1,\"total_ns\":2025,\"self_ns\":1500,\
         \"histogram\":{\"scale\":3,\"zero_count\":1,\"offset\":79,\"counts\":[1,1],\
         \"p50_ns\":1024,\"p90_ns\":1025,\"p99_ns\":1025,\"max_ns\":1025}}"
    );
    assert_eq!(serde_json::from_str::<Event>(&json).unwrap(), event);
    let plain = Event::new("uprobe:f", Via::Agent, Reading::default()).with_histogram(&times);
    assert_eq!((plain.ends, plain.latency), (None, None));
}

#[test]
fn returns_that_are_not_timed_have_the_keys_of_their_ends_alone() {
    let (timed, times) = timed();
    let reading = Reading {
        count: 3,
        latency: None,
        ..timed
    };
    let event = Event::new("uretprobe:f", Via::Agent, reading).with_histogram(&times);
    assert_eq!(event.latency, None);
    let json = serde_json::to_string(&event).unwrap();
    assert_eq!(
        json,
        "{\"event\":\"uretprobe:f\",\"via\":\"agent\",\"count\":3,\"lost\":0,\
         \"time_enabled_ns\":0,\"time_running_ns\":0,\"cost_ns\":0.0,\
         \"returns\":3,\"left\":1,\"inside\":1,\"only_counted\":1}"
    );
    assert_eq!(serde_json::from_str::<Event>(&json).unwrap(), event);
}

#[test]
fn arguments_are_read_as_numbers_or_as_addresses() {
    for (value, key) in [
        (0, "arg0=0"),
        (65_536, "arg0=65536"),
        (u64::MAX, "arg0=-1"),
        (65_537, "arg0=0x10001"),
        (0x7fff_dead_beef, "arg0=0x7fffdeadbeef"),
    ] {
        assert_eq!(argument_key(0, value), key);
    }
}

#[test]
fn it_reads_back_and_tolerates_what_is_missing() {
    let mut whole = session();
    whole.events[0].by.push(CountPart::new("io_thd_1", 10));
    let (reading, times) = timed();
    let latency = Latency::new(reading.latency.unwrap(), &times);
    let ends = Ends::from(reading.ends.unwrap());
    let part = CountPart::new(argument_key(0, 3), 6)
        .with_ends(ends)
        .with_latency(latency);
    let mut event = Event::new("uprobe:f", Via::Agent, reading).with_histogram(&times);
    event.by.push(part);
    whole.events.push(event);
    whole.budget = Some(0.01);
    whole.refusals.push(Refusal::new(
        "uprobe:libc.so.6:dlsym",
        "looks at its own caller",
    ));
    whole.targets.push(Process {
        pid: 7,
        comm: "redis-server".into(),
        address_space: Some(AddressSpace {
            speculative: 40,
            mappings: 12,
            ..AddressSpace::default()
        }),
    });
    whole.notes.push(KernelNote::Unsplit.into());
    whole.sentences.push("the kernel counts".into());
    whole.intervals.push(Interval {
        at_ns: 2_000_000_000,
        duration_ns: 1_000_000_000,
        counts: vec![CountPart::new("uprobe:redis-server:dictFind", 1000)],
    });
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
