//! Numbers in sentences.

/// So many of a thing: `1 hit`, `2 hits`.
pub fn counted(count: u64, noun: &str) -> String {
    let end = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{end}")
}
