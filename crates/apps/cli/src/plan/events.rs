//! Events by perf's names, as far as a plan has to know them: whether they need a counter, and what goes together.

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
}

/// What the CPU's counters count.
const HARDWARE: &[&str] = &[
    "cycles",
    "cpu-cycles",
    "instructions",
    "cache-references",
    "cache-misses",
    "branches",
    "branch-instructions",
    "branch-misses",
    "bus-cycles",
    "ref-cycles",
    "stalled-cycles-frontend",
    "idle-cycles-frontend",
    "stalled-cycles-backend",
    "idle-cycles-backend",
    "L1-dcache-loads",
    "L1-dcache-load-misses",
    "L1-dcache-stores",
    "L1-dcache-store-misses",
    "L1-dcache-prefetches",
    "L1-dcache-prefetch-misses",
    "L1-icache-loads",
    "L1-icache-load-misses",
    "LLC-loads",
    "LLC-load-misses",
    "LLC-stores",
    "LLC-store-misses",
    "LLC-prefetches",
    "LLC-prefetch-misses",
    "dTLB-loads",
    "dTLB-load-misses",
    "dTLB-stores",
    "dTLB-store-misses",
    "iTLB-loads",
    "iTLB-load-misses",
    "branch-loads",
    "branch-load-misses",
    "node-loads",
    "node-load-misses",
    "node-stores",
    "node-store-misses",
];

/// What the kernel counts by itself.
const SOFTWARE: &[&str] = &[
    "cpu-clock",
    "task-clock",
    "page-faults",
    "faults",
    "context-switches",
    "cs",
    "cpu-migrations",
    "migrations",
    "minor-faults",
    "major-faults",
    "alignment-faults",
    "emulation-faults",
    "cgroup-switches",
    "bpf-output",
    "dummy",
];

/// What may stand behind a colon.
const MODIFIERS: &str = "ukhIGHPpSDWeb";

/// Reads lists of events and groups.
pub fn parse(lists: &[String]) -> Result<Vec<Group>, Failure> {
    let groups = lists
        .iter()
        .map(|list| items(list)?.iter().map(|item| group(item)).collect());
    let groups: Vec<Vec<Group>> = groups.collect::<Result<_, Failure>>()?;
    Ok(groups.into_iter().flatten().collect())
}

/// Cut at commas that are in neither braces nor slashes.
fn items(list: &str) -> Result<Vec<String>, Failure> {
    let mut items = vec![String::new()];
    let (mut in_braces, mut in_slashes) = (false, false);
    for letter in list.chars() {
        match letter {
            '{' | '}' if !in_slashes => {
                if in_braces == (letter == '{') {
                    return Err(bad(list, "the braces do not match"));
                }
                in_braces = letter == '{';
            }
            '/' => in_slashes = !in_slashes,
            _ => {}
        }
        match letter {
            ',' if !in_braces && !in_slashes => items.push(String::new()),
            _ => items.last_mut().expect("there is one").push(letter),
        }
    }
    match in_braces || in_slashes {
        true => Err(bad(list, "a brace or slash is not closed")),
        false => Ok(items.iter().map(|item| item.trim().to_owned()).collect()),
    }
}

/// One item: an event, or a group in braces.
fn group(item: &str) -> Result<Group, Failure> {
    let Some(inner) = item.strip_prefix('{') else {
        let (event, is_pinned) = event(item)?;
        let events = vec![event];
        return Ok(Group { is_pinned, events });
    };
    let (inner, behind) = inner
        .split_once('}')
        .ok_or_else(|| bad(item, "'}' is missing"))?;
    let of_group = match behind.strip_prefix(':') {
        Some(modifiers) => is_pinned(item, modifiers)?,
        None if behind.is_empty() => false,
        None => return Err(bad(item, "only modifiers go behind a group")),
    };
    let events = items(inner)?;
    let events: Vec<(Event, bool)> = events
        .iter()
        .map(|item| event(item))
        .collect::<Result<_, _>>()?;
    // As with perf, a group is as its leader is.
    let of_leader = events.first().is_some_and(|(_, is_pinned)| *is_pinned);
    Ok(Group {
        is_pinned: of_group || of_leader,
        events: events.into_iter().map(|(event, _)| event).collect(),
    })
}

/// An event, and whether it is pinned.
fn event(text: &str) -> Result<(Event, bool), Failure> {
    if text.is_empty() {
        return Err(bad(text, "an event is missing"));
    }
    let (name, modifiers) = name_and_modifiers(text);
    let is_pinned = modifiers.map_or(Ok(false), |modifiers| is_pinned(text, modifiers))?;
    let needs_slot = needs_slot(name).ok_or_else(|| unknown(name))?;
    let event = Event {
        name: text.to_owned(),
        needs_slot,
    };
    Ok((event, is_pinned))
}

