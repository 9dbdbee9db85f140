//! Lists of counters. Errors must name a part of the text, and each event must be the same if parsed alone.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tiptoe_event::{CounterError, counter_groups};

fuzz_target!(|list: &str| {
    let refused = |error: CounterError<'_>| {
        assert!(list.contains(error.text) && !error.to_string().is_empty());
        let near = error.nearest();
        assert!(near.is_sorted_by_key(|name| name.is_none()));
    };
    for group in counter_groups(list) {
        let group = match group {
            Ok(group) => group,
            Err(error) => return refused(error),
        };
        for event in group.events() {
            assert!(list.contains(event.text));
            let again = counter_groups(event.text).next();
            let again = again
                .and_then(Result::ok)
                .and_then(|group| group.events().next());
            let again = again.expect("it is read again");
            assert_eq!(
                (again.text, again.kind),
                (event.text, event.kind),
                "{list:?}"
            );
            let (own, all) = (again.modifiers, event.modifiers);
            assert!(all.pinned >= own.pinned && all.user >= own.user);
            let shown = format!("{}:{all}", event.name);
            let shown = shown.strip_suffix(':').unwrap_or(&shown);
            let again = counter_groups(shown).next().and_then(Result::ok);
            let again = again.and_then(|group| group.events().next());
            // In `a:u:W`, the ignored `W` shows that `a:u` is a tracepoint. Alone, `a:u` is an event `a` with the
            // modifier `u`.
            let is_name_alone = shown == event.name && event.text != event.name;
            let again = again.map(|again| again.modifiers);
            assert!(is_name_alone || again == Some(all), "{shown:?}: {again:?}");
            assert_eq!(event.is_modified_by_group, own != all);
        }
    }
});
