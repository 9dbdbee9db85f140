//! Parses `stat`'s lists of events.

use tiptoe_event::{Event, counter_groups};

use crate::failure::Failure;
use crate::other_command;

pub fn events(lists: &[String]) -> Result<Vec<Event<'_>>, Failure> {
    lists
        .iter()
        .try_for_each(|list| other_command::refuse(list, "stat"))?;
    let groups = lists.iter().flat_map(|list| counter_groups(list));
    let events = groups.map(|group| group.map(Event::Counters));
    Ok(events.collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mistake_has_a_hint() {
        for (list, said) in [
            ("cylces", "similar names: cycles"),
            ("cycles,cylces:u", "no event 'cylces'"),
            ("{cycles", "such as cycles,{instructions"),
            ("nothing-of-the-kind", "as in `perf list`"),
        ] {
            let failure = events(&[list.to_owned()]).expect_err(list);
            let lines = format!("{failure}\n{}", failure.hint().unwrap());
            assert!(lines.contains(said), "{list}: {lines}");
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
