//! Waits inside a standard library that was compiled into the program are reported by the program's names.

use serde_json::Value;
use tiptoe_tests::{Probe, Process, Run, is_root, rust_target, skipped, target, target_with};

fn rows(run: &Run) -> Vec<Value> {
    let rows = run.good().value["locks"]["rows"].as_array();
    rows.expect("the locks").clone()
}

fn text<'a>(row: &'a Value, what: &str) -> &'a str {
    row[what].as_str().unwrap_or_default()
}

fn ways() -> Vec<Probe> {
    let mut ways = vec![Probe::lock()];
    match is_root() {
        true => ways.push(Probe::lock().with(&["--via", "kernel"])),
        false => skipped("--via kernel", "needs root"),
    }
    ways
}

#[test]
fn waits_in_templates_are_the_programs_own() {
    // Our BPF programs cannot unwind unoptimized code, because they do not find callers by %rbp.
    for (flags, kernel) in [
        (&["-DAPART", "-O0"][..], false),
        (&["-DAPART", "-O1"], true),
    ] {
        let program = target_with("runtime_waits", flags).expect("it compiles");
        let name = program
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        for kind in [
            "mutex",
            "read",
            "condition",
            "semaphore",
            "latch",
            "atomic",
            "future",
        ] {
            for way in ways().into_iter().skip(usize::from(kernel)).take(1) {
                // tiptoe attaches, because a command's waits may end before tiptoe has read its libraries.
                let mut waiting = Process::waiting(&program, &[kind]);
                let ours = way.attach(&[waiting.pid()]);
                ours.wait_ready();
                waiting.go();
                assert!(waiting.finish().1.success(), "{kind}");
                let rows = ours.finish().value["locks"]["rows"].clone();
                let rows = rows.as_array().expect("the locks");
                let own = format!("{name}:wait_{kind}+");
                let mut sites = rows.iter().map(|row| text(row, "callsite"));
                assert!(sites.any(|site| site.starts_with(&own)), "{own}: {rows:#?}");
            }
        }
    }
}

/// Regression: call sites and wakers were in `std`, because BPF programs do not unwind by frame pointers.
#[test]
fn waits_of_rust_are_the_programs_own() {
    let program = rust_target("contended_rust");
    for kind in [
        "mutex",
        "rwlock",
        "condvar",
        "barrier",
        "mpsc",
        "park",
        "lot_mutex",
        "lot_rwlock",
        "lot_condvar",
    ] {
        let mut waiting = Process::waiting(&program, &[kind, "3000"]);
        let ours = Probe::lock().attach(&[waiting.pid()]);
        ours.wait_ready();
        waiting.go();
        let said = waiting.line();
        assert!(said.starts_with("done "), "{kind}: {said:?}");
        let report = ours.interrupt();
        assert!(waiting.finish().1.success(), "{kind}");
        let rows = report.value["locks"]["rows"].as_array().expect("the locks");
        for row in rows.iter().filter(|row| row["type"] == "futex") {
            let blame = row["blame"].as_array().into_iter().flatten();
            let sites = blame.map(|blame| text(blame, "callsite"));
            // If a thread's closure was inlined into this caller, the stack has no other function of the program.
            let sites = sites.chain([text(row, "callsite")]);
            let sites = sites.filter(|site| !site.contains("__rust_begin_short_backtrace"));
            for site in sites {
                let own = site.strip_prefix("contended_rust:").unwrap_or_default();
                let own = own.trim_start_matches('<');
                assert!(own.starts_with("contended_rust::"), "{kind}: {row:#}");
            }
        }
    }
}

/// Regression: waits had the name of libstdc++'s table of proxies.
#[test]
fn atomics_without_a_futex_have_their_names() {
    for way in ways() {
        let run = way.run(&target("cxx_waits"), &[]);
        let rows = rows(&run);
        for (lock, site) in [
            ("at_int", "wait_int"),
            ("at_long", "wait_long"),
            ("flag", "wait_flag"),
            ("sem", "wait_sem"),
            ("bar", "wait_bar"),
        ] {
            let named = |row: &&Value| text(row, "lock") == format!("cxx_waits:{lock}");
            let row = rows.iter().find(named);
            let row = row.unwrap_or_else(|| panic!("{lock}: {rows:#?}"));
            assert!(row["slept"].as_u64() >= Some(1), "{row:#}");
            assert!(
                text(row, "callsite").starts_with(&format!("cxx_waits:{site}+")),
                "{row:#}"
            );
            assert!(
                text(&row["blame"][0], "callsite").starts_with("cxx_waits:main+"),
                "{row:#}"
            );
        }
    }
}

#[test]
fn locks_of_cpp_are_named_as_in_their_source() {
    let program = target("cxx_locks");
    let run = Probe::lock().run(&program, &[]);
    let rows = rows(&run);
    for name in [
        "ns::m_ns",
        "ns::C::m_cls",
        "ns::fn()::m_fn",
        "ns::T<int>::m_t",
        "ns::m_static",
        "ns::(anonymous namespace)::m_anon",
    ] {
        let mut locks = rows.iter().map(|row| text(row, "lock"));
        assert!(
            locks.any(|lock| lock == format!("cxx_locks:{name}")),
            "{name}: {rows:#?}"
        );
        let held = Probe::lock().with(&["--hold", name]).run(&program, &[]);
        let holds = held.good().value["locks"]["holds"].clone();
        let counts = holds.as_array().expect("holds").iter();
        let counts: Option<u64> = counts.map(|hold| hold["count"].as_u64()).sum();
        assert_eq!(counts, Some(6), "{name}: {holds:#}");
    }
}
