//! Histograms of calls, drawn as bars.

use tiptoe_session::{Histogram, Session};

use crate::latency::{Timed, worst_first};
use crate::number::{grouped, share, time};
use crate::{Options, event_name};

/// Rows of one histogram, so that a screen holds it with its heading.
const ROWS: i64 = 16;
/// Columns before the bars.
const LABELS: usize = 43;
/// Columns of everything, where the terminal has more or nobody knows.
const WIDTH: usize = 100;
/// A bar's last cell, in eighths.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// One row: the times it holds, and how many they are.
struct Row {
    /// `None` for the row of 0 ns, which is not between any two times.
    between: Option<(f64, f64)>,
    count: u64,
}

/// One block for each of the events with most time in them.
pub(crate) fn blocks(session: &Session, options: &Options) -> Vec<Vec<String>> {
    let mut timed = worst_first(session);
    timed.retain(|(_, calls)| calls.histogram.total() > 0);
    let drawn = options.drawn(timed.len());
    timed[..drawn]
        .iter()
        .map(|timed| block(timed, options))
        .collect()
}

fn block((event, calls): &Timed, options: &Options) -> Vec<String> {
    drawn(&event_name(&event.event), &calls.histogram, options)
}

/// One histogram with its name.
pub(crate) fn drawn(name: &str, histogram: &Histogram, options: &Options) -> Vec<String> {
    let rows = rows(histogram);
    let total = histogram.total();
    let most = rows.iter().map(|row| row.count).max().unwrap_or(0);
    let heading = options.fit(name);
    let lines = rows.iter().map(|row| line(row, most, total, options));
    std::iter::once(options.heading(&heading))
        .chain(lines)
        .collect()
}

/// From the shortest time to the longest without a gap, buckets joined by twos
/// until there are few enough rows: the less the times differ, the finer.
fn rows(histogram: &Histogram) -> Vec<Row> {
    let zero = (histogram.zero_count > 0).then_some(Row {
        between: None,
        count: histogram.zero_count,
    });
    let first = i64::from(histogram.offset);
    let last = first + histogram.counts.len() as i64 - 1;
    let joined = (0..40).map(|power| 1_i64 << power);
    let few = |joined: &i64| last.div_euclid(*joined) - first.div_euclid(*joined) < ROWS;
    let joined = joined.clone().find(few).unwrap_or(1 << 40);
    let mut counts: Vec<u64> = Vec::new();
    for (bucket, count) in (first..).zip(&histogram.counts) {
        let row = (bucket.div_euclid(joined) - first.div_euclid(joined)) as usize;
        counts.resize(counts.len().max(row + 1), 0);
        counts[row] = counts[row].saturating_add(*count);
    }
    let edge = |row: i64| ((row * joined) as f64 / f64::from(histogram.scale).exp2()).exp2();
    let rows = (first.div_euclid(joined)..)
        .zip(counts)
        .map(|(row, count)| Row {
            between: Some((edge(row), edge(row + 1))),
            count,
        });
    zero.into_iter().chain(rows).collect()
}

fn line(row: &Row, most: u64, total: u64, options: &Options) -> String {
    let times = match row.between {
        Some((above, to)) => format!("{:>6} .. {:<6}", time(above), time(to)),
        None => format!("{:>6}", time(0.0)),
    };
    let width = options.width.unwrap_or(WIDTH).min(WIDTH);
    let bar = bar(row.count, most, width.saturating_sub(LABELS));
    let (count, share) = (grouped(row.count), seen(row.count, total));
    options.fit(&format!("  {times:<16}  {count:>13}  {share:>6}  {bar}"))
}

/// A share that is not shown as none where there is one.
fn seen(count: u64, total: u64) -> String {
    match share(count, total) {
        share if share == "0.0%" && count > 0 => "<0.1%".to_owned(),
        share => share,
    }
}

/// A bar as long as `count` of `most`, of which all is `width` cells. One count
/// is seen beside any number.
fn bar(count: u64, most: u64, width: usize) -> String {
    let whole = u128::from(most.max(1));
    let eighths = (u128::from(count) * width as u128 * 8).div_ceil(whole) as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}
