//! The table of waits for the kernel's locks, the most time first.

use tiptoe_session::{Histogram, Mode, Outcome, Wait, Waits};

use crate::grid::{BELOW_STACK, Cells, Grid, LineBelow, arrows};
use crate::heat::{HEAT, HeatScale};
use crate::locks::first_callsite;
use crate::number::{grouped, time};
use crate::{Options, histogram, printable};

const CALLERS: usize = 4;

pub(crate) fn rows(waits: &Waits, options: &Options) -> Vec<String> {
    if waits.rows.is_empty() {
        return vec!["no thread waited".to_owned()];
    }
    let (shown, rest) = waits.rows.split_at(options.shown(waits.rows.len()));
    let by_callsite = waits.by == "callsite";
    let (name, tail) = match &*waits.by {
        "callsite" => ("call site", ""),
        "type" => ("mostly at", ""),
        by => (by, "mostly at"),
    };
    let heat = options.heat(shown.iter().map(|wait| Some(&wait.histogram)));
    let mut grid = Grid::new(&NUMBERS, name.to_owned())
        .with_words(&[HEAT, "type", "mode"])
        .with_legend(HEAT, heat.map(HeatScale::legend))
        .with_tail(tail)
        .with_spare(&["mean", "p50", HEAT])
        .with_folded(match by_callsite {
            true => &["callers"],
            false => &[],
        });
    for wait in shown {
        let key = wait.key.as_deref().filter(|_| !tail.is_empty());
        let (name, tail) = match key {
            Some(key) => (printable(key), callsite_text(wait)),
            None => (callsite_text(wait), String::new()),
        };
        grid.add_row(Cells {
            cells: cells(wait, heat, options),
            name,
            tail,
            below: callers(wait)
                .filter(|_| by_callsite && !options.is_folded)
                .into_iter()
                .collect(),
            ..Cells::default()
        });
    }
    let total = rest.iter().map(|wait| wait.total_ns as f64).sum();
    grid.add_left_out(rest.len(), "row", time(total));
    grid.lines(options)
}

const NUMBERS: [&str; 6] = ["total", "count", "mean", "p50", "p99", "max"];

fn cells(wait: &Wait, heat: Option<HeatScale>, options: &Options) -> Vec<String> {
    let Histogram {
        p50_ns,
        p99_ns,
        max_ns,
        ..
    } = wait.histogram;
    let mean = wait.total_ns.checked_div(wait.count).unwrap_or(0);
    let times = [mean, p50_ns, p99_ns, max_ns].map(|ns| time(ns as f64));
    let numbers = [time(wait.total_ns as f64), grouped(wait.count)];
    let heat = HeatScale::cell(heat, Some(&wait.histogram), options);
    let words = [heat, printable(&wait.kind), mode(wait)];
    numbers.into_iter().chain(times).chain(words).collect()
}

/// Returns words such as `read` or `write failed`. A lock with a single mode has `-`.
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

fn callsite_text(wait: &Wait) -> String {
    match &wait.callsite {
        Some(callsite) => first_callsite(callsite, wait.callsites),
        None => "(not known)".to_owned(),
    }
}

fn callers(wait: &Wait) -> Option<LineBelow> {
    let callers: Vec<&String> = wait.callers.iter().take(CALLERS).collect();
    (!callers.is_empty()).then(|| LineBelow::new(BELOW_STACK, arrows(&callers)))
}

pub(crate) fn histograms(waits: &Waits, options: &Options) -> Vec<Vec<String>> {
    let name = |wait: &Wait| {
        let whose = wait
            .key
            .as_deref()
            .map_or_else(|| callsite_text(wait), printable);
        let mode = match mode(wait) {
            mode if mode == "-" => String::new(),
            mode => format!(" ({mode})"),
        };
        format!("{}{mode} {whose}", printable(&wait.kind))
    };
    let timed = waits.rows.iter().map(|wait| (name(wait), &wait.histogram));
    histogram::draw_all(timed, options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notes;
    use tiptoe_session::{Dropped, Session};

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
    fn the_group_key_is_before_the_call_site() {
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
    fn rows_and_events_that_are_left_out_are_counted() {
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
        let session = Session {
            waits: Some(waits),
            ..Session::default()
        };
        assert_eq!(
            notes::lines(&session, &options),
            [
                "warning: 1,200 events not counted: why",
                "note: 1 wait was not over when the trace ended, and was not counted"
            ]
        );
        let none = Waits::default();
        assert_eq!(rows(&none, &options), ["no thread waited"]);
    }
}
