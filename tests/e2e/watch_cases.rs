//! `tiptoe watch`: each access counts once, on any thread, with the stored value. Each row of the tables names its
//! backends (values of `--via`).

use serde_json::{Map, Value, json};
use tiptoe_tests::{Run, scaled, target};

use crate::watch::{EVERY, KERNELS, on, rows, said, watch};

const AUTO_TOO: &[&str] = &["auto", "kernel", "kernel-task", "agent"];
const AUTO: &[&str] = &["auto"];
const TASK: &[&str] = &["kernel-task"];
const AGENT: &[&str] = &["agent"];

/// Returns what a scenario may compare: the report's `watch`, with rows by function and additional keys.
fn parts(run: &Run) -> Value {
    let report = run.good();
    let mut by_function = Map::new();
    for row in rows(report) {
        let at = row["at"].as_str().expect("a place");
        let function = match row["in_kernel"] == true {
            true => "the kernel",
            false => at.split([':', '+']).nth(1).unwrap_or(at),
        };
        let found = by_function.entry(function).or_insert(Value::Null);
        *found = match found.is_null() {
            true => row.clone(),
            false => "several rows".into(),
        };
    }
    let mut parts = report.value["watch"].clone();
    let all = parts["variables"].as_array().expect("variables");
    let hits: Value = all
        .iter()
        .map(|variable| variable["hits"].clone())
        .collect();
    let is_whole = parts["drops"].is_null() && all.iter().all(|one| one["at_least"] == false);
    parts["hits"] = hits;
    parts["whole"] = is_whole.into();
    parts["row_count"] = rows(report).len().into();
    parts["rows"] = by_function.into();
    parts["notes"] = report.value["notes"].clone();
    parts["stderr"] = run.stderr.as_str().into();
    parts["stdout"] = String::from_utf8_lossy(&run.stdout).into();
    parts
}

fn assert_part(run: &Run, path: &str, expected: &Value, found: &Value) {
    let text = found.as_str().map_or(found.to_string(), str::to_owned);
    let is_as_expected = match expected {
        Value::Object(keys) => {
            for (key, expected) in keys {
                let path = format!("{path}/{key}");
                match (key.as_str(), found.as_array()) {
                    ("*", Some(all)) => all
                        .iter()
                        .for_each(|one| assert_part(run, &path, expected, one)),
                    (key, _) => {
                        let found = found.pointer(&format!("/{key}"));
                        assert_part(run, &path, expected, found.unwrap_or(&Value::Null));
                    }
                }
            }
            true
        }
        Value::String(rule) => match rule.split_at(1) {
            ("#", "") => found.is_u64(),
            ("~", words) => text.contains(words),
            ("!", words) => !text.contains(words),
            ("$", word) => *found == said(run, word),
            _ => found == expected,
        },
        _ => found == expected,
    };
    assert!(
        is_as_expected,
        "{path}: expected {expected}, found {found} in {:#}",
        parts(run)
    );
}

/// Parts below a backend's name are expected only of that backend.
fn check(backends: &[&str], arguments: &[String], options: &[&str], expected: &Value) {
    let (program, arguments) = arguments.split_first().expect("a program");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    on(backends, |via| {
        println!("{program} {arguments:?} {options:?} --via {via}");
        let run = watch(options)
            .with(&["--via", via])
            .run(&target(program), &arguments);
        let parts = parts(&run);
        for (key, expected) in expected.as_object().expect("parts") {
            let expected = match EVERY.contains(&key.as_str()) {
                true if key != via => continue,
                true => expected.clone(),
                false => json!({ key: expected }),
            };
            assert_part(&run, via, &expected, &parts);
        }
    });
}

