//! Events as far as a plan has to know them: whether they need a counter, and what goes together.

use crate::counters;
use crate::failure::Failure;

/// Events that count together or not at all.
#[derive(Debug, PartialEq, Eq)]
pub struct Group {
    /// They give way to nobody.
    pub is_pinned: bool,
    /// The first is the leader.
    pub events: Vec<Event>,
}

/// One event.
#[derive(Debug, PartialEq, Eq)]
pub struct Event {
    /// As it was given.
    pub name: String,
    /// Whether it needs one of the CPU's counters.
    pub needs_slot: bool,
    /// Whether `stat --for-each-cgroup` reads it at switches, as no task's own fields tell of it.
    pub is_read: bool,
    /// Whether it takes time at switches there: those that are read do, and what is counted at them.
    pub is_at_switches: bool,
}

/// Reads lists of events and groups.
pub fn parse(lists: &[String]) -> Result<Vec<Group>, Failure> {
    let groups = counters::groups(lists)?.into_iter().map(|group| {
        let events = group.events.iter().map(|event| Event {
            name: event.text.to_owned(),
            needs_slot: event.kind.needs_slot(),
            is_read: tiptoe_collector::is_read(event),
            is_at_switches: tiptoe_collector::is_at_switches(event),
        });
        Group {
            is_pinned: group.is_pinned,
            events: events.collect(),
        }
    });
    Ok(groups.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(list: &str) -> Vec<(bool, Vec<(String, bool)>)> {
        let groups = parse(&[list.to_owned()]).unwrap();
        let events = |group: &Group| {
            let events = group.events.iter();
            events
                .map(|event| (event.name.clone(), event.needs_slot))
                .collect()
        };
        groups
            .iter()
            .map(|group| (group.is_pinned, events(group)))
            .collect()
    }

    #[test]
    fn counters_are_told_from_what_the_kernel_counts() {
        let one = |list: &str| short(list)[0].1[0].1;
        for name in ["cycles:u", "LLC-load-misses", "r1a8:uk", "cpu/cycles/u"] {
            assert!(one(name), "{name}");
        }
        for name in ["page-faults", "cs", "sched:sched_switch:u", "task-clock:u"] {
            assert!(!one(name), "{name}");
        }
        assert_eq!(short("cycles, cs").len(), 2);
    }

    #[test]
    fn groups_and_pinned_ones() {
        let groups = short("{cycles,instructions},cs:D,{branches:D,branch-misses},{cycles,cs}:uD");
        let shown = groups
            .iter()
            .map(|(pinned, events)| (*pinned, events.len()));
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [(false, 2), (true, 1), (true, 2), (true, 2)]
        );
    }
}
