//! Lists of counters.

use tiptoe_event::counter::{Modifiers, counter_names};
use tiptoe_event::{Counter, CounterError, CounterKind, counter_groups};

fn parse(list: &str) -> Result<Vec<(usize, Counter<'_>)>, CounterError<'_>> {
    let mut all = Vec::new();
    for (at, group) in counter_groups(list).enumerate() {
        all.extend(group?.events().map(|event| (at, event)));
    }
    Ok(all)
}

fn one(list: &str) -> Counter<'_> {
    match parse(list).expect(list)[..] {
        [(0, event)] => event,
        ref other => panic!("{list}: {other:?}"),
    }
}

#[test]
fn names_stand_for_what_the_kernel_calls_them() {
    use CounterKind::{Cache, Hardware, Pmu, Raw, Software, Tracepoint};
    for (name, kind, needs_slot) in [
        ("cycles", Hardware(0), true),
        ("cpu-cycles", Hardware(0), true),
        ("branch-misses", Hardware(5), true),
        ("ref-cycles", Hardware(9), true),
        ("L1-dcache-loads", Cache(0), true),
        ("LLC-load-misses", Cache(0x1_0002), true),
        ("dTLB-store-misses", Cache(0x1_0103), true),
        ("node-prefetches", Cache(0x206), true),
        ("cpu-clock", Software(0), false),
        ("cs", Software(3), false),
        ("faults", Software(2), false),
        ("cgroup-switches", Software(11), false),
        ("r1a8", Raw(0x1a8), true),
        ("rffffffffffffffff", Raw(u64::MAX), true),
        (
            "sched:sched_switch",
            Tracepoint {
                group: "sched",
                name: "sched_switch",
            },
            false,
        ),
        (
            "cpu/event=0x3c,umask=0x0/",
            Pmu {
                pmu: "cpu",
                terms: "event=0x3c,umask=0x0",
            },
            true,
        ),
        (
            "uncore_imc-0/cas_count_read/",
            Pmu {
                pmu: "uncore_imc-0",
                terms: "cas_count_read",
            },
            true,
        ),
    ] {
        let event = one(name);
        assert_eq!((event.text, event.kind), (name, kind));
        assert_eq!(event.kind.needs_slot(), needs_slot, "{name}");
        assert_eq!(event.modifiers, Modifiers::default(), "{name}");
    }
    for name in counter_names() {
        assert_eq!(one(name).text, name);
    }
}

#[test]
fn modifiers_are_perfs() {
    let shown = |list: &str| {
        let m = one(list).modifiers;
        let where_it_counts = [m.counts_user(), m.counts_kernel(), m.counts_hypervisor()];
        (where_it_counts, m.pinned)
    };
    for (list, counts, pinned) in [
        ("cycles", [true, true, true], false),
        ("cycles:u", [true, false, false], false),
        ("cycles:k", [false, true, false], false),
        ("cycles:h", [false, false, true], false),
        ("cycles:uk", [true, true, false], false),
        ("cycles:uD", [true, false, false], true),
        ("{cycles}:uD", [true, false, false], true),
        ("{cycles:k}:u", [true, true, false], false),
        ("cpu/event=1/u", [true, false, false], false),
        ("cpu/event=1/:uD", [true, false, false], true),
        ("sched:sched_switch:u", [true, false, false], false),
        ("r1a8:D", [true, true, true], true),
    ] {
        assert_eq!(shown(list), (counts, pinned), "{list}");
    }
    let all = one("cycles:ukhGHIDepppPSW").modifiers;
    assert!(all.guest && all.host && all.not_idle && all.exclusive && all.precise == 3);
}

#[test]
fn modifiers_of_a_group_are_shown_as_letters() {
    for (list, shown) in [
        ("{cs}:uD", Some("cs:uD")),
        ("{cs:k}:u", Some("cs:uk")),
        ("{cpu/x/u}:pp", Some("cpu/x/:upp")),
        ("{cs:u}:u", None),
        ("cs:u", None),
    ] {
        let event = one(list);
        let all = format!("{}:{}", event.name, event.modifiers);
        assert_eq!(
            event.is_modified_by_group.then_some(all.as_str()),
            shown,
            "{list}"
        );
        let again = one(&all);
        assert_eq!((again.kind, again.modifiers), (event.kind, event.modifiers));
    }
}

#[test]
fn groups_are_kept_together_and_pinned_as_their_leader() {
    let list = " {cycles,cpu/event=1,umask=2/},cs:D , {branches:D,branch-misses},{cycles,cs}:uD";
    let groups: Vec<_> = counter_groups(list).map(Result::unwrap).collect();
    let shown = groups
        .iter()
        .map(|group| (group.is_pinned(), group.events().count()));
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [(false, 2), (true, 1), (true, 2), (true, 2)]
    );
    let events = parse(list).unwrap();
    assert_eq!(events[1].1.text, "cpu/event=1,umask=2/");
    assert!(!events[4].1.modifiers.pinned, "branch-misses itself");
}

#[test]
fn wrong_lists_are_refused() {
    for (list, message) in [
        ("", "'': an event is missing"),
        ("cycles,", "'': an event is missing"),
        ("{cycles", "'{cycles': a brace or slash is not closed"),
        ("cycles}", "'cycles}': the braces do not match"),
        ("{{cycles}}", "'{{cycles}}': the braces do not match"),
        (
            "{cycles}x",
            "'{cycles}x': only modifiers may follow a group",
        ),
        ("{cycles}:", "'{cycles}:': a modifier is missing after ':'"),
        ("{}", "'': an event is missing"),
        ("cycles:q", "'cycles:q': no modifier 'q'"),
        ("cycles:pppp", "'cycles:pppp': no modifier 'p'"),
        ("cycles:", "'cycles:': a modifier is missing after ':'"),
        ("cylces", "no event 'cylces'"),
        ("cylces:u", "no event 'cylces'"),
        ("cycles:\nu", "'cycles:\\nu': no modifier '\\n'"),
        (
            "cpu/event=1",
            "'cpu/event=1': a brace or slash is not closed",
        ),
        ("cpu//", "no event 'cpu//'"),
        ("../../x/y/", "no event '../../x/y/'"),
        ("r+1", "no event 'r+1'"),
        ("r1ffffffffffffffff", "no event 'r1ffffffffffffffff'"),
        ("sched:", "no event 'sched:'"),
        ("a:b:c:d", "no event 'a:b:c:d'"),
    ] {
        let refused = parse(list).expect_err(list);
        assert_eq!(refused.to_string(), message, "{list}");
    }
    let refused = parse("cylces").unwrap_err();
    assert_eq!(refused.nearest()[0], Some("cycles"));
    assert_eq!(parse("cycles:q").unwrap_err().nearest(), [None; 3]);
}

#[test]
fn parsing_ends_after_an_error() {
    assert_eq!(counter_groups("cycles,{cs").count(), 2);
    assert_eq!(counter_groups("{cs,cycles").count(), 1);
}
