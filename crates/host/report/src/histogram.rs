//! Draws histograms of times as bars.

use tiptoe_session::{Histogram, Session};

use crate::columns::right;
use crate::latency::worst_first;
use crate::number::{edge_ns, grouped, share, time};
use crate::style::TextRole;
use crate::{Options, event_name};

/// The most rows of a histogram besides the row of 0 ns, so that the histogram fits a screen with its heading.
const ROWS: i64 = 16;
const LABELS: usize = 43;
/// The most columns of a row, and their number if the terminal's width is unknown.
const WIDTH: usize = 100;
/// The last character of a bar, by its filled eighths.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

struct TimeRange {
    /// The ends in nanoseconds, the lower end excluded; `None` for the row of 0 ns.
    ends_ns: Option<(f64, f64)>,
    count: u64,
}

pub(crate) fn durations(histogram: Option<&Histogram>) -> [String; 3] {
    let times = histogram.map_or([None; 3], |h| [h.p50_ns, h.p99_ns, h.max_ns].map(Some));
    times.map(|ns| ns.map_or("-".to_owned(), |ns| time(ns as f64)))
}

pub(crate) fn of_calls(session: &Session, options: &Options) -> Vec<Vec<String>> {
    let timed = worst_first(session).into_iter();
    let timed = timed.map(|(event, calls)| (event_name(&event.event), &calls.histogram));
    draw_all(timed, options)
}

pub(crate) fn draw_all<'a>(
    histograms: impl Iterator<Item = (String, &'a Histogram)>,
    options: &Options,
) -> Vec<Vec<String>> {
    let timed: Vec<_> = histograms.filter(|(_, times)| times.total() > 0).collect();
    let drawn = &timed[..options.drawn(timed.len())];
    drawn
        .iter()
        .map(|(name, times)| draw(name, times, options))
        .collect()
}

fn draw(name: &str, histogram: &Histogram, options: &Options) -> Vec<String> {
    let rows = rows(histogram);
    let total = histogram.total();
    let most = rows.iter().map(|row| row.count).max().unwrap_or(0);
    let heading = options.sentence(name);
    let heading = heading
        .iter()
        .map(|line| options.styled(TextRole::Heading, line));
    let lines = rows.iter().map(|row| line(row, most, total, options));
    heading.chain(lines).collect()
}

/// Returns the rows from the shortest to the longest time, without a gap. The number of buckets that a row joins is
/// the smallest power of two that leaves at most [`ROWS`] rows. No number of buckets, offset or scale may cause an
/// overflow, because the session's file may be hostile.
fn rows(histogram: &Histogram) -> Vec<TimeRange> {
    let zero = (histogram.zero_count > 0).then_some(TimeRange {
        ends_ns: None,
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
    let edge = |row: i64| edge_ns(row * joined, histogram.scale);
    let rows = (first.div_euclid(joined)..)
        .zip(counts)
        .map(|(row, count)| TimeRange {
            ends_ns: Some((edge(row), edge(row + 1))),
            count,
        });
    zero.into_iter().chain(rows).collect()
}

fn line(row: &TimeRange, most: u64, total: u64, options: &Options) -> String {
    let times = match row.ends_ns {
        Some((above, to)) => format!("{:>6} .. {:<6}", time(above), time(to)),
        None => format!("{:>6}", time(0.0)),
    };
    let width = options.width.unwrap_or(WIDTH).min(WIDTH);
    let bar = bar(row.count, most, width.saturating_sub(LABELS));
    let share = right(&visible_share(row.count, total), 6);
    let share = options.styled(TextRole::of_share(row.count, total), &share);
    let count = grouped(row.count);
    options.fit(&format!("  {times:<16}  {count:>13}  {share}  {bar}"))
}

/// Formats a share in percent, `<0.1%` instead of 0, so that its row does not look empty.
fn visible_share(count: u64, total: u64) -> String {
    match share(count, total) {
        share if share == "0.0%" && count > 0 => "<0.1%".to_owned(),
        share => share,
    }
}

/// Returns a bar of `width * count / most` cells, rounded up to an eighth, so that a single count is visible.
fn bar(count: u64, most: u64, width: usize) -> String {
    let whole = u128::from(most.max(1));
    let eighths = (u128::from(count) * width as u128 * 8).div_ceil(whole) as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}
