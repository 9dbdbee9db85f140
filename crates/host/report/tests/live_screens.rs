//! Screens of a running trace, and reports of one moment, scopes and cgroups, must look as in `screens/NAME.txt`.

mod made;

use made::{LONG, SECOND, at, check_screen, check_width, event, session};
use tiptoe_event::Ends;
use tiptoe_report::{IntervalTable, Options, access, call, interval, scope_counts, text};
use tiptoe_session::{
    Access, Call, Count, CountPart, Counts, Event, Interval, Now, Records, Scope, ScopeCounts,
    Scopes, Session, Stat, WaitingThread,
};

fn waiting(tid: u32, comm: &str, lock: &str, holder: Option<(u32, &str)>) -> WaitingThread {
    WaitingThread {
        tid,
        comm: comm.into(),
        lock: lock.into(),
        kind: "mutex".into(),
        callsite: "shopd:shop::Stock::take(shop::Item const&)+0x1c".into(),
        asleep_ns: Some(SECOND / 3),
        holder: holder.map(|(tid, _)| tid),
        holder_comm: holder.map(|(_, comm)| comm.to_owned()),
        ..WaitingThread::default()
    }
}

fn now(options: &Options) -> String {
    let idle = WaitingThread {
        kind: "condition".into(),
        idle: true,
        callsite: "shopd:shop::Orders::next()+0x44".into(),
        ..waiting(4250, "orders", "shopd:shop::orders.ready", None)
    };
    let reader = WaitingThread {
        kind: "rwlock".into(),
        mode: Some("write".into()),
        readers: Some(3),
        ..waiting(4245, "worker 3", "shopd:shop::rates", None)
    };
    let session = Session {
        now: Some(Now {
            waits: vec![
                waiting(
                    4243,
                    "worker 1",
                    "shopd:shop::stock_lock",
                    Some((4244, "worker 2")),
                ),
                waiting(
                    4244,
                    "worker 2",
                    "shopd:shop::price_lock",
                    Some((4243, "worker 1")),
                ),
                reader,
                idle,
            ],
            deadlocks: vec![vec![4243, 4244]],
        }),
        ..session("shopd")
    };
    text(&session, options)
}

fn scope(name: &str, entries: u64, ms: u64, faults: u64) -> Scope {
    Scope {
        name: name.into(),
        entries,
        wall_ns: (entries > 0).then_some(ms * 3_000_000),
        cpu_ns: Some(ms * 1_000_000),
        counts: vec![entries / 7, faults],
    }
}

fn scopes(options: &Options) -> String {
    let options = Options {
        top: Some(3),
        ..*options
    };
    let events = ["context-switches", "page-faults"]
        .map(str::to_owned)
        .to_vec();
    let rows = vec![
        scope("checkout/payment", 12_040, 431, 18),
        scope("search", 88_112, 257, 4_020),
        scope("(no scope)", 0, 121, 310),
        scope("checkout", 12_044, 88, 0),
        scope("tenant of a customer with a long name/report", 3, 1, 2),
    ];
    let counts = ScopeCounts {
        at_ns: SECOND,
        duration_ns: SECOND,
        events: events.clone(),
        rows: rows[..2].to_vec(),
    };
    let session = Session {
        scopes: Some(Scopes {
            events,
            rows,
            intervals: None,
        }),
        ..session("shopd")
    };
    scope_counts(&counts, &options) + &text(&session, &options)
}

fn recorded() -> Vec<Event> {
    let records = Records {
        recorded: 2,
        only_counted: 168_000,
        ..Records::default()
    };
    let find = event(
        "uprobe:shopd:find",
        &[(40, 170_000)],
        Ends::default(),
        false,
    );
    let long = event(
        &format!("uprobe:shopd:{LONG}"),
        &[(40, 1)],
        Ends::default(),
        false,
    );
    [find, long]
        .map(|event| Event {
            records: Some(records),
            ..event
        })
        .to_vec()
}

fn record(options: &Options) -> String {
    let one = Call {
        at_ns: 24_445_313,
        tid: 4243,
        comm: "shopd",
        event: "uprobe:shopd:find",
        arg0: Some(7),
        arg1: Some(0x7f7f_0cbf_d4c3),
        are_registers: false,
    };
    let long = format!("uprobe:shopd:{LONG}");
    let calls = [
        one,
        Call {
            at_ns: 24_997_001,
            comm: "shopd worker 12",
            arg0: Some(0x7f7f_0cac_dcc0),
            are_registers: true,
            ..one
        },
        Call {
            at_ns: 1_024_997_001,
            event: &long,
            ..one
        },
        Call {
            at_ns: 1_924_997_001,
            event: "uprobe:libc.so.6:free",
            arg1: None,
            ..one
        },
    ];
    let lines = calls.map(|one| call(&one, options) + "\n");
    let session = Session {
        events: recorded(),
        budget: Some(0.01),
        ..session("shopd")
    };
    lines.concat() + "\n" + &text(&session, options)
}

