//! Checks exact reports of timed calls.

use tiptoe_event::{Ends, Histogram, Latency as Times, Reading};
use tiptoe_report::{Options, text};
use tiptoe_session::{CountPart, Event, Latency, Process, Session, Via, argument_key};

const SECOND: u64 = 1_000_000_000;

/// Returns the sums and histogram of calls, given as `(ns, count)`. A third of each time is in callees.
fn calls(times: &[(u64, u64)]) -> (Times, Histogram) {
    let mut histogram = Histogram::default();
    let mut sums = Times::default();
    for &(ns, count) in times {
        (0..count).for_each(|_| histogram.record(ns));
        sums.total_ns += ns * count;
        sums.max_ns = sums.max_ns.max(ns);
    }
    sums.self_ns = sums.total_ns / 3 * 2;
    (sums, histogram)
}

fn event(name: &str, times: &[(u64, u64)], more: Ends) -> Event {
    let (sums, histogram) = calls(times);
    let ends = Ends {
        returns: histogram.total(),
        ..more
    };
    let reading = Reading {
        count: ends.calls(),
        time_enabled_ns: 2 * SECOND,
        time_running_ns: 2 * SECOND,
        ends: Some(ends),
        latency: Some(sums),
        ..Reading::default()
    };
    Event::new(name, Via::Agent, reading).with_histogram(&histogram)
}

fn session() -> Session {
    let mut session = Session::new(vec!["redis-server".into()]);
    session.targets = vec![Process {
        pid: 4242,
        comm: "redis-server".into(),
        address_space: None,
    }];
    (session.duration_ns, session.cpu_ns) = (2 * SECOND, SECOND);
    session.events = vec![
        event(
            "uprobe:redis-server:dictFind",
            &[(0, 3), (38, 60_000), (41, 90_000), (45, 20_000), (52, 900)],
            Ends::default(),
        ),
        event(
            "uprobe:redis-server:call",
            &[
                (700, 30_000),
                (900, 110_000),
                (1_500, 9_000),
                (9_000, 400),
                (2_300_000, 3),
            ],
            Ends::default(),
        ),
        event("uprobe:redis-server:never", &[], Ends::default()),
    ];
    session
}

fn eventful() -> Session {
    let mut session = session();
    let more = Ends {
        left: 5,
        inside: 1,
        only_counted: 12_345,
        ..Ends::default()
    };
    session.events[1] = event("uprobe:redis-server:call", &[(700, 3), (800, 4)], more);
    let found = &mut session.events[0];
    found.ends.as_mut().expect("it is followed").only_counted = 99;
    let parts = [
        (argument_key(0, 3), &[(38, 50_000)]),
        (argument_key(0, 0x7fff_0000_1234), &[(41, 90_000)]),
    ];
    found.by = parts
        .map(|(key, times)| {
            let (sums, histogram) = calls(times);
            CountPart::new(key, histogram.total()).with_latency(Latency::new(sums, &histogram))
        })
        .to_vec();
    session.budget = Some(0.01);
    session.slower_ns = Some(30);
    session.under = Some("serverCron".into());
    session
}

#[track_caller]
fn shows(session: &Session, options: &Options, expected: &str) {
    let shown = text(session, options);
    let blocks = shown.split("\n\n").skip(1);
    let blocks: Vec<&str> = blocks.filter(|block| !block.contains("rate/s")).collect();
    let shown = format!("\n{}", blocks.join("\n\n"));
    assert_eq!(shown, expected, "{shown}");
}

