//! The tables of contended locks, those with the most waiting time first. Below each lock are its holders or, if they
//! are unknown, the call sites that woke its waiters. Waits without a holder, such as those for a condition variable,
//! have their own table, because otherwise idle workers would fill the top rows.

use tiptoe_session::{Deadlock, Holder, Lock, Locks, Session, WaitingThread};

use crate::columns::joined;
use crate::grid::{self, BELOW, Cells, Grid, LineBelow, binary_prefix};
use crate::heat::{HEAT, HeatScale};
use crate::now::{self, with_mode};
use crate::number::{counted, grouped, time};
use crate::{Options, histogram, holds, printable};

const BLAMED: usize = 3;
/// If the holder is unknown in at least this percentage of the waiting time, the report says so.
const UNKNOWN: u64 = 5;

pub(crate) fn blocks(session: &Session, options: &Options) -> Vec<Vec<String>> {
    let Some(locks) = &session.locks else {
        return Vec::new();
    };
    let (idle, held): (Vec<&Lock>, Vec<&Lock>) = locks.rows.iter().partition(|row| row.idle);
    let mut blocks = vec![match held.is_empty() {
        true => vec![none_line(locks)],
        false => table(&locks.by, &held, options),
    }];
    if !idle.is_empty() {
        let heading = match &*locks.by {
            "lock" => "waited for",
            by => by,
        };
        blocks.push(table(heading, &idle, options));
    }
    blocks.extend(holds::rows(locks, options));
    blocks.extend(locks.deadlocks.iter().map(|one| deadlock(one, options)));
    blocks
}

fn none_line(locks: &Locks) -> String {
    let is_uncounted = without_row(locks) > 0 || locks.others > 0 || !locks.drops.is_empty();
    match is_uncounted || !locks.deadlocks.is_empty() {
        true => "no wait for a lock was counted".to_owned(),
        false => "no thread waited for a lock".to_owned(),
    }
}

pub(crate) fn without_row(locks: &Locks) -> u64 {
    let open = locks.rows.iter().filter_map(|row| row.unfinished.as_ref());
    let in_rows = open.fold(0, |sum: u64, open| sum.saturating_add(open.waits));
    locks.unfinished.saturating_sub(in_rows)
}

fn deadlock(deadlock: &Deadlock, options: &Options) -> Vec<String> {
    let ring: Vec<&WaitingThread> = deadlock.waits.iter().collect();
    let hint = format!(
        "hint: `tiptoe lock --now -p {}` shows which thread waits for which",
        deadlock.pid
    );
    let lines = [now::deadlock(&ring), hint];
    lines
        .iter()
        .flat_map(|line| options.sentence(line))
        .collect()
}

pub(crate) fn histograms(locks: &Locks, options: &Options) -> Vec<Vec<String>> {
    let rows = locks.rows.iter();
    let timed = rows.filter_map(|row| Some((name(row), row.histogram.as_ref()?)));
    let mut drawn = histogram::draw_all(timed, options);
    drawn.extend(holds::histograms(locks, options));
    drawn
}

fn name(row: &Lock) -> String {
    with_mode(&row.lock, row.mode.as_deref())
}

/// Returns a lock's waiting time, with `>=` if it is a lower bound and `~` if it is estimated.
fn total(row: &Lock) -> String {
    let early_ns = row.early.as_ref().map_or(0, |early| early.total_ns);
    let open_ns = row.unfinished.as_ref().map_or(0, |open| open.total_ns);
    let total_ns = row.total_ns.saturating_add(early_ns);
    let total = time(total_ns.saturating_add(open_ns) as f64);
    match row.timed {
        _ if is_at_least(row) => format!(">={total}"),
        None => total,
        Some(0) if row.total_ns == 0 => "-".to_owned(),
        Some(_) => format!("~{total}"),
    }
}

fn is_at_least(row: &Lock) -> bool {
    row.early.is_some() || row.unfinished.is_some() || row.left > 0
}