/// Makes a test of each name. Its rows are the backends, the target with its arguments, the options, and the expected
/// [`parts`]. An expected `~TEXT` must be in the found text, and `!TEXT` must not. `$WORD` is the number that the
/// target prints after WORD, `#` any number, and the key `*` every element.
macro_rules! scenarios {
    ($($(#[$about:meta])* $name:ident: $([$backends:ident] [$($argument:expr),*] [$($option:literal),*] $expected:tt)+)*) => {$(
        $(#[$about])*
        #[test]
        fn $name() {
            $(check($backends, &[$($argument.to_string()),*], &[$($option),*], &json!($expected));)+
        }
    )*};
}

scenarios! {
    the_thread_that_corrupts_a_variable_is_named:
        [AUTO_TOO] ["watched", "corrupt", 1] ["stats.state", "--changed"] {
            "whole": true, "row_count": 1,
            "rows/scribble": {"count": 1, "last_old": "1", "last_new": "57005", "racy": 0, "tid": "#",
                              "stacks/0/callers": "~watched:one_of_many+"}
        }

    threads_that_start_and_end_inherit_the_watch:
        [EVERY] ["watched", "churn", scaled(10_000)] ["total"] {
            "whole": true, "hits/0": "$total", "row_count": 1,
            "rows/add": {"count": "$total", "changed": "$total", "tid": null, "stacks/0/callers": "~watched:link_of_chain+"}
        }

    each_racing_store_has_its_own_value:
        [EVERY] ["watched", "race", scaled(500_000)] ["owner"] {
            "whole": true,
            "rows/store_one": {"count": scaled(500_000), "racy": 0, "values": [{"value": "1", "count": scaled(500_000)}]},
            "rows/store_two": {"count": scaled(500_000), "racy": 0, "values": [{"value": "2", "count": scaled(500_000)}]}
        }
        [EVERY] ["watched", "race", scaled(100_000)] ["owner", "--by", "thread"] {
            "whole": true,
            "rows/store_one": {"count": scaled(100_000), "racy": 0, "values": [{"value": "1", "count": scaled(100_000)}]},
            "rows/store_two": {"count": scaled(100_000), "racy": 0, "values": [{"value": "2", "count": scaled(100_000)}]}
        }

    // The agent (tiptoe's library) does not see the stores by read(2).
    values_are_printed_by_their_types:
        [EVERY] ["watched", "values", 1] ["stats.level", "mode", "stats.state"] {
            "whole": true,
            "rows/set_level": {"values": [{"value": "-5", "count": 3}, {"value": "7", "count": 1}], "changed": 2,
                               "stacks": {"*": {"callers/0": "~watched:values+"}}},
            "rows/values": {"last_old": "IDLE", "last_new": "BUSY"},
            "kernel": {"rows/the kernel": {"variable": "watched:stats.state", "last_new": "0"}},
            "kernel-task": {"rows/the kernel": {"variable": "watched:stats.state", "last_new": "0"}},
            "agent": {"sees_kernel": false, "rows/the kernel": null}
        }

    conditions_select_accesses:
        [EVERY] ["watched", "values", 1] ["stats.level", "--when", "new == -5 && old != new"] {
            "hits": [4],
            "rows/set_level": {"count": 1, "last_new": "-5", "values": [{"value": "-5", "count": 1}]}
        }
        [EVERY] ["watched", "values", 1] ["stats.level", "--when", "new > 100"] {"hits": [4], "row_count": 0}

    executions_of_an_instruction_are_counted:
        [EVERY] ["watched", "values", 1] ["set_level:x"] {
            "rows/set_level": {"at": "~watched:set_level+0x0 (watched.c:", "count": 4, "changed": 0,
                               "stacks/0/callers": "~watched:values+"}
        }

    // Breakpoints of CPUs are also hit by other processes.
    stores_of_a_child_are_not_the_programs:
        [EVERY] ["watched", "forked", 1] ["stats.hits"] {
            "hits": [20], "kernel": {"foreign": 30}, "kernel-task": {"foreign": 0}
        }

    all_registers_may_be_used:
        [EVERY] ["watched", "forked", 1] ["stats.hits", "stats.state", "owner", "total", "--all-slots"] {"hits/0": 20}

    a_pointer_that_is_never_set_is_reported:
        [EVERY] ["watched", "counting", 10] ["late->next"] {
            "hits": [0], "notes": "~`watched:late->next` was never watched"
        }

    the_watch_ends_with_its_process:
        [EVERY] ["watched", "again", 1] ["stats.hits"] {
            "hits": [1], "notes": "~called exec", "stderr": "!called exec"
        }

    stores_on_a_stack_without_room_for_a_signal_are_seen:
        [EVERY] ["small_stacks", "coroutine"] ["total"] {"whole": true, "hits/0": "$total"}
        [EVERY] ["small_stacks", "exhausted"] ["total"] {"whole": true, "hits/0": "$total"}
        [EVERY] ["small_stacks", "handled"] ["total"] {"whole": true, "hits/0": "$total"}

    /// The agent's thread must be absent while the program enters a user namespace. After 1,000 stores with SIGTRAP
    /// blocked, one signal is pending, which names no instruction.
    a_programs_own_traps_reach_its_handler:
        [EVERY] ["trapping", "handled"] ["total"] {
            "whole": true, "stdout": "total 1200 traps 200\n", "rows/add/count": 1000, "rows/on_trap/count": 200
        }
        [EVERY] ["trapping", "blocked"] ["total"] {"whole": true, "rows/add/count": 1000}
        [EVERY] ["trapping", "unshared"] ["total"] {"whole": true, "rows/add/count": 20}
        [EVERY] ["trapping", "hidden"] ["total"] {
            "stdout": "~total 1010 ",
            "kernel": {"whole": true, "rows/add/count": 1010}, "kernel-task": {"whole": true, "rows/add/count": 1010},
            "agent": {"rows/add/count": 10, "variables/0/at_least": true, "drops": "~blocked SIGTRAP"}
        }

    /// Some virtual machines lose a trap's cause. Such a trap would kill the program if the agent passed it on.
    traps_without_a_reason_are_not_the_programs:
        [AGENT] ["trapping", "strays"] ["total"] {
            "stdout": "total 6 traps 1\n", "hits": [6], "drops": "~the trap had no cause", "variables/0/at_least": true
        }
}

struct Refusal {
    backends: &'static [&'static str],
    options: &'static [&'static str],
    words: &'static [&'static str],
}

