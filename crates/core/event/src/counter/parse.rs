use super::modifiers::Modifiers;
use super::{Counter, CounterError, CounterFault, CounterGroup, names};

/// Splits a list at commas outside braces and slashes, up to the first error.
pub(super) fn items(list: &str) -> impl Iterator<Item = Result<&str, CounterError<'_>>> {
    let mut rest = Some(list);
    core::iter::from_fn(move || {
        let text = rest.take()?;
        let end = match item_end(text) {
            Ok(end) => end,
            Err(fault) => return Some(Err(CounterError { text: list, fault })),
        };
        let (item, after) = text.split_at(end);
        rest = after.strip_prefix(',');
        Some(Ok(item.trim()))
    })
}

fn item_end(text: &str) -> Result<usize, CounterFault> {
    let (mut in_braces, mut in_slashes) = (false, false);
    for (at, letter) in text.char_indices() {
        match letter {
            '{' | '}' if !in_slashes => {
                if in_braces == (letter == '{') {
                    return Err(CounterFault::Braces);
                }
                in_braces = letter == '{';
            }
            '/' => in_slashes = !in_slashes,
            ',' if !in_braces && !in_slashes => return Ok(at),
            _ => {}
        }
    }
    match in_braces || in_slashes {
        true => Err(CounterFault::NotClosed),
        false => Ok(text.len()),
    }
}

pub(super) fn group(item: &str) -> Result<CounterGroup<'_>, CounterError<'_>> {
    let fault = |fault| CounterError { text: item, fault };
    let group = match item.strip_prefix('{') {
        None => CounterGroup {
            events: item,
            modifiers: Modifiers::default(),
        },
        Some(inner) => {
            // Braces between slashes belong to no group, so the last brace closes this group.
            let (events, after) = inner
                .rsplit_once('}')
                .ok_or_else(|| fault(CounterFault::NotClosed))?;
            let modifiers = match after.strip_prefix(':') {
                Some(modifiers) => Modifiers::read(modifiers).map_err(fault)?,
                None if after.is_empty() => Modifiers::default(),
                None => return Err(fault(CounterFault::AfterGroup)),
            };
            CounterGroup { events, modifiers }
        }
    };
    events(group.events, group.modifiers).try_for_each(|event| event.map(|_| ()))?;
    Ok(group)
}

pub(super) fn events(
    list: &str,
    of_group: Modifiers,
) -> impl Iterator<Item = Result<Counter<'_>, CounterError<'_>>> {
    items(list).map(move |item| {
        let mut event = event(item?)?;
        let all = event.modifiers.and(of_group);
        event.is_modified_by_group = all != event.modifiers;
        event.modifiers = all;
        Ok(event)
    })
}

fn event(text: &str) -> Result<Counter<'_>, CounterError<'_>> {
    let fault = |fault| CounterError { text, fault };
    if text.is_empty() {
        return Err(fault(CounterFault::NoEvent));
    }
    let (name, modifiers) = name_and_modifiers(text);
    let modifiers = modifiers.map_or(Ok(Modifiers::default()), Modifiers::read);
    let modifiers = modifiers.map_err(fault)?;
    let kind = names::kind(name).ok_or(CounterError {
        text: name,
        fault: CounterFault::Unknown,
    })?;
    Ok(Counter {
        text,
        name,
        kind,
        modifiers,
        is_modified_by_group: false,
    })
}

/// Splits `cycles:u`, `cpu/event=0x3c/u`, `sched:sched_switch:u`.
fn name_and_modifiers(text: &str) -> (&str, Option<&str>) {
    if let Some(slash) = text.rfind('/') {
        let (name, after) = text.split_at(slash + 1);
        let modifiers = match after.strip_prefix(':') {
            Some(modifiers) => Some(modifiers),
            None => (!after.is_empty()).then_some(after),
        };
        return (name, modifiers);
    }
    match text.rsplit_once(':') {
        Some((name, modifiers)) if names::kind(name).is_some() => (name, Some(modifiers)),
        // `cylces:u` is a misspelled event with a modifier, no tracepoint.
        Some((name, modifiers)) if !name.contains(':') && Modifiers::read(modifiers).is_ok() => {
            (name, Some(modifiers))
        }
        _ => (text, None),
    }
}