fn intervals(options: &Options) -> String {
    let names = [
        "find",
        LONG,
        "main",
        "shop::rates()",
        "shop::Stock::take(shop::Item const&)",
    ];
    let counts = |scale: u64| {
        let parts = names.iter().zip([90_000, 4_000, 1, 70, 300]);
        let part = |(name, count): (&&str, u64)| {
            CountPart::new(format!("uprobe:shopd:{name}"), count * scale)
        };
        parts.map(part).collect::<Vec<_>>()
    };
    let one = |second: u64| Interval {
        at_ns: second * SECOND,
        duration_ns: SECOND,
        counts: counts(second),
    };
    let lines = [1, 2].map(|second| interval(&one(second), options) + "\n");
    let session = Session {
        events: vec![event(
            "uprobe:shopd:find",
            &[(40, 90_000)],
            Ends::default(),
            false,
        )],
        ..session("shopd")
    };
    lines.concat() + "\n" + &text(&session, options)
}

fn count(cgroup: Option<&str>, event: &str, value: f64) -> Count {
    Count {
        event: event.into(),
        cgroup: cgroup.map(str::to_owned),
        value,
        unit: if event == "task-clock" { "ns" } else { "" }.into(),
        time_enabled_ns: SECOND,
        time_running_ns: SECOND,
        ..Count::default()
    }
}

fn counted() -> Vec<Count> {
    let of = |(cgroup, scale): (Option<&str>, f64)| {
        [
            count(cgroup, "task-clock", 1e8 * scale),
            count(cgroup, "context-switches", 4e3 * scale),
            count(cgroup, "page-faults", 12.0 * scale),
        ]
    };
    let all = [
        (None, 12.0),
        (Some("system.slice/cron.service"), 0.25),
        (Some("system.slice/redis-server@orders.service"), 7.5),
        (Some("system.slice/ssh.service"), 0.5),
        (Some("user.slice"), 3.0),
    ];
    all.into_iter().flat_map(of).collect()
}

fn stat(intervals: Option<u64>) -> Session {
    Session {
        stat: Some(Stat {
            whom: "'system wide'".into(),
            runs: 1,
            elapsed_ns: 2e9,
            rounds: 3,
            round_ns: 150_000.0,
            lives: 12,
            life_ns: 4_000.0,
            counts: counted(),
            intervals,
            ..Stat::default()
        }),
        cpus: Some(2),
        ..session("tiptoe")
    }
}

fn cgroups(options: &Options) -> String {
    let options = Options {
        top: Some(2),
        ..*options
    };
    text(&stat(None), &options)
}

fn stat_intervals(options: &Options) -> String {
    let one = |second: u64, counted: Vec<Count>| Counts {
        at_ns: second * SECOND + 61_002,
        duration_ns: SECOND,
        counts: counted,
    };
    let whole = counted().into_iter().filter(|count| count.cgroup.is_none());
    let [first, second] = [one(1, whole.collect()), one(2, counted())];
    let mut table = IntervalTable::default();
    table.lines(&first, options) + &table.lines(&second, options) + &text(&stat(Some(2)), options)
}

fn trace(options: &Options) -> String {
    let one = |at_ns, at, old: &str, new: &str| Access {
        at_ns,
        tid: 4243,
        comm: "worker 1",
        variable: "shopd:shop::stats.orders",
        at,
        in_kernel: false,
        old: old.to_owned(),
        new: new.to_owned(),
        racy: false,
    };
    let clear = "shopd:clear+0x4";
    let accesses = [
        one(24_445_313, clear, "502", "0"),
        Access {
            racy: true,
            ..one(
                1_024_445_313,
                "shopd:shop::Basket::call(int)+0x468 (basket.cc:3532)",
                "?",
                "1",
            )
        },
        Access {
            in_kernel: true,
            ..one(
                1_924_445_313,
                "libc.so.6:read+0x12",
                "0x7fffffff12345678",
                "2",
            )
        },
    ];
    accesses.map(|one| access(&one, options) + "\n").concat()
}

fn kernel_intervals(options: &Options) -> String {
    let one = |second: u64| Interval {
        at_ns: second * SECOND,
        duration_ns: SECOND,
        counts: vec![CountPart::new("klock:*", 1_204 * second)],
    };
    [1, 2]
        .map(|second| interval(&one(second), options) + "\n")
        .concat()
}

type Screen = fn(&Options) -> String;

const SCREENS: [(&str, Screen); 8] = [
    ("trace", trace),
    ("kernel-interval", kernel_intervals),
    ("now", now),
    ("scopes", scopes),
    ("record", record),
    ("interval", intervals),
    ("stat-interval", stat_intervals),
    ("stat-cgroups", cgroups),
];

#[test]
fn live_screens_of_80_columns_look_as_kept() {
    for (name, screen) in SCREENS {
        check_screen(name, &screen(&at(80)));
    }
}

#[test]
fn no_line_of_a_live_screen_is_longer_than_the_terminal_is_wide() {
    for (name, screen) in SCREENS {
        // The heading of counts has 44 columns and is not wrapped.
        for width in 44..200 {
            check_width(name, &screen(&at(width)), width);
        }
    }
}
