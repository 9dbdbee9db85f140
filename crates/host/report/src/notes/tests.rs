use tiptoe_session::{
    CgroupFault, Event, EventNote, FunctionNote, KernelNote, LockNote, Locks, Process, ProcessNote,
    StatNote, Via,
};

use super::*;

fn ended(pid: u32, signal: Option<i32>) -> Note {
    let process = Process::from((pid, "a\n".to_owned()));
    let after_ns = u64::from(pid) * 1_000_000_000;
    ProcessNote::Ended {
        process,
        signal,
        after_ns,
    }
    .into()
}

fn in_kernel(place: &str) -> Note {
    let (place, why) = (place.to_owned(), "its code holds data".to_owned());
    LockNote::PlaceInKernel { place, why }.into()
}

#[test]
fn many_notes_of_one_kind_are_folded_and_warnings_are_first() {
    let mut session = Session {
        locks: Some(Locks {
            unfinished: 3,
            ..Locks::default()
        }),
        ..Session::default()
    };
    let places = ["libfoo.so:ns::f(int, char)", "g", "h", "i", "j"];
    session.notes.extend(places.map(in_kernel));
    session
        .notes
        .extend((1..=429).map(|pid| ended(pid, Some(9))));
    let options = Options::default();
    let seen = "are seen through the kernel's futex tracepoints: its code holds data";
    assert_eq!(
        lines(&session, &options),
        [
            "warning: process 1 (a\\n) was killed by signal 9 (SIGKILL) after 1.0 s",
            "warning: process 2 (a\\n) was killed by signal 9 (SIGKILL) after 2.0 s",
            "warning: process 3 (a\\n) was killed by signal 9 (SIGKILL) after 3.0 s",
            "warning: … and 426 more like these: `-v` prints them",
            "note: 3 waits were not over when the trace ended, and were not counted",
            &format!("note: futex calls at libfoo.so:ns::f(int, char) {seen}"),
            &format!("note: futex calls at g {seen}"),
            &format!("note: futex calls at h {seen}"),
            "note: … and 2 more like these: `-v` prints them",
        ]
    );
    let all = Options {
        all_notes: true,
        ..options
    };
    assert_eq!(lines(&session, &all).len(), 1 + session.notes.len());
    session.notes.truncate(4);
    assert_eq!(
        lines(&session, &options).len(),
        1 + 4,
        "one more is no shorter"
    );
}

#[test]
fn events_without_a_hit_say_why() {
    let event = |name: &str, count| {
        let reading = tiptoe_event::Reading {
            count,
            ..Default::default()
        };
        Event::new(format!("uprobe:a:{name}"), Via::Agent, reading)
    };
    let mut session = Session {
        events: vec![event("f", 0), event("g", 3)],
        ..Session::default()
    };
    let why = "never hit: no such call was made in this time";
    let of_f = format!("note: a:f was {why}");
    let options = Options::default();
    assert_eq!(lines(&session, &options), [of_f.as_str()]);
    let (places, within) = (2, vec!["main".to_owned()]);
    session.events[0].notes = vec![EventNote::Inlined { places, within }.into()];
    let ns = tiptoe_event::Cost::default();
    session.cost.add_forks(1, ns, 0);
    let untraced = "; not traced: inlined copies, the child that was started meanwhile";
    assert_eq!(lines(&session, &options), [of_f.clone() + untraced]);
    session.events.push(event("h", 0));
    let both = format!("note: 2 events were {why}{untraced}");
    assert_eq!(lines(&session, &options), [both]);
    // A glob's events without a hit are summed in the table, and no note names them.
    session.events.extend(["i", "j"].map(|name| event(name, 0)));
    assert!(lines(&session, &options).is_empty());
    session.events.remove(1);
    assert_eq!(lines(&session, &options).len(), 1);
    session.stat = Some(tiptoe_session::Stat::default());
    assert!(lines(&session, &options).is_empty(), "counts are no calls");
    session.stat = None;
    session.notes.push(ProcessNote::EndedInDelay.into());
    assert_eq!(lines(&session, &options).len(), 1, "it says why itself");
}

#[test]
fn many_notes_of_one_kind_are_printed_once_during_a_run() {
    let mut live = LiveNotes::default();
    let lines: Vec<String> = (1..=20)
        .filter_map(|pid| live.line(&ended(pid, None)))
        .collect();
    assert_eq!(lines.len(), SHOWN + 1);
    assert_eq!(lines[0], "warning: process 1 (a\\n) ended after 1.0 s");
    assert_eq!(
        lines[SHOWN],
        "warning: … more like these are not printed one by one"
    );
    let spec = "f".to_owned();
    let other = live.line(&FunctionNote::WaitsForLibrary { spec }.into());
    assert!(other.is_some_and(|line| line.starts_with("note: `f` matches nothing")));
}

