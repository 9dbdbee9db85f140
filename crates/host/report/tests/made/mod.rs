//! Made-up sessions, and the comparison of their reports with files.

use std::path::PathBuf;

use tiptoe_event::{Cost as UnitCost, Ends, Histogram as Buckets, Latency as Times, Reading};
use tiptoe_report::Options;
use tiptoe_session::{Cost, Event, Process, Session, Via};

pub const SECOND: u64 = 1_000_000_000;
/// A name with spaces that takes more than half of a line.
pub const LONG: &str = "shop::Basket<std::string>::add(shop::Item const&, unsigned int)";

pub fn session(comm: &str) -> Session {
    let mut session = Session::new(vec![comm.into()]);
    session.targets = vec![Process {
        pid: 4242,
        comm: comm.into(),
        address_space: None,
    }];
    (session.duration_ns, session.cpu_ns) = (2 * SECOND, SECOND);
    let unit = UnitCost::between(1.0, 1.5, 2.2);
    session.cost = Cost::estimated(2_000_000, unit.times(2_000_000), SECOND);
    session.own_cpu_ns = Some(SECOND / 5);
    session.longest_stop_ns = Some(1_250_000);
    session
}

pub fn buckets(times: &[(u64, u64)]) -> Buckets {
    let mut buckets = Buckets::default();
    for &(ns, count) in times {
        (0..count).for_each(|_| buckets.record(ns));
    }
    buckets
}

pub fn event(name: &str, times: &[(u64, u64)], ends: Ends, is_timed: bool) -> Event {
    let buckets = buckets(times);
    let total_ns = times.iter().map(|(ns, count)| ns * count).sum();
    let max_ns = times.iter().map(|(ns, _)| *ns).max().unwrap_or_default();
    let reading = Reading {
        count: buckets.total(),
        time_enabled_ns: 2 * SECOND,
        time_running_ns: 2 * SECOND,
        ends: is_timed.then_some(ends),
        latency: is_timed.then_some(Times {
            total_ns,
            self_ns: total_ns / 3 * 2,
            max_ns,
        }),
        ..Reading::default()
    };
    let event = Event {
        cost_ns: buckets.total() as f64 * 1.5,
        ..Event::new(name, Via::Agent, reading)
    };
    match is_timed {
        true => event.with_histogram(&buckets),
        false => event,
    }
}

pub fn at(width: usize) -> Options {
    Options {
        width: Some(width),
        ..Options::default()
    }
}

/// Compares `shown` with `screens/NAME.txt`. With `TIPTOE_WRITE_SCREENS=1` it first writes the file.
#[track_caller]
pub fn check_screen(name: &str, shown: &str) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/screens");
    let path = folder.join(format!("{name}.txt"));
    if std::env::var_os("TIPTOE_WRITE_SCREENS").is_some() {
        std::fs::write(&path, shown).expect("the folder is writable");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(shown, kept, "{}:\n{shown}", path.display());
}

#[track_caller]
pub fn check_width(name: &str, shown: &str, width: usize) {
    let wide = shown.lines().find(|line| line.chars().count() > width);
    assert_eq!(wide, None, "{name}, {width} columns:\n{shown}");
}
