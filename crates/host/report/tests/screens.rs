//! On 80 columns each report must look as in `screens/NAME.txt`.
//!
//! Only the layout is tested, so the numbers are made up.

mod made;

use made::{LONG, SECOND, at, buckets, check_screen, check_width, event, session};
use tiptoe_event::Ends;
use tiptoe_report::{Options, text};
use tiptoe_session::{
    Accesses, AddressSpace, Blame, Cost, Count, CountPart, Deadlock, Histogram, Hold, Lock, Locks,
    Programs, Readers, Refusal, Session, Stack, Stat, Value, Variable, Wait, WaitingThread, Waits,
    Watch,
};

fn histogram(times: &[(u64, u64)]) -> Histogram {
    let longest = times.iter().map(|(ns, _)| *ns).max();
    Histogram::new(&buckets(times), longest.unwrap_or_default())
}

fn probe(is_timed: bool) -> Session {
    let mut session = session("shopd");
    let ends = Ends {
        left: 5,
        only_counted: 12_345,
        ..Ends::default()
    };
    let find = &[(38, 60_000), (41, 90_000), (45, 20_000), (950, 90)];
    session.events = vec![
        event("uprobe:shopd:find", find, Ends::default(), is_timed),
        event(
            &format!("uprobe:shopd:{LONG}"),
            &[(900, 4_000), (2_300_000, 3)],
            ends,
            is_timed,
        ),
    ];
    session.events[0].sentences = vec!["a trap: no jump fits into its first bytes".into()];
    session.events[1].by = vec![CountPart::new("thread 4243 (worker)", 4_003)];
    let reason = "its first bytes are shared with the function before it";
    session.refusals = [LONG, "shopd:a", "shopd:b", "shopd:c"]
        .map(|name| Refusal::new(name, reason))
        .to_vec();
    session.budget = Some(0.01);
    session.sentences = vec![
        "libc.so.6 has no symbols: `apt-get install libc6-dbg` brings them, and names its functions".into(),
    ];
    session
}

fn lock(name: &str, kind: &str, mode: Option<&str>, times: &[(u64, u64)]) -> Lock {
    let total_ns = times.iter().map(|(ns, count)| ns * count).sum();
    let callsites = [
        ("shopd:shop::Stock::take(shop::Item const&)+0x9c", 60),
        ("shopd:shop::Stock::fill(shop::Item const&)+0x4", 30),
        ("shopd:main+0x10", 10),
    ];
    let blame = callsites.map(|(callsite, share)| Blame {
        callsite: callsite.into(),
        count: 3,
        total_ns: total_ns / 100 * share,
    });
    Lock {
        lock: name.into(),
        kind: kind.into(),
        mode: mode.map(str::to_owned),
        callsite: "shopd:shop::Stock::take(shop::Item const&)+0x1c".into(),
        callsites: 3,
        episodes: 1_204,
        slept: buckets(times).total(),
        at_once: 400,
        total_ns,
        histogram: Some(histogram(times)),
        readers: (kind == "rwlock").then_some(Readers {
            average: 3.06,
            most: 8,
        }),
        blame: blame.to_vec(),
        ..Lock::default()
    }
}

fn locks() -> Session {
    let wait = |tid, lock: &str| WaitingThread {
        tid,
        comm: "worker thread".into(),
        lock: lock.into(),
        ..WaitingThread::default()
    };
    let idle = Lock {
        idle: true,
        blame: Vec::new(),
        ..lock("shopd:orders.ready", "condition", None, &[(20_000_000, 70)])
    };
    let stock = &[(900, 12), (7_000, 700), (45_000, 90), (2_500_000, 2)];
    let rates = &[(300_000, 20), (800_000, 11)];
    Session {
        events: Vec::new(),
        locks: Some(Locks {
            by: "lock".into(),
            rows: vec![
                lock("shopd:shop::stock_lock", "mutex", None, stock),
                lock("shopd:shop::rates", "rwlock", Some("read"), rates),
                idle,
            ],
            unfinished: 1,
            others: 8,
            deadlocks: vec![Deadlock {
                pid: 4242,
                waits: vec![
                    wait(4243, "shopd:shop::a_lock"),
                    wait(4244, "shopd:shop::b_lock"),
                ],
            }],
            ..Locks::default()
        }),
        ..session("shopd")
    }
}

fn holds() -> Session {
    let mut session = locks();
    let locks = session.locks.as_mut().expect("locks");
    locks.rows.truncate(1);
    locks.deadlocks.clear();
    let hold = |callsite: &str, times: &[(u64, u64)]| Hold {
        lock: "shopd:shop::stock_lock".into(),
        callsite: callsite.into(),
        count: 3_000,
        total_ns: times.iter().map(|(ns, count)| ns * count).sum(),
        histogram: Some(histogram(times)),
        is_at_least: false,
    };
    locks.holds = vec![
        hold(LONG, &[(900, 2_000), (1_200, 900), (2_000_000, 1)]),
        hold("shopd:main+0x10", &[(90, 200)]),
    ];
    session
}