/// `cycles:u`, `cpu/event=0x3c/u`, `sched:sched_switch:u`.
fn name_and_modifiers(text: &str) -> (&str, Option<&str>) {
    if let Some((terms, modifiers)) = text.rsplit_once('/') {
        let modifiers = modifiers.strip_prefix(':').unwrap_or(modifiers);
        return (
            &text[..terms.len() + 1],
            (!modifiers.is_empty()).then_some(modifiers),
        );
    }
    match text.rsplit_once(':') {
        Some((name, modifiers)) if needs_slot(name).is_some() => (name, Some(modifiers)),
        Some((name, modifiers))
            if modifiers.chars().all(|m| MODIFIERS.contains(m)) && !name.contains(':') =>
        {
            // `cylces:u` is a mistake in the name, not a tracepoint called `u`.
            (name, Some(modifiers))
        }
        _ => (text, None),
    }
}

/// `None` where there is no such event.
fn needs_slot(name: &str) -> Option<bool> {
    if HARDWARE.contains(&name) {
        return Some(true);
    }
    let is_word = |text: &str| {
        !text.is_empty()
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    };
    let raw = name.strip_prefix('r').is_some_and(|hex| {
        !hex.is_empty() && hex.len() <= 16 && hex.chars().all(|c| c.is_ascii_hexdigit())
    });
    let terms = name.strip_suffix('/').and_then(|name| name.split_once('/'));
    if raw || terms.is_some_and(|(pmu, terms)| is_word(pmu) && !terms.is_empty()) {
        return Some(true);
    }
    let tracepoint = name.split_once(':');
    let tracepoint = tracepoint.is_some_and(|(group, name)| is_word(group) && is_word(name));
    (SOFTWARE.contains(&name) || tracepoint).then_some(false)
}

fn is_pinned(text: &str, modifiers: &str) -> Result<bool, Failure> {
    match modifiers
        .chars()
        .find(|modifier| !MODIFIERS.contains(*modifier))
    {
        Some(modifier) => Err(bad(text, &format!("no modifier '{modifier}'"))),
        None if modifiers.is_empty() => Err(bad(text, "a modifier is missing behind ':'")),
        None => Ok(modifiers.contains('D')),
    }
}

fn bad(text: &str, what: &str) -> Failure {
    Failure::new(format!("'{text}': {what}"))
        .hint("such as cycles,{instructions,branches}:u,page-faults,cache-misses:D")
}

/// With the names that are nearest.
fn unknown(name: &str) -> Failure {
    let known = HARDWARE.iter().chain(SOFTWARE);
    let mut near: Vec<(usize, &str)> = known
        .map(|known| (strsim::damerau_levenshtein(name, known), *known))
        .collect();
    near.sort_unstable();
    let near: Vec<&str> = near
        .iter()
        .take(3)
        .filter(|(far, _)| *far <= 4)
        .map(|(_, name)| *name)
        .collect();
    let hint = match near.is_empty() {
        true => "events are named as in 'perf list': cycles, page-faults, rNNN, sched:sched_switch"
            .to_owned(),
        false => format!("near: {}", near.join(", ")),
    };
    Failure::new(format!("no event '{name}'")).hint(hint)
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
    fn events_are_named_as_perf_names_them() {
        let one = |list: &str| short(list)[0].1[0].1;
        for name in [
            "cycles",
            "cycles:u",
            "LLC-load-misses",
            "r1a8",
            "r1a8:uk",
            "cpu/event=0x3c,umask=0x0/",
            "cpu/cycles/u",
        ] {
            assert!(one(name), "{name}");
        }
        for name in [
            "page-faults",
            "cs",
            "sched:sched_switch",
            "sched:sched_switch:u",
            "task-clock:u",
        ] {
            assert!(!one(name), "{name}");
        }
        assert_eq!(short("cycles, cs").len(), 2);
    }

    #[test]
    fn groups_and_pinned_ones() {
        let names = |groups: Vec<(bool, Vec<(String, bool)>)>| -> Vec<(bool, usize)> {
            groups
                .iter()
                .map(|(pinned, events)| (*pinned, events.len()))
                .collect()
        };
        assert_eq!(
            names(short(
                "{cycles,instructions},cs:D,{branches:D,branch-misses},{cycles,cs}:uD"
            )),
            [(false, 2), (true, 1), (true, 2), (true, 2)]
        );
    }

    #[test]
    fn what_is_no_event_is_refused() {
        for (list, what) in [
            ("", "an event is missing"),
            ("cycles,", "an event is missing"),
            ("{cycles", "not closed"),
            ("cycles}", "do not match"),
            ("{{cycles}}", "do not match"),
            ("{cycles}x", "only modifiers"),
            ("{}", "an event is missing"),
            ("cycles:q", "no modifier 'q'"),
            ("cycles:", "a modifier is missing"),
            ("cylces", "no event 'cylces'"),
            ("cylces:u", "no event 'cylces'"),
            ("cpu/event=1", "not closed"),
        ] {
            let refused = format!("{:?}", parse(&[list.to_owned()]).unwrap_err());
            assert!(refused.contains(what), "{list}: {refused}");
        }
        let near = format!("{:?}", parse(&["cylces".to_owned()]).unwrap_err());
        assert!(near.contains("near: cycles"), "{near}");
    }
}
