//! The grammar of lists, groups and events.

use super::modifiers::Modifiers;
use super::{Counter, CounterError, CounterFault, CounterGroup, names};

/// Cuts at commas that are in neither braces nor slashes. After a mistake nothing more comes.
pub(super) fn items(list: &str) -> impl Iterator<Item = Result<&str, CounterError<'_>>> {
    let mut rest = Some(list);
    core::iter::from_fn(move || {
        let text = rest.take()?;
        let end = match item_end(text) {
            Ok(end) => end,
            Err(fault) => return Some(Err(CounterError { text: list, fault })),
        };
        let (item, behind) = text.split_at(end);
        rest = behind.strip_prefix(',');
        Some(Ok(item.trim()))
    })
}

/// Where the first item ends.
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

/// One item: an event, or a group in braces.
pub(super) fn group(item: &str) -> Result<CounterGroup<'_>, CounterError<'_>> {
    let fault = |fault| CounterError { text: item, fault };
    let Some(inner) = item.strip_prefix('{') else {
        // So that a list's mistakes are told in their order.
        event(item)?;
        return Ok(CounterGroup {
            events: item,
            is_braced: false,
            modifiers: Modifiers::default(),
        });
    };
    // Braces within slashes belong to no group: the last one that closes is this one's.
    let (events, behind) = inner
        .rsplit_once('}')
        .ok_or_else(|| fault(CounterFault::NotClosed))?;
    let modifiers = match behind.strip_prefix(':') {
        Some(modifiers) => Modifiers::read(modifiers).map_err(fault)?,
        None if behind.is_empty() => Modifiers::default(),
        None => return Err(fault(CounterFault::BehindGroup)),
    };
    Ok(CounterGroup {
        events,
        is_braced: true,
        modifiers,
    })
}

/// One event with its modifiers.
pub(super) fn event(text: &str) -> Result<Counter<'_>, CounterError<'_>> {
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

/// `cycles:u`, `cpu/event=0x3c/u`, `sched:sched_switch:u`.
fn name_and_modifiers(text: &str) -> (&str, Option<&str>) {
    if let Some(slash) = text.rfind('/') {
        let (name, behind) = text.split_at(slash + 1);
        let modifiers = match behind.strip_prefix(':') {
            Some(modifiers) => Some(modifiers),
            None => (!behind.is_empty()).then_some(behind),
        };
        return (name, modifiers);
    }
    match text.rsplit_once(':') {
        Some((name, modifiers)) if names::kind(name).is_some() => (name, Some(modifiers)),
        // `cylces:u` is a mistake in the name, not a tracepoint called `u`.
        Some((name, modifiers)) if !name.contains(':') && Modifiers::read(modifiers).is_ok() => {
            (name, Some(modifiers))
        }
        _ => (text, None),
    }
}
