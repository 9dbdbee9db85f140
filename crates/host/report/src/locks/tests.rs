use super::*;
use crate::notes;
use tiptoe_session::{Blame, EarlyWaitSums, Histogram, Readers, Unfinished};

fn lock(name: &str, idle: bool, total_ns: u64) -> Lock {
    let blame = ["main+0x10", "a\nb", "c", "d"].map(|callsite| Blame {
        callsite: callsite.into(),
        count: 1,
        total_ns: total_ns / 4,
    });
    Lock {
        lock: name.into(),
        kind: if idle { "semaphore" } else { "rwlock" }.into(),
        mode: (!idle).then(|| "read".into()),
        idle,
        callsite: "prog:work+0x1c".into(),
        callsites: 2,
        episodes: 1200,
        slept: 900,
        at_once: 400,
        total_ns,
        histogram: Some(Histogram {
            p50_ns: 1000,
            p99_ns: 2_500_000,
            max_ns: 2_500_000,
            ..Histogram::default()
        }),
        readers: (!idle).then_some(Readers {
            average: 3.06,
            most: 8,
        }),
        blame: if idle { Vec::new() } else { blame.to_vec() },
        ..Lock::default()
    }
}

#[test]
fn waits_without_a_holder_have_their_own_table() {
    let session = Session {
        locks: Some(Locks {
            by: "lock".into(),
            rows: vec![lock("prog:cache", false, 4_000_000), lock("0x1", true, 9)],
            unfinished: 1,
            others: 2,
            ..Locks::default()
        }),
        ..Session::default()
    };
    let blocks = blocks(&session, &Options::default());
    let text: Vec<String> = blocks.concat();
    let want = [
        " total  contended  slept  at once     p50     p99     max  lock (rwlock)      mostly from",
        "4.00ms      1,200    900      400  1.00us  2.50ms  2.50ms  prog:cache (read)  prog:work+0x1c and 1 more",
        "         readers 3.1 on average, 8 at most",
        "         woken by 25.0% main+0x10, 25.0% a\\nb, 25.0% c, 1 more",
        "total  contended  slept  at once     p50     p99     max  waited for (semaphore)  mostly from",
        "  9ns      1,200    900      400  1.00us  2.50ms  2.50ms  0x1                     prog:work+0x1c and 1 more",
    ];
    assert_eq!(text, want);
    let notes = notes::lines(&session, &Options::default());
    let unfinished = "note: 1 wait was not over when the trace ended, and was not counted";
    assert!(notes.iter().any(|note| note == unfinished), "{notes:?}");
}

#[test]
fn holders_are_named_if_they_are_known() {
    let holder = |callsite: Option<&str>, thread: Option<&str>, total_ns| Holder {
        callsite: callsite.map(str::to_owned),
        thread: thread.map(str::to_owned),
        readers: callsite.is_none() && thread.is_none(),
        total_ns,
    };
    let row = Lock {
        holders: vec![
            holder(Some("prog:slow+0x8"), None, 1_000),
            holder(None, Some("7 a\nb"), 600),
            holder(None, None, 400),
        ],
        unknown_ns: Some(200),
        ..lock("prog:cache", false, 2_200)
    };
    let text = |row: &Lock| {
        let below = blame(row, &Options::default()).expect("a line");
        format!("{below:?}")
    };
    let text_of_row = text(&row);
    for part in [
        "held by ",
        "45.5%",
        "prog:slow+0x8",
        "27.3%",
        "thread",
        "a\\\\nb",
        "18.2%",
        "readers",
        "unknown 9.1% of the time",
    ] {
        assert!(text_of_row.contains(part), "{part}: {text_of_row}");
    }
    assert!(!text_of_row.contains("woken"), "{text_of_row}");
    let row = |unknown_ns| Lock {
        unknown_ns: Some(unknown_ns),
        ..row.clone()
    };
    assert!(!text(&row(20)).contains("unknown"), "less than 5%");
    // Regression: a holder that was known for 1% of the time had `100.0%`, because no other holder was known.
    let mostly_unknown = text(&row(198_000));
    for part in ["0.5%", "0.3%", "0.2%", "unknown 99.0% of the time"] {
        assert!(mostly_unknown.contains(part), "{part}: {mostly_unknown}");
    }
}

#[test]
fn waits_from_before_the_trace_are_lower_bounds() {
    let early = EarlyWaitSums {
        waits: 2,
        unfinished: 1,
        before_ns: 500_000_000,
        total_ns: 1_000_000_000,
    };
    let row = Lock {
        early: Some(early),
        kind: "mutex".into(),
        ..Lock::default()
    };
    let wait = |tid, lock: &str| WaitingThread {
        tid,
        comm: "p".into(),
        lock: lock.into(),
        ..WaitingThread::default()
    };
    let session = Session {
        locks: Some(Locks {
            by: "lock".into(),
            rows: vec![row],
            deadlocks: vec![Deadlock {
                pid: 7,
                waits: vec![wait(7, "a"), wait(8, "b")],
            }],
            ..Locks::default()
        }),
        ..Session::default()
    };
    let text = blocks(&session, &Options::default()).concat();
    assert!(text[1].starts_with(">=1.00s "), "{text:#?}");
    let rest = [
        "         2 waits began 500ms or more before the trace, and 1 did not end during it",
        "deadlock: 7 p waits for a, which 8 p holds, who waits for b, which 7 p holds",
        "hint: `tiptoe lock --now -p 7` shows which thread waits for which",
    ];
    assert_eq!(text[2..], rest);
}