fn from(row: &Lock) -> String {
    match row.lock == row.callsite {
        true => String::new(),
        false => first_callsite(&row.callsite, row.callsites),
    }
}

pub(crate) fn first_callsite(callsite: &str, all: u64) -> String {
    let others = match all {
        0 | 1 => String::new(),
        all => format!(" and {} more", grouped(all - 1)),
    };
    printable(callsite) + &others
}

/// Returns the binary, such as `memcached:`, that the names of several rows share; otherwise an empty text.
fn shared_binary<'a>(rows: &[&'a Lock]) -> &'a str {
    let prefixes = rows.iter().map(|row| binary_prefix(&row.lock));
    let shared = grid::shared(prefixes).filter(|_| rows.len() > 1);
    shared.unwrap_or_default()
}

/// Returns the rows with a wait, and the rows without a wait, which the table only sums. The first list has all rows
/// if the user chose `--top 0`, if no row has a wait, or if a sum would save no line. If a row has more contended
/// calls than returns at once, some calls may have waited, so the row counts as one with a wait.
fn with_waits<'a>(rows: &[&'a Lock], options: &Options) -> (Vec<&'a Lock>, Vec<&'a Lock>) {
    let is_wait = |row: &&Lock| {
        is_at_least(row) || row.slept > 0 || row.total_ns > 0 || row.at_once < row.episodes
    };
    let (waits, none): (Vec<&Lock>, Vec<&Lock>) = rows.iter().copied().partition(is_wait);
    // If rows are folded, the sum of the omitted rows includes the rows without a wait.
    let are_rows = options.is_folded || options.top == Some(0);
    match waits.is_empty() || none.len() < 2 || are_rows {
        true => (rows.to_vec(), Vec::new()),
        false => (waits, none),
    }
}

fn table(by: &str, rows: &[&Lock], options: &Options) -> Vec<String> {
    let (rows, never_waited) = with_waits(rows, options);
    let (shown, rest) = rows.split_at(options.shown(rows.len()));
    let kind = grid::shared(shown.iter().map(|row| Some(&*row.kind)));
    let binary = shared_binary(shown);
    let columns = [
        "total",
        "contended",
        "slept",
        "at once",
        "p50",
        "p99",
        "max",
    ];
    let heat = options.heat(shown.iter().map(|row| row.histogram.as_ref()));
    let mut grid = Grid::new(&columns, grid::heading(by, binary, kind.map(printable)))
        .with_words(&[HEAT, "type"])
        .with_legend(HEAT, heat.map(HeatScale::legend))
        .with_tail("mostly from")
        .with_spare(&["at once", "slept", "p50", HEAT, "contended"])
        .with_folded(match shown.iter().any(|row| row.holders.len() > 1) {
            true => &["other holders"],
            false => &[],
        });
    let any_at_once = shown.iter().any(|row| row.at_once > 0);
    for row in shown {
        let at_once = match any_at_once {
            true => grouped(row.at_once),
            false => String::new(),
        };
        let kind = match kind {
            Some(_) => String::new(),
            None => printable(&row.kind),
        };
        let mut cells = vec![
            total(row),
            grouped(row.episodes),
            grouped(row.slept),
            at_once,
        ];
        cells.extend(histogram::durations(row.histogram.as_ref()));
        cells.push(HeatScale::cell(heat, row.histogram.as_ref(), options));
        cells.push(kind);
        let lock = row.lock.strip_prefix(binary).unwrap_or(&row.lock);
        grid.add_row(Cells {
            cells,
            name: with_mode(lock, row.mode.as_deref()),
            tail: from(row),
            below: below(row, options),
            ..Cells::default()
        });
    }
    let total = rest.iter().map(|row| row.total_ns as f64).sum();
    grid.add_left_out(rest.len(), "row", time(total));
    if !never_waited.is_empty() {
        let calls = never_waited.iter().map(|row| row.episodes);
        let calls = calls.fold(0, u64::saturating_add);
        let rows = grid::sum_name(never_waited.len(), "row");
        let calls = counted(calls, "contended call");
        grid.add_sum(
            time(0.0),
            format!("in {rows}, whose {calls} never slept (--top 0 shows all)"),
        );
    }
    grid.lines(options)
}

