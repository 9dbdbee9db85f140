//! The refused events, grouped by reason.

use std::collections::BTreeMap;

use tiptoe_session::Refusal;

use crate::columns::whole;
use crate::number::grouped;
use crate::style::TextRole;
use crate::{Options, printable};

const EXAMPLES: usize = 3;

pub(crate) fn rows(refusals: &[Refusal], options: &Options) -> Vec<String> {
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for refusal in refusals {
        let events = by_reason.entry(&refusal.reason).or_default();
        events.push(&refusal.event);
    }
    let mut reasons: Vec<_> = by_reason.into_iter().collect();
    reasons.sort_by_key(|(_, events)| std::cmp::Reverse(events.len()));
    let heading = format!("not traced: {}", grouped(refusals.len() as u64));
    let rows = reasons
        .iter()
        .flat_map(|(reason, events)| refusal_lines(reason, events, options));
    std::iter::once(options.styled(TextRole::Warning, &heading))
        .chain(rows)
        .collect()
}

fn refusal_lines(reason: &str, events: &[&str], options: &Options) -> Vec<String> {
    let examples: Vec<String> = events.iter().take(EXAMPLES).map(|e| whole(e)).collect();
    let more = match events.len() - examples.len() {
        0 => String::new(),
        more => format!(" and {} more", grouped(more as u64)),
    };
    let count = grouped(events.len() as u64);
    let (reason, examples) = (printable(reason), examples.join(", "));
    options.wrapped(
        &format!("{count:>14}  "),
        &format!("{reason}: {examples}{more}"),
    )
}