macro_rules! refusals {
    ($([$backends:ident] [$($option:literal),*] $($words:literal),+;)*) => {
        &[$(Refusal { backends: $backends, options: &[$($option),*], words: &[$($words),+] }),*]
    };
}

const REFUSALS: &[Refusal] = refusals! {
    [EVERY] ["nothing"] "no variable `nothing`";
    [EVERY] ["stats.hitz"] "no member `hitz`", "`hits`";
    [EVERY] ["stats"] "stats", "1, 2, 4 or 8";
    [EVERY] ["stats.flag"] "bit field";
    [EVERY] ["stats.hits:r"] "reads alone", "rw";
    [EVERY] ["stats.hits:3"] "not a length";
    [EVERY] ["0x1001:8"] "no multiple of 8";
    [EVERY] ["0x1000:8"] "no memory is mapped";
    [EVERY] ["scribble"] "is a function", "scribble:x";
    [KERNELS] ["libc.so.6:environ"] "no binary `libc", "not loaded";
    [EVERY] ["owner", "--when", "new = 1"] "new = 1";
    [EVERY] ["share", "--when", "new > 1"] "share";
    [EVERY] ["own_node->next"] "each thread has its own `own_node->next`";
    // Regression: of two watches through one unset pointer, the second counted nothing.
    [EVERY] ["late->next", "late->next:4"] "are at the same address";
    [AUTO] ["stats.hits", "stats.state", "owner", "total"] "--all-slots";
    [TASK] ["stats.hits", "stats.state", "owner", "total"]
        "no debug register left on cpu 0 for thread", "'watched:stats.hits'", "one is left to them", "--all-slots";
    [AGENT] ["stats.hits", "stats.state", "owner", "total"]
        "'watched:stats.hits'", "one is left to them", "--all-slots";
    [AUTO] ["stats.hits", "owner", "mode", "stats.state"] "cpu-wide 'watched:stats.hits'", "--rotate";
    [EVERY] ["mode", "--rotate", "1ms"] "10 ms or longer";
    [EVERY] ["stats.hits/pinned/", "owner/pinned/", "mode/pinned/", "stats.state/pinned/", "--rotate", "100ms"]
        "4 pinned events for 3 slots", "/pinned/";
};

#[test]
fn what_cannot_be_watched_is_refused() {
    on(AUTO_TOO, |via| {
        for refusal in REFUSALS.iter().filter(|row| row.backends.contains(&via)) {
            let options = refusal.options;
            let run = watch(options).with(&["--via", via]);
            let run = run.run(&target("watched"), &["hot", "1"]);
            assert_eq!(run.status, 2, "{options:?}: {}", run.stderr);
            assert!(run.stdout.is_empty(), "{options:?}: it has run");
            for words in refusal.words {
                let is_said = run.stderr.contains(words);
                assert!(is_said, "{options:?}: no `{words}` in {}", run.stderr);
            }
        }
    });
}
