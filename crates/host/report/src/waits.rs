//! The table of waits for locks, those that took most time first.

use tiptoe_session::{Histogram, Mode, Outcome, Wait, Waits};

use crate::number::{grouped, time};
use crate::table::counted;
use crate::{Options, printable};

/// How many callers are shown of a call site.
const CALLERS: usize = 4;

/// One row before it is put in columns: numbers to the right, words to the left, the last as it comes.
struct Row {
    numbers: Vec<String>,
    words: Vec<String>,
    below: Option<String>,
}

/// The heading, the rows, and what is left out.
pub(crate) fn rows(waits: &Waits, options: &Options) -> Vec<String> {
    if waits.rows.is_empty() {
        return vec!["nothing waited".to_owned()];
    }
    let (shown, rest) = waits.rows.split_at(options.shown(waits.rows.len()));
    let cells: Vec<Row> = std::iter::once(heading(waits))
        .chain(shown.iter().map(|wait| row(wait, waits)))
        .collect();
    let numbers = widths(&cells, |row| &row.numbers);
    let words = widths(&cells, |row| &row.words);
    let mut lines = Vec::new();
    for (at, row) in cells.iter().enumerate() {
        let line = options.fit(&line(row, &numbers, &words));
        lines.push(match at {
            0 => options.heading(&line),
            _ => line,
        });
        lines.extend(row.below.iter().map(|below| options.fit(below)));
    }
    lines.extend(left_out(rest, numbers[0]));
    lines
}

fn heading(waits: &Waits) -> Row {
    let last: &[&str] = match &*waits.by {
        "callsite" => &["call site"],
        "type" => &["mostly at"],
        by => &[by, "mostly at"],
    };
    let words = ["type", "mode"].iter().chain(last);
    Row {
        numbers: ["total", "count", "mean", "p50", "p99", "max"]
            .map(str::to_owned)
            .to_vec(),
        words: words.map(|word| (*word).to_owned()).collect(),
        below: None,
    }
}

fn row(wait: &Wait, waits: &Waits) -> Row {
    let Histogram {
        p50_ns,
        p99_ns,
        max_ns,
        ..
    } = wait.histogram;
    let mean = wait.total_ns.checked_div(wait.count).unwrap_or(0);
    let times = [mean, p50_ns, p99_ns, max_ns].map(|ns| time(ns as f64));
    let total = time(wait.total_ns as f64);
    let own = [printable(&wait.kind), mode(wait)];
    let key = wait.key.as_deref().map(printable);
    let words = own.into_iter().chain(key).chain([place(wait)]);
    let below = (waits.by == "callsite").then(|| callers(wait)).flatten();
    Row {
        numbers: [total, grouped(wait.count)]
            .into_iter()
            .chain(times)
            .collect(),
        words: words.collect(),
        below,
    }
}

/// `read`, `write failed`, or nothing for a lock that has one mode.
fn mode(wait: &Wait) -> String {
    let mode = match wait.mode {
        Mode::Read => "read",
        Mode::Write => "write",
        Mode::Exclusive => "-",
    };
    match wait.outcome {
        Outcome::Acquired => mode.to_owned(),
        Outcome::Failed => format!("{mode} failed"),
        Outcome::Downgraded => "downgraded".to_owned(),
    }
}

/// The call site, and how many others there are.
fn place(wait: &Wait) -> String {
    let Some(callsite) = &wait.callsite else {
        return "(not known)".to_owned();
    };
    let callsite = printable(callsite);
    match wait.callsites {
        0 | 1 => callsite,
        places => format!("{callsite} and {} more", grouped(places - 1)),
    }
}

fn callers(wait: &Wait) -> Option<String> {
    let callers = wait.callers.iter().take(CALLERS);
    let callers: Vec<String> = callers.map(|caller| printable(caller)).collect();
    (!callers.is_empty()).then(|| format!("        <- {}", callers.join(" <- ")))
}

fn widths(rows: &[Row], cells: fn(&Row) -> &Vec<String>) -> Vec<usize> {
    let widest = |at: usize| {
        let lengths = rows.iter().map(|row| cells(row)[at].chars().count());
        lengths.fold(0, usize::max)
    };
    let columns = rows.first().map_or(0, |row| cells(row).len());
    (0..columns).map(widest).collect()
}

