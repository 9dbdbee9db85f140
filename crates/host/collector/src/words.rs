//! Numbers in sentences.

use tiptoe_session::Dropped;

/// So many of a thing: `1 hit`, `2 hits`.
pub fn counted(count: u64, noun: &str) -> String {
    let end = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{end}")
}

/// Each reason for which something was dropped.
pub fn dropped<const N: usize>(reasons: [(u64, &str); N]) -> Vec<Dropped> {
    let some = reasons.into_iter().filter(|(count, _)| *count > 0);
    some.map(|(count, reason)| Dropped {
        reason: reason.to_owned(),
        count,
    })
    .collect()
}