#[test]
fn the_event_with_the_most_time_is_first() {
    let options = Options {
        histograms: true,
        ..Options::default()
    };
    shows(
        &session(),
        &options,
        "
redis-server:call
   512ns .. 1.02us        140,000   93.7%  █████████████████████████████████████████████████████████
  1.02us .. 2.05us          9,000    6.0%  ███▊
  2.05us .. 4.10us              0    0.0%
  4.10us .. 8.19us              0    0.0%
  8.19us .. 16.4us            400    0.3%  ▎
  16.4us .. 32.8us              0    0.0%
  32.8us .. 65.5us              0    0.0%
  65.5us .. 131us               0    0.0%
   131us .. 262us               0    0.0%
   262us .. 524us               0    0.0%
   524us .. 1.05ms              0    0.0%
  1.05ms .. 2.10ms              0    0.0%
  2.10ms .. 4.19ms              3   <0.1%  ▏

redis-server:dictFind
     0ns                        3   <0.1%  ▏
    35ns .. 38ns           60,000   35.1%  ██████████████████████████████████████
    38ns .. 41ns           90,000   52.7%  █████████████████████████████████████████████████████████
    41ns .. 45ns           20,000   11.7%  ████████████▊
    45ns .. 49ns                0    0.0%
    49ns .. 54ns              900    0.5%  ▋

  timed   total    self   mean    p50    p90     p99     max  event (uprobe:redis-server:…)
149,403   144ms  96.0ms  964ns  893ns  936ns  1.56us  2.30ms  call
170,903  6.92ms  4.61ms   40ns   39ns   42ns    45ns    52ns  dictFind

note: redis-server:never was never hit: no such call was made in this time
cost of tracing: 0.00% of the target's CPU time (0.00 to 0.00, estimated from 0 hits x 0.00 ns, calibrated on this machine)
",
    );
}

#[test]
fn calls_without_a_return_are_noted_and_80_columns_suffice() {
    let options = Options {
        width: Some(80),
        histograms: true,
        ..Options::default()
    };
    shows(
        &eventful(),
        &options,
        "
redis-server:dictFind
     0ns                        3   <0.1%  ▏
    35ns .. 38ns           60,000   35.1%  ████████████████████████▊
    38ns .. 41ns           90,000   52.7%  █████████████████████████████████████
    41ns .. 45ns           20,000   11.7%  ████████▎
    45ns .. 49ns                0    0.0%
    49ns .. 54ns              900    0.5%  ▍

redis-server:call
   664ns .. 724ns               3   42.9%  ███████████████████████████▊
   724ns .. 790ns               0    0.0%
   790ns .. 861ns               4   57.1%  █████████████████████████████████████

  timed  left   total    p50    p99    max  event (uprobe:redis-server:…)
170,903     0  6.92ms   39ns   45ns   52ns  dictFind
 90,000     0  3.69ms   40ns   41ns   41ns    arg0=0x7fff00001234
 50,000     0  1.90ms   36ns   38ns   38ns    arg0=3
      7     5  5.30us  792ns  800ns  800ns  call
(mean, p90, self: on a wider terminal, or --json)

note: only calls below serverCron were counted
note: only calls that took longer than 30ns are in the times and the histograms
note: redis-server:never was never hit: no such call was made in this time
note: 12,444 calls (most of redis-server:call) were not followed to their
      return: the budget of 1% was spent, or they were nested too deeply, or
      called from too many places or from generated code
note: 5 calls of redis-server:call were left without a return: by longjmp, an
      exception, or the end of their thread
note: 1 call of redis-server:call was still running when the trace ended
cost of tracing: 0.00% of the target's CPU time (0.00 to 0.00, estimated from 0
                 hits x 0.00 ns, calibrated on this machine)
",
    );
}

