//! The table of how long the lock of `--hold` was held, by the call site that took the lock.

use tiptoe_session::{Hold, Locks};

use crate::columns::whole;
use crate::grid::{Grid, more_line};
use crate::heat::{HEAT, HeatScale};
use crate::number::{grouped, time};
use crate::{Options, histogram, printable};

pub(crate) fn rows(locks: &Locks, options: &Options) -> Option<Vec<String>> {
    let lock = &locks.holds.first()?.lock;
    let shown = &locks.holds[..options.shown(locks.holds.len())];
    let heat = options.heat(shown.iter().map(|hold| hold.histogram.as_ref()));
    let mut grid = Grid::new(&["total", "times", "p50", "p99", "max"], "held from".into())
        .with_words(&[HEAT])
        .with_legend(HEAT, heat.map(HeatScale::legend))
        .with_spare(&["p50", HEAT, "p99", "max"]);
    for hold in shown {
        let mark = if hold.is_at_least { ">=" } else { "" };
        let total = mark.to_owned() + &time(hold.total_ns as f64);
        // The lock may have another name in another process.
        let other_lock = match hold.lock == *lock {
            true => String::new(),
            false => format!("  {}", printable(&hold.lock)),
        };
        let mut cells = vec![total, grouped(hold.count)];
        cells.extend(histogram::durations(hold.histogram.as_ref()));
        cells.push(HeatScale::cell(heat, hold.histogram.as_ref(), options));
        grid.add(cells, printable(&hold.callsite), other_lock);
    }
    let mut lines = options.sentence(&format!("{} was held", whole(lock)));
    lines.extend(grid.lines(options));
    lines.extend(more_line(locks.holds.len() - shown.len(), options));
    Some(lines)
}

pub(crate) fn histograms(locks: &Locks, options: &Options) -> Vec<Vec<String>> {
    let name = |hold: &Hold| format!("held from {}", printable(&hold.callsite));
    let holds = locks.holds.iter();
    let timed = holds.filter_map(|hold| Some((name(hold), hold.histogram.as_ref()?)));
    histogram::draw_all(timed, options)
}