/// A folded row has only the line of [`blame`].
fn below(row: &Lock, options: &Options) -> Vec<LineBelow> {
    if options.is_folded {
        return blame(row, options)
            .filter(|_| !row.idle)
            .into_iter()
            .collect();
    }
    let waits = early(row).into_iter().chain(unfinished(row));
    let holders = readers(row).into_iter().chain(blame(row, options));
    waits.chain(holders).collect()
}

fn early(lock: &Lock) -> Option<LineBelow> {
    let early = lock.early.as_ref()?;
    let waits = counted(early.waits, "wait");
    let before = time(early.before_ns as f64);
    let unfinished = match early.unfinished {
        0 => String::new(),
        1 if early.waits == 1 => ", and did not end during it".to_owned(),
        some => format!(", and {} did not end during it", grouped(some)),
    };
    let text = format!("{waits} began {before} or more before the trace{unfinished}");
    Some(LineBelow::new(BELOW, text))
}

fn unfinished(lock: &Lock) -> Option<LineBelow> {
    let open = lock.unfinished.as_ref()?;
    let waits = counted(open.waits, "wait");
    let was = if open.waits == 1 { "was" } else { "were" };
    let lasted = time(open.total_ns as f64);
    let text = format!("{waits} {was} not over when the trace ended, after {lasted}");
    Some(LineBelow::new(BELOW, text))
}

fn readers(lock: &Lock) -> Option<LineBelow> {
    let readers = lock.readers.as_ref()?;
    let (average, most) = (readers.average, grouped(readers.most));
    let text = format!("readers {average:.1} on average, {most} at most");
    Some(LineBelow::new(BELOW, text))
}

fn blame(lock: &Lock, options: &Options) -> Option<LineBelow> {
    holders_line(lock, options).or_else(|| wakers_line(lock, options))
}

fn holders_line(lock: &Lock, options: &Options) -> Option<LineBelow> {
    let times = lock.holders.iter().map(|holder| holder.total_ns);
    let unknown = lock.unknown_ns.unwrap_or(0);
    let all = times.fold(unknown, u64::saturating_add);
    let holders = lock.holders.iter();
    let holders = holders.map(|holder| (holder.total_ns, holder_name(holder)));
    let mut holders = shares(holders, all, options);
    if unknown > 0 && unknown >= all / 100 * UNKNOWN {
        let share = options.share(unknown, all);
        holders.push(format!("unknown {share} of the time"));
    }
    (!holders.is_empty()).then(|| LineBelow::new(format!("{BELOW}held by "), holders.join(", ")))
}

fn shares(
    all: impl ExactSizeIterator<Item = (u64, String)>,
    whole_ns: u64,
    options: &Options,
) -> Vec<String> {
    let most = options.details(BLAMED);
    let more = all.len().saturating_sub(most);
    let shown = all
        .take(most)
        .map(|(ns, name)| joined(&format!("{} {name}", options.share(ns, whole_ns))));
    shown
        .chain((more > 0).then(|| format!("{more} more")))
        .collect()
}

fn holder_name(holder: &Holder) -> String {
    match (&holder.callsite, &holder.thread) {
        (Some(callsite), _) => printable(callsite),
        (None, Some(thread)) => format!("thread {}", printable(thread)),
        (None, None) => "readers".to_owned(),
    }
}

fn wakers_line(lock: &Lock, options: &Options) -> Option<LineBelow> {
    let times = lock.blame.iter().map(|blame| blame.total_ns);
    let ended = times.fold(0, u64::saturating_add);
    let wakers = lock.blame.iter();
    let wakers = wakers.map(|blame| (blame.total_ns, printable(&blame.callsite)));
    let wakers = shares(wakers, lock.total_ns.max(ended), options);
    (!wakers.is_empty()).then(|| LineBelow::new(format!("{BELOW}woken by "), wakers.join(", ")))
}

#[cfg(test)]
mod tests;
