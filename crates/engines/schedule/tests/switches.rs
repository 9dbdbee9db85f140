//! Tests that after each switch the expected groups count, and only the expected groups were touched.

mod support;

use support::script::check;

#[test]
fn a_cgroup_switch_touches_only_events_of_the_cgroups_left_and_entered() {
    check(
        "siblings",
        4,
        "
        add S system; add A a; add B b -> S |+S
        enter a -> S A | +A
        enter b -> S B | -A +B
        enter . -> S | -B
        enter . -> S |
    ",
    );
    check(
        "common ancestors stay",
        5,
        "
        add S system; add P a; add X a/x; add Y a/y; add D a/y/d -> S
        enter a/x -> S P X | +P +X
        enter a/y/d -> S P Y D | -X +Y +D
        enter a/y -> S P Y | -D
        enter a -> S P | -Y
    ",
    );
}

#[test]
fn cgroups_without_events_are_no_switch() {
    check(
        "none of them has any",
        1,
        "
        add S system; add T system; add A a -> S
        create b; create c -> S |
        enter b -> S |
        enter c -> S |
    ",
    );
    check(
        "below the same one",
        2,
        "
        add A a; create a/x; create a/y -> |
        enter a/x -> A | +A
        enter a/y -> A |
        enter a -> A |
    ",
    );
    check(
        "one that came later",
        2,
        "
        add A a -> |
        create a/late; enter a/late -> A | +A
    ",
    );
}

#[test]
fn a_pinned_cgroup_event_evicts_a_flexible_system_wide_one() {
    check(
        "one for one",
        2,
        "
        add S system; add T system; add A a pinned -> S T
        enter a -> S A | -T +A
        enter . -> S T | -A +T
    ",
    );
    check(
        "of an ancestor",
        2,
        "
        add S system; add T system; add P a pinned; create a/x -> S T
        enter a/x -> S P | -T +P
    ",
    );
    check(
        "as many as needed, and the small one finds room",
        4,
        "
        add S system x2; add T system x2; add U system; add A a pinned x3 -> S T
        enter a -> U A | -S -T +A +U
    ",
    );
    check(
        "while all fits no group makes room",
        3,
        "
        add S system; add T system; add A a pinned -> S T
        enter a -> S T A | +A
    ",
    );
}

#[test]
fn siblings_with_and_without_pinned() {
    check(
        "from pinned to flexible and back",
        2,
        "
        add S system; add T system pinned; add A a pinned; add B b -> S T
        enter a -> T A | -S +A
        enter b -> S T | -A +S
        enter a -> T A | -S +A
    ",
    );
}

#[test]
fn pinned_never_displaces_pinned() {
    check(
        "who comes later is in error",
        2,
        "
        add S system pinned; add T system pinned; add A a pinned -> S T
        enter a -> S T !A |
        enter . -> S T !A |
        off S; enter a -> T !A | -S
        on A -> T A | +A
        on S -> T A !S |
    ",
    );
    check(
        "outer cgroups before inner ones",
        2,
        "
        add S system pinned; add X a/x pinned; add P a pinned -> S
        enter a/x -> S P !X | +P
    ",
    );
    check(
        "a group that is too large for what is left",
        3,
        "
        add S system pinned x2; add A a pinned x2; add B a pinned -> S
        enter a -> S B !A | +B
    ",
    );
    check(
        "an error is of this group alone",
        1,
        "
        add A a pinned; add B b pinned; add C b pinned -> |
        enter b -> B !C
        enter a -> A !C
    ",
    );
}

#[test]
fn groups_go_on_together_or_not_at_all() {
    check(
        "a large one waits for its turn",
        3,
        "
        add S system x2; add T system x2; add U system -> S U
        rotate -> T U | -S +T
        rotate -> S U
    ",
    );
    let mut script = check("none", 2, "add S system x2");
    let wanted = tiptoe_schedule::Request {
        pmu: 0,
        target: tiptoe_schedule::Target::System,
        priority: tiptoe_schedule::Priority::Flexible,
        events: &[tiptoe_schedule::Event(7); 3],
    };
    let refused = script.context.add(&script.tree, wanted, 0).unwrap_err();
    assert_eq!(refused.to_string(), "a group of 3 events for 2 slots");
}

