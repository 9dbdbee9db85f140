//! Checks whole reports exactly.

use tiptoe_event::{Cost as UnitCost, Reading};
use tiptoe_report::{Options, interval, json, json_line, text};
use tiptoe_session::{
    Cost, CountPart, Event, EventNote, FunctionNote, Interval, Process, Programs, Refusal, Session,
    Via, Wait, Waits,
};

const SECOND: u64 = 1_000_000_000;

fn event(name: &str, via: Via, count: u64) -> Event {
    let reading = Reading {
        count,
        time_enabled_ns: 2 * SECOND,
        time_running_ns: 2 * SECOND,
        ..Reading::default()
    };
    Event {
        cost_ns: count as f64 * 1.5,
        ..Event::new(name, via, reading)
    }
}

fn session() -> Session {
    let mut session = Session::new(vec!["redis-server".into(), "--port".into(), "0".into()]);
    session.targets = vec![Process {
        pid: 4242,
        comm: "redis-server".into(),
        address_space: None,
    }];
    (session.duration_ns, session.cpu_ns) = (2 * SECOND, SECOND);
    session.events = vec![
        event("uprobe:redis-server:call", Via::Kernel, 500_000),
        event("uprobe:redis-server:dictFind", Via::Agent, 1_500_000),
        event("uprobe:redis-server:never", Via::Agent, 0),
    ];
    let unit = UnitCost::between(1.0, 1.5, 2.2);
    session.cost = Cost::estimated(2_000_000, unit.times(2_000_000), SECOND);
    session
}

#[track_caller]
fn shows(session: &Session, options: &Options, expected: &str) {
    let shown = text(session, options);
    assert_eq!(shown, expected, "\n{shown}");
}

