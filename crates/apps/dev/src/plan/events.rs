use tiptoe_event::{Counter, CounterError, counter_groups};

use crate::failure::Failure;

/// Events that are counted together or not at all.
#[derive(Debug, PartialEq, Eq)]
pub struct PlanGroup {
    /// Whether the group must always have its counters.
    pub is_pinned: bool,
    /// The group's events, the leader first.
    pub events: Vec<PlanEvent>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct PlanEvent {
    pub name: String,
    pub needs_slot: bool,
    /// Whether `stat --for-each-cgroup` reads the event at switches, because the kernel does not count it for each
    /// task.
    pub is_read: bool,
    pub is_at_switches: bool,
}

pub fn parse(lists: &[String]) -> Result<Vec<PlanGroup>, Failure> {
    let groups = lists.iter().flat_map(|list| counter_groups(list));
    let parsed = groups.map(|group| {
        let group = group?;
        Ok(PlanGroup {
            is_pinned: group.is_pinned(),
            events: group.events().map(|event| of(&event)).collect(),
        })
    });
    let parsed: Result<_, CounterError<'_>> = parsed.collect();
    Ok(parsed?)
}

fn of(event: &Counter<'_>) -> PlanEvent {
    PlanEvent {
        name: event.text.to_owned(),
        needs_slot: event.kind.needs_slot(),
        is_read: tiptoe_collector::is_read(event),
        is_at_switches: tiptoe_collector::is_at_switches(event),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(list: &str) -> Vec<(bool, Vec<(String, bool)>)> {
        let groups = parse(&[list.to_owned()]).unwrap();
        let events = |group: &PlanGroup| {
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
    fn only_hardware_events_need_a_counter() {
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
    fn braces_group_events_and_d_pins_them() {
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