/// Regression: the severity was derived from the sentence's words, so that a process's or file's name turned a
/// note into a warning.
#[test]
fn names_do_not_make_a_warning_of_a_note() {
    for name in ["missing", "lost", "another tracer", "not counted"] {
        let note = LiveNotes::default().line(&in_kernel(name));
        assert!(
            note.is_some_and(|line| line.starts_with("note: ")),
            "{name}"
        );
    }
}

#[test]
fn notes_of_different_kinds_are_not_folded() {
    let process = Process::from((7, "a".to_owned()));
    let started = [ProcessNote::StartedLate, ProcessNote::EndedInDelay];
    let mut session = Session::default();
    session.notes.extend(started.map(Note::from));
    session.notes.push(ended(7, None));
    let failed = ProcessNote::NotDetached {
        process,
        why: "it is stopped".into(),
    };
    session.notes.push(failed.into());
    let kinds = by_kind(session.notes.iter().map(NoteLine::of).collect());
    assert_eq!(kinds.len(), session.notes.len());
}

/// Regression: a crash after three normal ends was hidden, as were all faults after the third.
#[test]
fn notes_of_one_kind_but_different_meaning_were_folded() {
    let faults = [
        CgroupFault::UnknownTasks,
        CgroupFault::UnreportedSwitches,
        CgroupFault::MissedSwitches,
        CgroupFault::MovedTasks,
        CgroupFault::UnreadEvents,
    ];
    let amiss = |what| Note::from(StatNote::Amiss { what, count: 7 });
    let mut session = Session::default();
    session.notes.extend(faults.map(amiss));
    session.notes.extend((1..=5).map(|pid| ended(pid, None)));
    session.notes.push(ended(6, Some(11)));
    session.notes.push(ended(7, Some(9)));
    let mut live = LiveNotes::default();
    let printed = session.notes.iter().filter_map(|note| live.line(note));
    let printed: Vec<String> = printed.collect();
    let report = lines(&session, &Options::default());
    for all in [printed, report] {
        let amiss = all.iter().filter(|line| line.contains("warning: 7 "));
        assert_eq!(amiss.count(), faults.len(), "{all:#?}");
        for name in ["SIGSEGV", "SIGKILL"] {
            assert!(all.iter().any(|line| line.contains(name)), "{all:#?}");
        }
        assert_eq!(all.len(), faults.len() + (SHOWN + 1) + 2, "{all:#?}");
    }
}

#[test]
fn notes_with_different_causes_were_folded() {
    let by_kernel = |(pid, why): (u32, &str)| {
        let (pid, why) = (Some(pid), why.replace("PID", &pid.to_string()));
        Note::from(KernelNote::Traces { pid, why })
    };
    let (musl, seccomp) = ("process PID runs on musl", "process PID is under seccomp");
    let mut session = Session {
        notes: (1..=9).map(|pid| by_kernel((pid, musl))).collect(),
        ..Session::default()
    };
    session.notes.push(by_kernel((10, seccomp)));
    let mut live = LiveNotes::default();
    let printed = session.notes.iter().filter_map(|note| live.line(note));
    let printed: Vec<String> = printed.collect();
    for all in [printed, lines(&session, &Options::default())] {
        assert_eq!(all.len(), SHOWN + 2, "{all:#?}");
        assert!(all[SHOWN + 1].contains("is under seccomp"), "{all:#?}");
    }
}

#[test]
fn equal_notes_were_repeated() {
    let no_symbols = |path: &str| FunctionNote::NoSymbols {
        path: path.to_owned(),
        nameless: 2,
        functions: 3,
        remedy: "install its debug symbols".to_owned(),
    };
    let mut session = Session::default();
    for path in ["/sbin/nginx", "/lib/libz.so", "/sbin/nginx", "/sbin/nginx"] {
        session.notes.push(no_symbols(path).into());
    }
    let all = lines(&session, &Options::default());
    assert_eq!(all.len(), 2, "{all:#?}");
    assert!(
        all[0].contains("nginx") && all[0].ends_with(" (3 times)"),
        "{all:#?}"
    );
    assert!(
        all[1].contains("libz") && !all[1].contains(" times"),
        "{all:#?}"
    );
}

/// A session from a version whose notes had no kinds.
#[test]
fn an_old_session_prints_its_sentences() {
    let old = include_str!("../../tests/sessions/without-kinds.json");
    let session: Session = serde_json::from_str(old).expect("an old session is readable");
    assert_eq!((session.version, session.notes.len()), (0, 0));
    let text = crate::text(&session, &Options::default());
    assert!(
        text.contains("\nnote: `libtwo.so:*` matched nothing that was loaded\n"),
        "{text}"
    );
    assert!(
        text.contains("dictFind  (2 functions of this name)\n"),
        "{text}"
    );
    let again = crate::json(session.clone()).expect("JSON");
    assert_eq!(
        serde_json::from_str::<Session>(&again).expect("a session"),
        session
    );
}