#[test]
fn events_that_the_pmu_refuses_side_by_side() {
    check(
        "a pinned one has others make room",
        3,
        "
        add S system rival; add T system; add A a pinned rival -> S T
        enter a -> T A
        enter . -> S T
    ",
    );
    check(
        "flexible ones take turns though there is a slot",
        3,
        "
        add S system rival; add T system rival -> S
        rotate -> T
        rotate; wait -> S
    ",
    );
    check(
        "two that are pinned",
        3,
        "
        add S system pinned rival; add T system pinned rival -> S !T
    ",
    );
}

#[test]
fn an_event_added_or_removed_mid_run() {
    check(
        "added for the cgroup that runs",
        2,
        "
        add S system; enter a -> S
        add A a -> S A | +A
        add P a pinned -> P A | -S +P
    ",
    );
    check(
        "added for a cgroup between",
        3,
        "
        add S system; add X a/x; enter a/x -> S X
        add P a -> S X P | +P
        enter a -> S P | -X
    ",
    );
    check(
        "removed, and who waited goes on",
        1,
        "
        add S system; enter a; add A a -> S
        remove S -> A
        remove A -> | -?
        enter . -> |
    ",
    );
    check(
        "switched off and on",
        1,
        "
        add S system; add T system -> S
        off S -> T | -S +T
        on S -> T |
        off T -> S | -T +S
    ",
    );
}

#[test]
fn a_cgroup_deleted_mid_run() {
    check(
        "that runs",
        2,
        "
        add S system; add P a; add X a/x; enter a/x -> S P
        remove S -> P X | +X -?
        delete a/x -> P
        enter . -> | -P
        enter a -> P | +P
    ",
    );
    check(
        "that does not",
        1,
        "
        add S system; add A a; add B b -> S
        enter b -> B
        delete a -> B |
        remove B -> S
    ",
    );
}

#[test]
fn a_task_moved_between_cgroups() {
    check(
        "while it runs its own events stay",
        4,
        "
        add S system; add A a; add B b; add T task:1 -> S
        task 1 a -> S A T | +A +T
        enter b -> S B T | -A +B
        task - b -> S B | -T
        task 1 a -> S A T | -B +A +T
    ",
    );
    check(
        "while it waits",
        3,
        "
        add A a; add B b; add T task:1 -> |
        task 1 a -> A T
        task - . -> | -A -T
        task 1 b -> B T | +B +T
    ",
    );
}

#[test]
fn task_switches() {
    check(
        "one for another",
        2,
        "
        add S system; add T task:1; add U task:2 -> S
        task 1 . -> S T | +T
        task 2 . -> S U | -T +U
        task 1 . -> S T | -U +T
    ",
    );
    check(
        "cpu before task where both are pinned",
        1,
        "
        add A a pinned; add T task:1 pinned -> |
        task 1 a -> A !T
    ",
    );
    check(
        "a task's pinned events before flexible ones of the cpu",
        2,
        "
        add S system; add A a; add T task:1 pinned -> S
        task 1 a -> A T
    ",
    );
    check(
        "cpu before task where both have waited as long",
        1,
        "
        add S system; add T task:1; off S ->
        task 1 . ; on S -> T
        off T; on T -> S
    ",
    );
    check(
        "added to the task that runs",
        2,
        "
        add T task -> T
        task 2 . -> | -T
        add U task; add V task -> U V
        task - . -> T
    ",
    );
}

#[test]
fn scopes_of_a_thread_are_switched_as_cgroups_of_a_cpu() {
    check(
        "nested scopes",
        3,
        "
        add All system; add Request request; add Query request/query -> All
        enter request -> All Request | +Request
        enter request/query -> All Request Query | +Query
        enter request -> All Request | -Query
    ",
    );
}

#[test]
fn times_are_of_the_target_s_own_time() {
    let script = check(
        "1 ms a line",
        2,
        "
        add S system; add T system; add A a pinned
        wait
        enter a
        wait
        wait
        enter .
        wait
    ",
    );
    let ms = |name| {
        let times = script.times(name);
        (times.enabled_ns / 1_000_000, times.running_ns / 1_000_000)
    };
    assert_eq!([ms("S"), ms("T"), ms("A")], [(6, 6), (6, 3), (3, 3)]);
}

/// Regression: the task's empty set of groups stayed in the context, so the next task's events were lost.
#[test]
fn a_task_whose_events_are_all_removed_leaves_no_empty_set() {
    check(
        "three tasks",
        3,
        "
        add T task -> T
        remove T -> | -?
        task 1 . -> |
        add U task -> U
        task 2 . -> | -U
        task - . -> |
        add V task -> V | +V
    ",
    );
}
