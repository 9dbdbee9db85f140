//! Intervals, one line each while the trace runs.

use tiptoe_session::{CountPart, Interval};

use crate::number::{rate, seconds};
use crate::{Options, event_name, printable_json, printable_lines};

/// The number of events that one line names.
const NAMED: usize = 4;

/// Returns one interval as JSON without a line end: an item of the session's `intervals`.
pub fn interval_json(interval: &Interval) -> Result<String, serde_json::Error> {
    printable_json(serde_json::to_string(interval))
}

/// Returns one interval as a line: its end, the rate of all events, and the rates of the busiest events.
pub fn interval(interval: &Interval, options: &Options) -> String {
    let mut parts: Vec<&CountPart> = interval.counts.iter().collect();
    parts.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.key.cmp(&b.key)));
    let total = parts.iter().map(|part| part.count).sum();
    let mut line = format!(
        "{:>10}  {:>14}/s",
        seconds(interval.at_ns),
        lower_bound_mark(parts.iter().any(|part| part.at_least))
            + &rate(total, interval.duration_ns)
    );
    for part in parts.iter().take(NAMED) {
        let rate = lower_bound_mark(part.at_least) + &rate(part.count, interval.duration_ns);
        line += &format!("  {} {rate}/s", event_name(&part.key));
    }
    if parts.len() > NAMED {
        line += &format!("  and {} more", parts.len() - NAMED);
    }
    printable_lines(&options.fit(&line))
}

/// Returns the mark before a lower bound; empty for an exact number.
fn lower_bound_mark(is_bound: bool) -> String {
    if is_bound { ">=" } else { "" }.to_owned()
}