fn line(row: &Row, numbers: &[usize], words: &[usize]) -> String {
    let numbers = row.numbers.iter().zip(numbers);
    let words = row.words.iter().zip(words);
    let mut line = String::new();
    for (number, width) in numbers {
        line += &format!("{number:>width$}  ");
    }
    for (word, width) in words {
        line += &format!("{word:<width$}  ");
    }
    line
}

/// The time of the rows that are not shown.
fn left_out(rest: &[Wait], width: usize) -> Option<String> {
    let total = time(rest.iter().map(|wait| wait.total_ns as f64).sum());
    let rows = counted(rest.len(), "more row");
    (!rest.is_empty()).then(|| format!("{total:>width$}  in {rows} (--top 0 shows all)"))
}

/// What the table leaves out, each in one sentence.
pub(crate) fn notes(waits: &Waits) -> Vec<String> {
    let unfinished = (waits.unfinished > 0).then(|| {
        let verb = if waits.unfinished == 1 { "was" } else { "were" };
        let waits = counted(waits.unfinished as usize, "wait");
        format!("{waits} {verb} not over when the trace ended, and {verb} not counted")
    });
    let drops = waits.drops.iter().map(|dropped| {
        let events = counted(dropped.count as usize, "event");
        format!("{events} not counted: {}", dropped.reason)
    });
    unfinished.into_iter().chain(drops).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiptoe_session::Dropped;

    fn wait(kind: &str, mode: Mode, total_ns: u64) -> Wait {
        Wait {
            kind: kind.into(),
            mode,
            callsite: Some("vm_mmap_pgoff+0x5e".into()),
            callsites: 3,
            callers: ["ksys_mmap_pgoff", "do_syscall_64"]
                .map(str::to_owned)
                .to_vec(),
            count: 2,
            total_ns,
            histogram: Histogram {
                p50_ns: 1000,
                p99_ns: 2_500_000,
                max_ns: 2_500_000,
                ..Histogram::default()
            },
            ..Wait::default()
        }
    }

    fn waits(by: &str) -> Waits {
        Waits {
            by: by.into(),
            rows: vec![
                wait("mmap_lock", Mode::Write, 3_000_000),
                Wait {
                    key: (by != "callsite").then(|| "42 a\nb".into()),
                    callsites: 1,
                    outcome: Outcome::Failed,
                    callers: Vec::new(),
                    ..wait("mutex", Mode::Exclusive, 900)
                },
            ],
            unfinished: 1,
            drops: vec![Dropped {
                reason: "why".into(),
                count: 1200,
            }],
        }
    }

    #[test]
    fn a_call_site_has_its_callers_below() {
        let lines = rows(&waits("callsite"), &Options::default());
        assert_eq!(
            lines,
            [
                " total  count    mean     p50     p99     max  type       mode      call site",
                "3.00ms      2  1.50ms  1.00us  2.50ms  2.50ms  mmap_lock  write     \
                 vm_mmap_pgoff+0x5e and 2 more",
                "        <- ksys_mmap_pgoff <- do_syscall_64",
                " 900ns      2   450ns  1.00us  2.50ms  2.50ms  mutex      - failed  \
                 vm_mmap_pgoff+0x5e",
            ]
        );
    }

    #[test]
    fn whose_waits_they_are_stands_before_the_call_site() {
        let mut waits = waits("process");
        waits.rows.remove(0);
        let lines = rows(&waits, &Options::default());
        assert!(
            lines[0].ends_with("type   mode      process  mostly at"),
            "{lines:?}"
        );
        assert!(
            lines[1].ends_with("mutex  - failed  42 a\\nb  vm_mmap_pgoff+0x5e"),
            "{lines:?}"
        );
    }

    #[test]
    fn what_is_left_out_is_told() {
        let options = Options {
            top: Some(1),
            ..Options::default()
        };
        let waits = waits("callsite");
        let lines = rows(&waits, &options);
        assert_eq!(
            lines.last().unwrap(),
            " 900ns  in 1 more row (--top 0 shows all)"
        );
        assert_eq!(
            notes(&waits),
            [
                "1 wait was not over when the trace ended, and was not counted",
                "1,200 events not counted: why"
            ]
        );
        let none = Waits::default();
        assert_eq!(rows(&none, &options), ["nothing waited"]);
    }
}
