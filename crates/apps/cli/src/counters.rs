//! Parses `stat`'s lists of events.

use tiptoe_event::{Counter, counter_groups};

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
            let group = group?;
            let events = group.events().collect::<Result<_, _>>()?;
            let is_pinned = group.is_pinned();
            Ok(CounterGroup { is_pinned, events })
        })
        .collect()
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
            let failure = groups(&[list.to_owned()]).expect_err(list);
            let lines = format!("{failure}\n{}", failure.hint().unwrap());
            assert!(lines.contains(said), "{list}: {lines}");
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
