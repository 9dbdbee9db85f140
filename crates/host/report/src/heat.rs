//! Heat lines: a row's histogram as a line of blocks, from short to long times.
//!
//! All rows of a table share a scale, so that blocks in one column of the terminal mean the same times.

use tiptoe_session::Histogram;

use crate::Options;
use crate::number::{edge_ns, time};
use crate::style::TextRole;

pub(crate) const HEAT: &str = "heat";

const CELLS: i64 = 8;
/// The blocks for 0 to 8 eighths of the row's highest count.
const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

#[derive(Clone, Copy, Debug)]
pub(crate) struct HeatScale {
    /// The coarsest scale of the rows' histograms. 2^`scale` buckets double the time.
    scale: u8,
    /// The first and last bucket of any row, in that scale.
    first: i64,
    last: i64,
}

impl HeatScale {
    /// `None` if no row has a time above 0 ns.
    pub(crate) fn of<'a>(
        rows: impl Iterator<Item = Option<&'a Histogram>> + Clone,
    ) -> Option<HeatScale> {
        let rows = rows.flatten().filter(|row| !row.counts.is_empty());
        let scale = rows.clone().map(|row| row.scale).min()?;
        let buckets = rows.map(|row| {
            let first = i64::from(row.offset);
            let last = first + row.counts.len() as i64 - 1;
            [first, last].map(|bucket| coarser(bucket, row.scale, scale))
        });
        let ends = buckets.reduce(|[first, last], [other_first, other_last]| {
            [first.min(other_first), last.max(other_last)]
        });
        let [first, last] = ends?;
        Some(HeatScale { scale, first, last })
    }

    /// Returns the text of the line below the table: the scale's shortest and longest time.
    pub(crate) fn legend(self) -> String {
        let edge = |bucket| time(edge_ns(bucket, self.scale));
        let (from, to) = (edge(self.first), edge(self.last + 1));
        format!("{from} to {to}; --histograms draws each row)")
    }

    /// Empty if there is no scale, or the row has no times.
    pub(crate) fn cell(
        scale: Option<HeatScale>,
        row: Option<&Histogram>,
        options: &Options,
    ) -> String {
        let line = scale.zip(row).map(|(scale, row)| scale.line(row));
        let styled = |block: char| options.styled(role(block), &block.to_string());
        line.unwrap_or_default().chars().map(styled).collect()
    }

    fn line(self, row: &Histogram) -> String {
        let (each, cells) = self.cells();
        let mut counts = vec![0_u64; cells];
        counts[0] = row.zero_count;
        for (bucket, count) in (i64::from(row.offset)..).zip(&row.counts) {
            let bucket = coarser(bucket, row.scale, self.scale) - self.first;
            if let Some(cell) = counts.get_mut((bucket / each) as usize) {
                *cell = cell.saturating_add(*count);
            }
        }
        match counts.iter().max() {
            None | Some(0) => String::new(),
            Some(&most) => counts.iter().map(|count| block(*count, most)).collect(),
        }
    }

    fn cells(self) -> (i64, usize) {
        let buckets = self.last - self.first + 1;
        let each = (buckets + CELLS - 1) / CELLS;
        (each, ((buckets + each - 1) / each) as usize)
    }
}

fn coarser(bucket: i64, from: u8, to: u8) -> i64 {
    // The shift is limited, because a shift by 64 would overflow; 62 already turns every bucket into 0 or -1.
    bucket >> from.saturating_sub(to).min(62)
}

/// Returns the block for a count, rounded up to an eighth, so that a single time is visible.
fn block(count: u64, most: u64) -> char {
    let eighths = (u128::from(count) * 8).div_ceil(u128::from(most)) as usize;
    LEVELS.get(eighths).copied().unwrap_or(' ')
}

fn role(block: char) -> Option<TextRole> {
    match LEVELS.iter().position(|level| *level == block) {
        Some(1 | 2) => Some(TextRole::Dim),
        Some(8) => Some(TextRole::Hot),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(scale: u8, offset: i32, counts: &[u64]) -> Histogram {
        Histogram {
            scale,
            offset,
            counts: counts.to_vec(),
            ..Histogram::default()
        }
    }

    #[test]
    fn rows_of_a_table_have_one_scale() {
        let short = histogram(3, 40, &[1, 800, 400]);
        let long = histogram(3, 43, &[5, 0, 0, 10, 5]);
        let zero = Histogram {
            zero_count: 3,
            ..Histogram::default()
        };
        let rows = [&short, &long, &zero];
        let scale = HeatScale::of(rows.into_iter().map(Some)).expect("times");
        assert_eq!(
            rows.map(|row| scale.line(row)),
            ["▁█▄     ", "   ▄  █▄", "█       "]
        );
        assert!(scale.legend().starts_with("32ns to 64ns; "));
        let none = Histogram::default();
        assert_eq!(scale.line(&none), "");
        assert!(HeatScale::of([None, Some(&none)].into_iter()).is_none());
    }

    #[test]
    fn many_buckets_share_eight_blocks() {
        let wide = histogram(3, 0, &[7; 100]);
        let scale = HeatScale::of([Some(&wide)].into_iter()).expect("times");
        assert_eq!(scale.line(&wide), "███████▆");
    }

    #[test]
    fn any_histograms_have_lines() {
        for (scale, offset) in [(0, i32::MIN), (255, -1), (3, i32::MAX), (20, 0)] {
            let any = histogram(scale, offset, &[u64::MAX, 0, 1]);
            let other = histogram(3, 8, &[1]);
            let rows = [Some(&any), Some(&other)];
            let scale = HeatScale::of(rows.into_iter()).expect("times");
            for row in rows.into_iter().flatten() {
                let line = scale.line(row);
                assert!((1..=8).contains(&line.chars().count()), "{line:?}");
            }
            assert!(!scale.legend().is_empty());
        }
    }
}