fn kernel_locks() -> Session {
    let programs = Programs {
        runs: 26_440,
        run_ns: 76_000_000,
        all_runs: Some(26_951),
        all_run_ns: Some(85_900_000),
    };
    let wait = |kind: &str, callsite: &str, times: &[(u64, u64)]| Wait {
        kind: kind.into(),
        callsite: Some(callsite.into()),
        callers: [
            "ksys_mmap_pgoff+0x11c",
            "do_syscall_64+0x5d",
            "entry_SYSCALL_64_after_hwframe+0x76",
        ]
        .map(str::to_owned)
        .to_vec(),
        count: buckets(times).total(),
        total_ns: times.iter().map(|(ns, count)| ns * count).sum(),
        histogram: histogram(times),
        ..Wait::default()
    };
    Session {
        waits: Some(Waits {
            by: "callsite".into(),
            rows: vec![
                wait(
                    "mmap_lock",
                    "vm_mmap_pgoff+0xe0",
                    &[(9_000, 300), (60_000_000, 4)],
                ),
                wait(
                    "percpu-rwsem",
                    "cgroup_procs_write_start+0x44",
                    &[(9_000, 30)],
                ),
            ],
            unfinished: 2,
            ..Waits::default()
        }),
        cost: Cost::measured(programs, 2 * SECOND),
        ..session("mmap_contended")
    }
}

fn watch() -> Session {
    let callers = [
        "shopd:processCommand+0x96d",
        "shopd:processInputBuffer+0xe6 (net.c:2411)",
        "libc.so.6:start_thread+0x305",
    ];
    let stack = |count, is_partial| Stack {
        callers: callers.map(str::to_owned).to_vec(),
        is_partial,
        count,
    };
    let value = |value: &str, count| Value {
        value: value.into(),
        count,
    };
    let row = |at: &str, count, stacks| Accesses {
        variable: "shopd:shop::stats.orders".into(),
        at: at.into(),
        comm: "worker".into(),
        count,
        changed: count,
        first_ns: 610_000_000,
        last_ns: SECOND,
        last_old: "501".into(),
        last_new: "502".into(),
        values: vec![
            value("0x7fffffff12345678", 9),
            value("0x7fffffff12345679", 8),
            value("2", 1),
        ],
        stacks,
        ..Accesses::default()
    };
    Session {
        watch: Some(Watch {
            variables: vec![Variable {
                name: "shopd:shop::stats.orders".into(),
                address: 0x55_6e1f_1fb5_20ff,
                len: 8,
                access: "w".into(),
                hits: 502,
                count: 500,
                at_least: true,
                watched_ns: Some(SECOND),
            }],
            rows: vec![
                row(
                    "shopd:shop::Basket::call(int)+0x468 (basket.cc:3532)",
                    498,
                    vec![stack(400, false), stack(98, true)],
                ),
                row("shopd:clear+0x4", 2, vec![stack(2, true)]),
            ],
            ..Watch::default()
        }),
        ..session("shopd")
    }
}

fn stat() -> Session {
    let count = |event: &str, value: f64, unit: &str| Count {
        event: event.into(),
        value,
        unit: unit.into(),
        time_enabled_ns: 1_000_000,
        time_running_ns: 1_000_000,
        ..Count::default()
    };
    let shared = Count {
        time_running_ns: 532_000,
        spread: Some(0.0123),
        ..count("branch-misses", 1e7, "")
    };
    Session {
        stat: Some(Stat {
            whom: "'make --jobs 4 --directory /home/user/projects/shop everything documentation'"
                .into(),
            runs: 1,
            elapsed_ns: 2e9,
            switches: 1_234,
            switch_ns: 210.0,
            tracepoint_hits: 9_876,
            tracepoint_ns: 340.0,
            counts: vec![
                count("task-clock", 1e9, "ns"),
                count("cycles", 2e9, ""),
                count("instructions", 3e9, ""),
                count("branches", 5e8, ""),
                shared,
                count("syscalls:sys_enter_openat", 1_234.0, ""),
            ],
            ..Stat::default()
        }),
        sentences: vec![
            "the kernel shares the counters of the CPU between these events and those of others"
                .into(),
        ],
        ..session("make")
    }
}

fn kernel_locks_by_thread() -> Session {
    let mut session = kernel_locks();
    let waits = session.waits.as_mut().expect("waits");
    waits.by = "thread".into();
    for (row, key) in waits
        .rows
        .iter_mut()
        .zip(["worker (4243)", "worker (4244)"])
    {
        row.key = Some(key.into());
        row.callers.clear();
    }
    session
}

fn locks_by_callsite() -> Session {
    let mut session = locks();
    let locks = session.locks.as_mut().expect("locks");
    locks.by = "callsite".into();
    locks.deadlocks.clear();
    session
}

