//! Parses `stat`'s lists of events.

use tiptoe_event::counter::CounterFault;
use tiptoe_event::{CounterError, Event, counter_groups};

use crate::failure::Failure;

/// Parses lists of events and groups. Fails if an event is unknown.
pub fn events(lists: &[String]) -> Result<Vec<Event<'_>>, Failure> {
    let groups = lists.iter().flat_map(|list| counter_groups(list));
    let events = groups.map(|group| group.map(Event::Counters));
    events.collect::<Result<_, _>>().map_err(failed)
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
            let failure = format!("{:?}", events(&[list.to_owned()]).expect_err(list));
            assert!(failure.contains(said), "{list}: {failure}");
        }
    }

    #[test]
    fn several_lists_are_joined_in_order() {
        let lists = ["cycles,{cs,faults}:D".to_owned(), "r1".to_owned()];
        let events = events(&lists).unwrap();
        let shown = events.iter().map(|event| match event {
            Event::Counters(group) => (group.is_pinned(), group.events().count()),
            other => panic!("{other:?}"),
        });
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [(false, 1), (true, 2), (false, 1)]
        );
    }
}
