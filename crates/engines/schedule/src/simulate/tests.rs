use super::*;
use crate::Label;

const MS: u64 = 1_000_000;

fn wanted(target: Target, priority: Priority, events: u32) -> GroupRequest {
    GroupRequest {
        target,
        priority,
        events,
        needs_slots: true,
    }
}

fn machine(cgroups: u32) -> (Tree, Vec<Label>, Vec<GroupRequest>) {
    let mut tree = Tree::new();
    let parent = tree.create(Label::ROOT).unwrap();
    let labels = (0..cgroups).map(|_| tree.create(parent).unwrap());
    let labels: Vec<Label> = labels.collect();
    let flexible = |target| wanted(target, Priority::Flexible, 2);
    let mut groups = alloc::vec![flexible(Target::System), flexible(Target::Label(parent))];
    groups.extend(labels.iter().map(|label| flexible(Target::Label(*label))));
    (tree, labels, groups)
}

fn run(slots: u32, policy: Policy, seed: u64) -> Outcome {
    let (tree, labels, groups) = machine(6);
    let machine = Machine {
        tree: &tree,
        groups: &groups,
        slots,
        turn_ns: 4 * MS,
        operation_ns: 80,
    };
    let mut cpu = machine.cpu(policy).unwrap();
    let ms = if cfg!(miri) { 3 } else { 300 };
    cpu.run(Synthetic::new(&labels, MS / 10, seed), ms * MS, seed);
    cpu.outcome()
}

#[test]
fn while_all_fits_only_the_cgroups_own_events_move() {
    let ours = run(6, Policy::Changed, 1);
    let whole = run(6, Policy::Everything, 1);
    assert_eq!(ours.switches, whole.switches);
    // Each switch replaces a leaf's two events; the first switch has no old leaf, but adds the parent's two events.
    assert_eq!(ours.operations(), 4 * ours.switches - 2 + 2);
    assert_eq!(whole.operations(), 12 * whole.switches - 6 + 2);
    for (group, of_whole) in ours.groups.iter().zip(&whole.groups) {
        assert_eq!((group.times.missed_ns(), group.blind_ns), (0, 0));
        assert_eq!((group.count, group.error()), (group.work, Some(0)));
        assert_eq!(of_whole.times.missed_ns(), 0, "own times show no miss");
    }
    assert!(whole.groups[0].blind_ns > whole.switches * 80);
}

#[test]
fn the_same_seed_gives_the_same_numbers() {
    assert_eq!(run(4, Policy::Changed, 7), run(4, Policy::Changed, 7));
    assert_ne!(run(4, Policy::Changed, 7), run(4, Policy::Changed, 8));
}

#[test]
fn with_scarce_slots_less_is_moved_and_no_more_missed() {
    let ours = run(4, Policy::Changed, 1);
    let whole = run(4, Policy::Everything, 1);
    assert!(ours.operations() < whole.operations());
    for group in &ours.groups {
        assert!(group.times.running_ns <= group.times.enabled_ns);
        assert!(group.times.running_ns > 0 || cfg!(miri));
    }
    let missed = |outcome: &Outcome| {
        let missed = outcome.groups.iter().map(|group| group.times.missed_ns());
        missed.sum::<u64>()
    };
    let (ours, whole) = (missed(&ours), missed(&whole));
    assert!(ours.abs_diff(whole) < whole / 10, "{ours} and {whole}");
}

#[test]
fn outcomes_of_cpus_add_up() {
    let (one, other) = (run(4, Policy::Changed, 1), run(4, Policy::Changed, 2));
    let mut both = Outcome::default();
    both += &one;
    both += &other;
    assert_eq!(both.switches, one.switches + other.switches);
    assert_eq!(
        both.groups[3].work,
        one.groups[3].work + other.groups[3].work
    );
}

#[test]
fn a_recorded_trace_has_a_known_answer() {
    let mut tree = Tree::new();
    let [a, b] = [(); 2].map(|()| tree.create(Label::ROOT).unwrap());
    let groups = [
        wanted(Target::System, Priority::Flexible, 1),
        wanted(Target::Label(a), Priority::Pinned, 1),
        wanted(Target::Label(b), Priority::Pinned, 2),
        GroupRequest {
            needs_slots: false,
            ..wanted(Target::Label(b), Priority::Flexible, 1)
        },
    ];
    let machine = Machine {
        tree: &tree,
        groups: &groups,
        slots: 1,
        turn_ns: 4 * MS,
        operation_ns: 100,
    };
    let error = machine.cpu(Policy::Changed).unwrap_err();
    assert_eq!(
        error,
        AddError::TooLarge {
            events: 2,
            slots: 1
        }
    );
    let machine = Machine {
        slots: 2,
        ..machine
    };
    let mut cpu = machine.cpu(Policy::Changed).unwrap();
    let at = |ms: u64, label| Switch {
        at_ns: ms * MS,
        label,
    };
    let switches = [at(1, a), at(3, b), at(6, Label::ROOT)];
    cpu.run(switches, 10 * MS, 0);
    let outcome = cpu.outcome();
    let ms = |at: usize| {
        let times = outcome.groups[at].times;
        (times.enabled_ns / MS, times.running_ns / MS)
    };
    assert_eq!(
        [ms(0), ms(1), ms(2), ms(3)],
        [(10, 7), (2, 2), (3, 3), (3, 3)]
    );
    assert_eq!((outcome.added, outcome.deleted), (5, 5));
    assert_eq!(outcome.groups[0].blind_ns, 0);
}

/// If everything fits, no label misses anything.
#[test]
fn charges_add_up_to_the_counts() {
    let (tree, labels, _) = machine(6);
    for (slots, fits) in [(3, true), (2, false)] {
        let groups = [1, 1, 1].map(|events| wanted(Target::System, Priority::Flexible, events));
        let machine = Machine {
            tree: &tree,
            groups: &groups,
            slots,
            turn_ns: 4 * MS,
            operation_ns: 80,
        };
        let mut charges = Charges::new(machine.cpu(Policy::Changed).unwrap());
        let ms = if cfg!(miri) { 3 } else { 300 };
        charges.run(Synthetic::new(&labels, MS / 10, 3), ms * MS, 3);
        let outcome = charges.outcome(labels.iter().copied());
        assert_eq!(outcome.groups.len(), 3 * (1 + labels.len()));
        let (system, of_labels) = outcome.groups.split_at(3);
        for (at, system) in system.iter().enumerate() {
            let mine = || of_labels.iter().skip(at).step_by(3);
            let sum = |part: fn(&GroupOutcome) -> u64| mine().map(part).sum::<u64>();
            assert_eq!(sum(|group| group.count), system.count);
            assert_eq!(sum(|group| group.work), system.work);
            assert_eq!(sum(|group| group.times.running_ns), system.times.running_ns);
            assert_eq!(sum(|group| group.times.enabled_ns), system.times.enabled_ns);
            let exact =
                |group: &GroupOutcome| group.error() == Some(0) && group.times.missed_ns() == 0;
            assert_eq!(mine().all(exact), fits, "{slots} slots");
        }
        assert_eq!(outcome.operations() == 0, fits);
    }
}
