//! The holders of a lock while others wait, compared with the program's own measurement.

use std::collections::BTreeMap;

use serde_json::Value;
use tiptoe_tests::{Probe, rust_target, scaled, skipped, target};

use crate::locks::rows;

const SCENARIOS: [&str; 9] = [
    // Regression: eight quick threads, which wake each other, were blamed for a slow thread's holds.
    "barging",
    // Regression: each holder wakes one waiter, so all holders were blamed equally.
    "turns",
    "mixed",
    "many",
    "short",
    "trylock",
    "writers",
    // Regression: the last reader was blamed for all readers.
    "readers",
    "conditions",
];
const TYPES: [&str; 5] = [
    "recursive",
    "errorcheck",
    "adaptive",
    "robust",
    "inheriting",
];

/// For how many ns other threads waited while each function held the lock.
type WaitNsByHolder = BTreeMap<String, u64>;

fn function(site: &str) -> &str {
    let (_, function) = site.split_once(':').unwrap_or(("", site));
    function.split_once('+').map_or(function, |(name, _)| name)
}

fn role(holder: &Value) -> String {
    let text = |what: &str| holder[what].as_str();
    match (text("callsite"), text("thread")) {
        (Some(site), _) => function(site).to_owned(),
        (None, Some(thread)) => {
            let (_, name) = thread.split_once(' ').expect("an id and a name");
            name.to_owned()
        }
        (None, None) => {
            assert_eq!(holder["readers"], true, "{holder:#}");
            "readers".to_owned()
        }
    }
}

/// Returns what the report and the program say; `None` if random addresses left no room for a patch.
fn measure_holders(scenario: &str, kind: &str, ms: u64) -> Option<[WaitNsByHolder; 2]> {
    let program = target("holders");
    let run = Probe::lock().run(&program, &[scenario, &ms.to_string(), kind]);
    let report = run.good();
    if let Some(refused) = report.value["refusals"].as_array() {
        skipped(&format!("{scenario} {kind}"), &format!("{refused:?}"));
        return None;
    }
    let mut reported = WaitNsByHolder::new();
    let all = rows(report);
    let slept = |row: &&Value| row["idle"] == false && row["total_ns"] != 0;
    for row in all.iter().filter(slept) {
        let holders = row["holders"].as_array().map_or(&[][..], Vec::as_slice);
        assert!(!holders.is_empty(), "{scenario} {kind}: {row:#}");
        for holder in holders {
            let ns = holder["total_ns"].as_u64().expect("a time");
            *reported.entry(role(holder)).or_default() += ns;
        }
    }
    Some([reported, run.expected().0])
}

fn longest(held: &WaitNsByHolder) -> &str {
    let longest = held.iter().max_by_key(|(_, ns)| **ns);
    longest.expect("a holder").0
}

fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    let plain = SCENARIOS.map(|scenario| (scenario, "normal"));
    let types = TYPES.map(|kind| ("turns", kind));
    let waits_after_conditions = ["inheriting", "robust"].map(|kind| ("conditions", kind));
    plain.into_iter().chain(types).chain(waits_after_conditions)
}

#[test]
fn the_longest_holder_is_named_first() {
    let quickly = ["barging", "turns", "readers", "conditions"];
    for (scenario, kind) in all().filter(|(scenario, kind)| {
        quickly.contains(scenario) && matches!(*kind, "normal" | "inheriting")
    }) {
        let Some([reported, own]) = measure_holders(scenario, kind, 200) else {
            continue;
        };
        assert_eq!(
            longest(&reported),
            longest(&own),
            "{scenario} {kind}: {reported:#?} {own:#?}"
        );
    }
}

#[test]
#[ignore = "nightly: asserts shares of time"]
fn each_holder_has_its_share() {
    for (scenario, kind) in all() {
        let Some([reported, own]) = measure_holders(scenario, kind, 1000) else {
            continue;
        };
        let share = |held: &WaitNsByHolder, role: &str| {
            let all: u64 = held.values().sum();
            let ns = held.get(role).copied().unwrap_or(0);
            100.0 * ns as f64 / all as f64
        };
        let roles = reported.keys().chain(own.keys());
        for role in roles {
            let [told_share, own_share] = [&reported, &own].map(|held| share(held, role));
            assert!(
                (told_share - own_share).abs() <= 5.0,
                "{scenario} {kind}: {role}: {reported:#?} {own:#?}"
            );
        }
    }
}

#[test]
fn locks_that_record_no_owner_have_only_wakers() {
    let rounds = scaled(400_000).to_string();
    let cases = [
        (
            target("contended"),
            &["syscall", "stdio", "sem", "cond"][..],
        ),
        (rust_target("contended_rust"), &["mutex", "lot_mutex"]),
    ];
    for (program, kinds) in cases {
        for kind in kinds {
            let run = Probe::lock().run(&program, &[kind, &rounds]);
            // Only a condition's mutex records its holder.
            let none = rows(run.good()).iter().filter(|row| row["type"] != "mutex");
            for row in none {
                assert!(row["holders"].is_null(), "{kind}: {row:#}");
            }
        }
    }
}

#[test]
fn a_holder_that_is_no_thread_is_unknown() {
    let run = Probe::lock().run(&target("holders"), &["forged", "200", "normal"]);
    for row in rows(run.good()) {
        assert!(row["holders"].is_null(), "{row:#}");
        assert!(row["blame"].is_array(), "{row:#}");
    }
}