/// Regression: "no thread waited for a lock" was printed above a deadlock and above unfinished waits.
#[test]
fn waits_that_were_not_over_had_no_row() {
    let unfinished = Unfinished {
        waits: 2,
        total_ns: 1_000_000_000,
    };
    let row = Lock {
        lock: "prog:cache".into(),
        kind: "mutex".into(),
        unfinished: Some(unfinished),
        ..Lock::default()
    };
    let text = |locks: Locks| {
        let locks = Some(locks);
        let session = Session {
            locks,
            ..Session::default()
        };
        let notes = notes::lines(&session, &Options::default());
        [blocks(&session, &Options::default()).concat(), notes].concat()
    };
    let locks = Locks {
        by: "lock".into(),
        rows: vec![row],
        unfinished: 2,
        ..Locks::default()
    };
    let lines = text(locks.clone());
    assert!(lines[1].starts_with(">=1.00s "), "{lines:#?}");
    let below = "         2 waits were not over when the trace ended, after 1.00s";
    assert_eq!(lines[2..], [below]);
    // The waits of killed threads have no row.
    let without_rows = Locks {
        rows: Vec::new(),
        ..locks
    };
    let note = "note: 2 waits were not over when the trace ended, and were not counted";
    assert_eq!(text(without_rows), ["no wait for a lock was counted", note]);
    assert_eq!(text(Locks::default()), ["no thread waited for a lock"]);
}

#[test]
fn at_80_columns_names_of_locks_are_whole() {
    let rows = ["memcached:lru_locks[31]", "memcached:stats_lock"];
    let session = Session {
        locks: Some(Locks {
            by: "lock".into(),
            rows: rows.map(|name| lock(name, false, 4_000_000)).to_vec(),
            ..Locks::default()
        }),
        ..Session::default()
    };
    let options = Options {
        width: Some(80),
        ..Options::default()
    };
    let text: Vec<String> = blocks(&session, &options).concat();
    let want = [
        " total  contended  slept     p50     p99     max  lock (memcached:…, rwlock)",
        "4.00ms      1,200    900  1.00us  2.50ms  2.50ms  lru_locks[31] (read)",
        "         mostly from prog:work+0x1c and 1 more",
    ];
    assert_eq!(text[..3], want);
    assert_eq!(
        text.last().map(|line| &**line),
        Some("(at once: on a wider terminal, or --json)")
    );
}

#[test]
fn estimates_are_marked() {
    let timed = |timed| Lock {
        timed: Some(timed),
        ..lock("prog:cache", false, timed * 1000)
    };
    let session = Session {
        locks: Some(Locks {
            by: "lock".into(),
            rows: vec![timed(20), lock("0x1", false, 9), timed(0)],
            ..Locks::default()
        }),
        budget: Some(0.01),
        ..Session::default()
    };
    let text: Vec<String> = blocks(&session, &Options::default()).concat();
    let totals: Vec<&str> = text
        .iter()
        .map(|line| {
            line.split("  ")
                .find(|cell| !cell.is_empty())
                .unwrap_or_default()
                .trim()
        })
        .collect();
    let marked = ["~20.0us", "9ns", "-"];
    assert!(
        marked.iter().all(|total| totals.contains(total)),
        "{text:#?}"
    );
    let note = "note: ~: times and blame are estimates, because only 20 of 1,800 waits that slept were timed,";
    let notes = notes::lines(&session, &Options::default());
    assert!(notes[0].starts_with(note), "{notes:?}");
}

/// The calls of `none` locks never slept.
fn shown(waits: u64, none: u64, top: Option<usize>) -> String {
    let of = |name: &str, at: u64, slept: u64| Lock {
        slept,
        episodes: 20,
        blame: Vec::new(),
        ..lock(&format!("shopd:{name}_{at}"), false, slept * 900)
    };
    let waits = (0..waits).map(|at| of("waited", at, 3));
    let rows = waits.chain((0..none).map(|at| of("free", at, 0)));
    let session = Session {
        locks: Some(Locks {
            by: "lock".into(),
            rows: rows.collect(),
            ..Locks::default()
        }),
        ..Session::default()
    };
    let options = Options {
        top,
        ..Options::default()
    };
    blocks(&session, &options).concat().join("\n")
}

#[test]
fn locks_without_a_wait_pushed_the_waits_off_the_screen() {
    let sum = "   0ns  in 30 more rows, whose 600 contended calls never slept (--top 0 shows all)";
    let folded = shown(2, 30, None);
    assert!(
        folded.ends_with(sum) && !folded.contains("free_"),
        "{folded}"
    );
    let all = shown(2, 30, Some(0));
    assert!(
        all.contains("free_29") && !all.contains("never slept"),
        "{all}"
    );
    // A sum of a single row would save no line. Without waits, there are no other rows to show.
    for (waits, none) in [(2, 1), (0, 30)] {
        let shown = shown(waits, none, None);
        assert!(
            shown.contains("free_0") && !shown.contains("never slept"),
            "{shown}"
        );
    }
}

#[test]
fn a_call_with_an_unknown_end_was_summed_as_one_that_never_slept() {
    let unknown = |at_once| Lock {
        slept: 0,
        at_once,
        total_ns: 0,
        ..lock("shopd:unknown", false, 0)
    };
    let waited = lock("shopd:waited", false, 900);
    let folded = |at_once| {
        let rows = [waited.clone(), unknown(at_once), unknown(at_once)];
        let (_, none) = with_waits(&rows.each_ref(), &Options::default());
        none.len()
    };
    assert_eq!((folded(1199), folded(1200)), (0, 2));
}
