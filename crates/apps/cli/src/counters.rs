//! Parses `stat`'s lists of events.

use tiptoe_event::counter::CounterFault;
use tiptoe_event::{Counter, CounterError, counter_groups};

use crate::failure::Failure;

/// A group of events, which are counted together or not at all.
#[derive(Debug, PartialEq, Eq)]
pub struct CounterGroup<'a> {
    /// Whether the group must always have its counters. Otherwise it is flexible: it takes turns with other groups.
    pub is_pinned: bool,
    /// The events, the leader first.
    pub events: Vec<Counter<'a>>,
}

/// Parses lists of events and groups. Fails if an event is unknown.
pub fn groups(lists: &[String]) -> Result<Vec<CounterGroup<'_>>, Failure> {
    let groups = lists.iter().flat_map(|list| counter_groups(list));
    groups
        .map(|group| {
            let group = group.map_err(failed)?;
            let events = group.events().collect::<Result<_, _>>().map_err(failed)?;
            let is_pinned = group.is_pinned();
            Ok(CounterGroup { is_pinned, events })
        })
        .collect()
}

/// Returns the failure for an error in a list. Its hint is the names nearest to an unknown name, or an example of a
/// list.
fn failed(error: CounterError<'_>) -> Failure {
    let near: Vec<&str> = error.nearest().into_iter().flatten().collect();
    let hint = match (error.fault, near.is_empty()) {
        (CounterFault::Unknown, true) => {
            "events are named as in `perf list`: cycles, page-faults, rNNN, sched:sched_switch"
                .to_owned()
        }
        (_, true) => {
            "such as cycles,{instructions,branches}:u,page-faults,cache-misses:D".to_owned()
        }
        (_, false) => format!("near: {}", near.join(", ")),
    };
    Failure::new(error.to_string()).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mistake_has_a_hint() {
        for (list, said) in [
            ("cylces", "near: cycles"),
            ("cycles,cylces:u", "no event 'cylces'"),
            ("{cycles", "such as cycles,{instructions"),
            ("nothing-of-the-kind", "as in `perf list`"),
        ] {
            let failure = format!("{:?}", groups(&[list.to_owned()]).expect_err(list));
            assert!(failure.contains(said), "{list}: {failure}");
        }
    }

    #[test]
    fn several_lists_are_joined_in_order() {
        let lists = ["cycles,{cs,faults}:D".to_owned(), "r1".to_owned()];
        let groups = groups(&lists).unwrap();
        let shown = groups
            .iter()
            .map(|group| (group.is_pinned, group.events.len()));
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [(false, 1), (true, 2), (false, 1)]
        );
    }
}
