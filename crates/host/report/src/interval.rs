//! Formats intervals, one line each.

use tiptoe_session::{CountPart, Interval};

use crate::columns::joined;
use crate::grid::common_prefix;
use crate::number::{rate, seconds};
use crate::{Options, event_name, printable_lines};

const NAMED: usize = 4;

/// Returns one interval: its end, the rate of all events, and the rates of the busiest events. On a terminal, a
/// binary that all events share is printed once.
pub fn interval(interval: &Interval, options: &Options) -> String {
    let mut parts: Vec<&CountPart> = interval.counts.iter().collect();
    parts.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.key.cmp(&b.key)));
    let total = parts.iter().map(|part| part.count).sum();
    let at_least = parts.iter().any(|part| part.at_least);
    let all = lower_bound_mark(at_least) + &rate(total, interval.duration_ns);
    let label = format!("{:>10}  {all:>14}/s  ", seconds(interval.at_ns));
    let names = parts.iter().map(|part| &*part.key);
    let prefix = match options.width {
        Some(_) if parts.len() > 1 => common_prefix(names),
        _ => "",
    };
    let mut rates: Vec<String> = Vec::new();
    for part in parts.iter().take(NAMED) {
        let rate = lower_bound_mark(part.at_least) + &rate(part.count, interval.duration_ns);
        let name = part.key.strip_prefix(prefix).unwrap_or(&part.key);
        rates.push(joined(&format!("{} {rate}/s", event_name(name))));
    }
    if parts.len() > NAMED {
        rates.push(format!("and {} more", parts.len() - NAMED));
    }
    let binary = match &*event_name(prefix) {
        "" => String::new(),
        binary => joined(&format!("{binary} ")),
    };
    let lines = options.wrapped(&label, &(binary + &rates.join("  ")));
    printable_lines(lines.join("\n").trim_end())
}

fn lower_bound_mark(is_bound: bool) -> String {
    if is_bound { ">=" } else { "" }.to_owned()
}