#[test]
fn a_plain_session() {
    shows(&session(), &Options::default(), "\
redis-server (pid 4242): traced for 2.00 s, 1.00 s of CPU time

    count   rate/s  share    cost     via  event (uprobe:redis-server:…)
1,500,000  750,000  75.0%   0.22%   agent  dictFind
  500,000  250,000  25.0%  0.075%  kernel  call
        0        0   0.0%   0.00%   agent  never

note: redis-server:never was never hit: no such call was made in this time
cost of tracing: 0.30% of the target's CPU time (0.20 to 0.44, estimated from 2000000 hits x 1.50 ns, calibrated on this machine)
");
}

#[test]
fn a_session_with_every_kind_of_remark() {
    let mut session = session();
    let found = &mut session.events[1];
    found.names = vec!["dictLookup".into()];
    found.by = vec![
        CountPart::new("thread 4243 (io_thd_1)", 500_000),
        CountPart::new("thread 4242", 1_000_000),
    ];
    let call = &mut session.events[0];
    (call.time_running_ns, call.lost) = (SECOND, 3);
    call.notes = vec![EventNote::Trap.into()];
    let own = "looks at its own caller";
    session.refusals = ["a", "b", "c", "d"]
        .map(|name| Refusal::new(name, own))
        .to_vec();
    session
        .refusals
        .insert(0, Refusal::new("e\u{1b}[2J", "holds data"));
    let path = "/lib/libc\n.so.6".to_owned();
    session.notes = vec![FunctionNote::FileTooLarge { path }.into()];
    shows(&session, &Options::default(), "\
redis-server (pid 4242): traced for 2.00 s, 1.00 s of CPU time

not traced: 5
             4  looks at its own caller: a, b, c and 1 more
             1  holds data: e\\x1b[2J

     count    rate/s   share    cost     via  event (uprobe:redis-server:…)
 1,500,000   750,000  ~60.0%   0.22%   agent  dictFind  (also dictLookup)
 1,000,000   500,000   66.7%                    thread 4242
   500,000   250,000   33.3%                    thread 4243 (io_thd_1)
~1,000,000  ~500,000  ~40.0%  0.075%  kernel  call  (counted 50.0% of the time, scaled; lost 3; trap: no jump fits there)
         0         0    0.0%   0.00%   agent  never

warning: /lib/libc\\n.so.6 or its debug file is too large to be read whole: functions may be missing
note: redis-server:never was never hit: no such call was made in this time
cost of tracing: 0.30% of the target's CPU time (0.20 to 0.44, estimated from 2000000 hits x 1.50 ns, calibrated on this machine)
");
}

#[test]
fn a_lower_bound_is_marked_and_never_scaled() {
    let mut session = session();
    let call = &mut session.events[0];
    (call.time_running_ns, call.at_least) = (SECOND, true);
    let report = text(&session, &Options::default());
    let row = ">=500,000  >=250,000  >=25.0%  0.075%  kernel  call  (counted 50.0% of the time)\n";
    assert!(report.contains(row), "{report}");
    let exact = "1,500,000    750,000  <=75.0%   0.22%   agent  dictFind\n";
    assert!(report.contains(exact), "{report}");
    session.events[1].at_least = true;
    let report = text(&session, &Options::default());
    let bound = ">=1,500,000  >=750,000  ~75.0%   0.22%   agent  dictFind\n";
    assert!(report.contains(bound), "{report}");
    session.events.truncate(1);
    session.events[0].by = vec![CountPart::new("thread 7", 400_000)];
    let report = text(&session, &Options::default());
    for row in [
        ">=500,000  >=250,000  100.0%  0.075%  call",
        ">=400,000  >=200,000  ~80.0%",
    ] {
        assert!(report.contains(row), "{report}");
    }
}

#[test]
fn many_events_are_cut_to_the_top_and_to_the_width() {
    let options = Options {
        top: Some(1),
        width: Some(76),
        ..Options::default()
    };
    shows(
        &session(),
        &options,
        "\
redis-server (pid 4242): traced for 2.00 s, 1.00 s of CPU time

    count   rate/s  share   cost  event (uprobe:redis-server:…, via agent)
1,500,000  750,000  75.0%  0.22%  dictFind
  500,000  in 1 more event (--top 0 shows all)
        0  in 1 event never hit

note: redis-server:never was never hit: no such call was made in this time
cost of tracing: 0.30% of the target's CPU time (0.20 to 0.44, estimated
                 from 2000000 hits x 1.50 ns, calibrated on this machine)
",
    );
}

#[test]
fn an_empty_session_still_prints_its_cost() {
    shows(&Session::new(vec!["true".into()]), &Options::default(), "\
true: traced for 0.000 s, 0.000 s of CPU time

cost of tracing: 0.00% of the target's CPU time (0.00 to 0.00, estimated from 0 hits x 0.00 ns, calibrated on this machine)
");
}

#[test]
fn one_hit_is_in_the_singular() {
    let mut session = Session::new(vec!["true".into()]);
    session.cost = Cost::estimated(1, UnitCost::between(1.0, 1.5, 2.2), SECOND);
    let report = text(&session, &Options::default());
    assert!(
        report.contains("estimated from 1 hit x 1.50 ns"),
        "{report}"
    );
}

#[test]
fn interval_lines() {
    let taken = Interval {
        at_ns: 3 * SECOND,
        duration_ns: SECOND,
        counts: vec![
            CountPart::new("uprobe:redis-server:call", 500_000),
            CountPart::new("uprobe:redis-server:dictFind", 1_500_000),
        ],
    };
    assert_eq!(
        interval(&taken, &Options::default()),
        "    3.00 s       2,000,000/s  redis-server:dictFind 1,500,000/s  redis-server:call 500,000/s"
    );
    let line = json_line(&taken).unwrap();
    assert!(line.starts_with("{\"at_ns\":3000000000,") && line.ends_with("}\n"));
    assert_eq!(serde_json::from_str::<Interval>(&line).unwrap(), taken);
}

#[test]
fn json_is_the_session() {
    let line = json(session()).unwrap();
    assert!(line.starts_with("{\"tiptoe\":\"") && line.ends_with("}\n"));
    assert_eq!(serde_json::from_str::<Session>(&line).unwrap(), session());
}

#[test]
fn a_session_of_kernel_locks_has_no_table_of_events() {
    let programs = Programs {
        runs: 4,
        run_ns: 2_000_000,
        ..Programs::default()
    };
    let watched = Session {
        waits: Some(Waits {
            by: "type".into(),
            rows: vec![Wait {
                kind: "mutex".into(),
                callsite: Some("pipe_write+0x44".into()),
                count: 3,
                total_ns: 9_000,
                ..Wait::default()
            }],
            ..Waits::default()
        }),
        cpus: Some(2),
        cost: Cost::measured(programs, 2 * SECOND),
        duration_ns: SECOND,
        ..session()
    };
    let report = text(&watched, &Options::default());
    let lines: Vec<&str> = report.lines().collect();
    assert_eq!(
        [lines[0], lines[3], lines[5]],
        [
            "the whole system (2 CPUs): traced for 1.00 s",
            "9.00us      3  3.00us  0ns  0ns  0ns  mutex  -     pipe_write+0x44",
            "cost of tracing: 0.10% of all CPUs' time (measured: 4 runs of BPF programs x 500000 ns)"
        ],
        "{report}"
    );
    assert!(!report.contains("dictFind"), "{report}");
}