fn screens() -> [(&'static str, Session); 10] {
    [
        ("probe", probe(false)),
        ("latency", probe(true)),
        ("histograms", probe(true)),
        ("lock", locks()),
        ("hold", holds()),
        ("kernel", kernel_locks()),
        ("kernel-by-thread", kernel_locks_by_thread()),
        ("lock-by-callsite", locks_by_callsite()),
        ("watch", watch()),
        ("stat", stat()),
    ]
}

#[test]
fn screens_of_80_columns_look_as_kept() {
    for (name, session) in screens() {
        let options = Options {
            histograms: name == "histograms",
            ..at(80)
        };
        check_screen(name, &text(&session, &options));
    }
}

#[test]
fn a_screen_with_all_notes_looks_as_kept() {
    let mut session = probe(false);
    session.targets[0].address_space = Some(AddressSpace {
        speculative: 1_234_567,
        locked: 12,
        missed: 1,
        unsure: 3,
        ..AddressSpace::default()
    });
    let options = Options {
        all_notes: true,
        ..at(80)
    };
    check_screen("probe-v", &text(&session, &options));
    session.targets[0].address_space = Some(AddressSpace::default());
    assert!(!text(&session, &options).contains("trap in"));
}

#[test]
fn screens_of_100_columns_look_as_kept() {
    let wide = ["probe", "latency", "lock", "hold", "kernel", "watch"];
    for (name, session) in screens() {
        if wide.contains(&name) {
            check_screen(&format!("{name}-100"), &text(&session, &at(100)));
        }
    }
}

#[test]
fn no_line_is_longer_than_the_terminal_is_wide() {
    for (name, session) in screens() {
        for width in 40..200 {
            check_width(name, &text(&session, &at(width)), width);
        }
    }
}

#[test]
fn rows_did_not_fit_the_terminal() {
    let mut session = locks();
    let rows = &mut session.locks.as_mut().expect("locks").rows;
    let row = rows[0].clone();
    rows.extend((0..30).map(|_| row.clone()));
    let lines = |height, top| {
        let options = Options {
            height,
            top,
            ..at(80)
        };
        text(&session, &options).lines().count()
    };
    let [least, all] = [Some(3), Some(20)].map(|top| lines(None, top));
    assert_eq!(lines(None, None), all);
    assert_eq!(lines(Some(24), Some(20)), all, "as requested");
    assert_eq!(lines(Some(all + 1), None), all);
    for height in least + 1..all {
        let fitted = lines(Some(height), None);
        assert!(
            (height - 8..height).contains(&fitted),
            "{fitted} of {height}"
        );
    }
}

fn long_screens() -> Vec<(&'static str, Session)> {
    let mut locks = locks();
    let rows = &mut locks.locks.as_mut().expect("locks").rows;
    *rows = rows.iter().cycle().take(60).cloned().collect();
    let mut events = probe(false);
    events.sentences = (0..9)
        .map(|at| format!("text {at} of an older version, which fills a line and more"))
        .collect();
    let mut watch = watch();
    let rows = &mut watch.watch.as_mut().expect("accesses").rows;
    *rows = rows.iter().cycle().take(40).cloned().collect();
    vec![
        ("lock-24", locks),
        ("probe-24", events),
        ("watch-24", watch),
    ]
}

/// The tables and the cost must remain on a screen of 24 lines.
#[test]
fn screens_of_24_lines_look_as_kept() {
    for (name, session) in long_screens() {
        let options = Options {
            height: Some(24),
            ..at(80)
        };
        let shown = text(&session, &options);
        check_screen(name, &shown);
        // Notes that would push the tables off the screen are above them.
        let blocks: Vec<&str> = shown.split("\n\n").collect();
        let is_above = ["note: ", "warning: "]
            .iter()
            .any(|label| blocks[1].starts_with(label));
        let below = blocks[if is_above { 2 } else { 0 }..]
            .join("\n\n")
            .lines()
            .count();
        assert!(below < 24, "{name}: {below} lines");
    }
}

fn without_colours(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| part.split_once('m').expect("a colour").1);
    first + &rest.collect::<String>()
}

#[test]
fn colours_only_add_to_the_text() {
    for (name, session) in screens() {
        for width in [Some(40), Some(80), None] {
            let plain = Options {
                width,
                histograms: name == "histograms",
                ..Options::default()
            };
            let colored = Options {
                color: true,
                ..plain
            };
            let [plain, colored] = [plain, colored].map(|options| text(&session, &options));
            assert_ne!(colored, plain, "{name}");
            assert_eq!(without_colours(&colored), plain, "{name}, {width:?}");
        }
    }
}

#[test]
fn no_word_of_a_sentence_is_lost() {
    let words = |text: &str| {
        text.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    for (name, session) in screens() {
        let last = |options: &Options| {
            let shown = text(&session, options);
            let block = shown.rsplit("\n\n").next().map(words);
            block.unwrap_or_default()
        };
        for width in [60, 80, 100] {
            assert_eq!(
                last(&at(width)),
                last(&Options::default()),
                "{name}, {width}"
            );
        }
    }
}