#[test]
fn rows_that_are_not_shown_are_summed() {
    let options = Options {
        top: Some(1),
        ..Options::default()
    };
    let mut session = eventful();
    session.events[1]
        .ends
        .as_mut()
        .expect("it is followed")
        .left = 0;
    shows(
        &session, &options, "
  timed   total    self  mean   p50   p90   p99   max  heat   event (uprobe:redis-server:…)
170,903  6.92ms  4.61ms  40ns  39ns  42ns  45ns  52ns  ▆█▂ ▁  dictFind
 90,000  3.69ms  2.46ms  41ns  40ns  41ns  41ns  41ns   █       arg0=0x7fff00001234
         1.90ms                                                 in 1 more
         5.30us                                               in 1 more event
(heat: 35ns to 54ns; --histograms draws each row)

note: only calls below serverCron were counted
note: only calls that took longer than 30ns are in the times and the histograms
note: redis-server:never was never hit: no such call was made in this time
note: 12,444 calls (most of redis-server:call) were not followed to their return: the budget of 1% was spent, or they were nested too deeply, or called from too many places or from generated code
note: 1 call of redis-server:call was still running when the trace ended
cost of tracing: 0.00% of the target's CPU time (0.00 to 0.00, estimated from 0 hits x 0.00 ns, calibrated on this machine)
",
    );
}

/// A `uretprobe:` has no times. A note counts its calls without a return, even if none returned.
#[test]
fn returns_without_times() {
    let returns = |name: &str, ends: Ends| {
        let reading = Reading {
            count: ends.returns,
            ends: Some(ends),
            ..Reading::default()
        };
        Event::new(name, Via::Agent, reading)
    };
    let none = Ends {
        inside: 4,
        ..Ends::default()
    };
    let some = Ends {
        returns: 7,
        left: 1,
        inside: 0,
        only_counted: 2,
    };
    let mut session = session();
    session.events = vec![
        returns("uretprobe:redis-server:serverCron", none),
        returns("uretprobe:redis-server:call", some),
    ];
    shows(
        &session,
        &Options::default(),
        "
note: 2 calls of uretprobe:redis-server:call were not followed to their return: they were nested too deeply, or called from too many places or from generated code
note: 1 call of uretprobe:redis-server:call was left without a return: by longjmp, an exception, or the end of their thread
note: 4 calls of uretprobe:redis-server:serverCron were still running when the trace ended
cost of tracing: 0.00% of the target's CPU time (0.00 to 0.00, estimated from 0 hits x 0.00 ns, calibrated on this machine)
",
    );
}

#[test]
fn nothing_is_wider_than_the_terminal() {
    for session in [session(), eventful()] {
        for width in [20, 60, 80, 100, 200] {
            let options = Options {
                width: Some(width),
                histograms: true,
                ..Options::default()
            };
            let shown = text(&session, &options);
            let widest = shown.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(width), "{widest:?} of {width}\n{shown}");
        }
    }
}

#[test]
fn ten_histograms_by_default() {
    let mut session = session();
    let call = |n| event(&format!("uprobe:f{n}"), &[(100, 1)], Ends::default());
    session.events = (0..30).map(call).collect();
    for (top, tables, drawn) in [(None, 20, 10), (Some(0), 30, 30), (Some(25), 25, 25)] {
        let shown = text(
            &session,
            &Options {
                top,
                histograms: true,
                ..Options::default()
            },
        );
        assert_eq!(shown.matches("100.0%  █").count(), drawn, "{shown}");
        assert_eq!(shown.matches("100ns  100ns  f").count(), tables, "{shown}");
    }
}

#[test]
fn any_histogram_of_a_session_prints() {
    let mut session = session();
    let histogram = |session: &mut Session, scale, offset, counts: &[u64]| {
        let latency = session.events[0].latency.as_mut().expect("it is timed");
        latency.histogram.scale = scale;
        latency.histogram.offset = offset;
        latency.histogram.counts = counts.to_vec();
        let options = Options {
            histograms: true,
            ..Options::default()
        };
        text(session, &options)
    };
    for scale in [0, 3, 20, 255] {
        for offset in [i32::MIN, -1, 0, 7, i32::MAX] {
            for counts in [&[][..], &[0], &[u64::MAX; 1000]] {
                let shown = histogram(&mut session, scale, offset, counts);
                assert!(shown.lines().count() < 60, "{shown}");
            }
        }
    }
}
