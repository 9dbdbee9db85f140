//! The tables of accesses to watched variables, the most frequent first.

use tiptoe_session::{Access, Accesses, Stack, Variable, Watch};

use crate::calls::moment;
use crate::columns::{joined, whole};
use crate::grid::{self, BELOW_STACK, Cells, Grid, LineBelow, arrows};
use crate::number::{counted, grouped, time};
use crate::{Options, printable, printable_lines};

const CALLERS: usize = 5;
const STACKS: usize = 3;
const VALUES: usize = 5;

/// Returns one access: seconds since the start, thread, variable, old and new value, and instruction.
pub fn access(access: &Access, options: &Options) -> String {
    let moment = moment(access.at_ns, access.comm, access.tid, options);
    let variable = whole(access.variable);
    let [old, new, place] = [&*access.old, &*access.new, access.at].map(whole);
    let call = if access.in_kernel {
        "system call of "
    } else {
        ""
    };
    let racy = if access.racy { "; racy" } else { "" };
    let text = format!("{variable}  {old}\u{a0}->\u{a0}{new}  {call}{place}{racy}");
    printable_lines(&options.wrapped(&moment, &text).join("\n"))
}

pub(crate) fn blocks(watch: &Watch, options: &Options) -> Vec<Vec<String>> {
    let variables = watch.variables.iter();
    variables
        .map(|variable| block(variable, watch, options))
        .collect()
}

fn block(variable: &Variable, watch: &Watch, options: &Options) -> Vec<String> {
    let mut lines = options.sentence(&summary(variable));
    let rows = watch.rows.iter();
    let rows: Vec<&Accesses> = rows.filter(|row| row.variable == variable.name).collect();
    if rows.is_empty() {
        return lines;
    }
    let (shown, rest) = rows.split_at(options.shown(rows.len()));
    let threads: Vec<String> = shown.iter().map(|row| thread(row)).collect();
    let shared = grid::shared(threads.iter().map(|thread| Some(&**thread)));
    let shared = shared.filter(|_| threads.len() > 1);
    let heading = match shared {
        Some(thread) => format!("at (thread {thread})"),
        None => "at".to_owned(),
    };
    let mut grid = Grid::new(&HEADING, heading)
        .with_words(&["thread"])
        .with_spare(&["last", "first", "changed"])
        .with_folded(&["most callers"]);
    for (row, thread) in shown.iter().zip(&threads) {
        let thread = match shared {
            Some(_) => String::new(),
            None => thread.clone(),
        };
        grid.add_row(Cells {
            cells: numbers(row).into_iter().chain([thread]).collect(),
            name: instruction_text(row),
            below: below(row, options),
            ..Cells::default()
        });
    }
    let more = rest.iter().map(|row| row.count).sum();
    grid.add_left_out(rest.len(), "row", grouped(more));
    lines.extend(grid.lines(options));
    lines
}

const HEADING: [&str; 4] = ["count", "changed", "first", "last"];

/// Returns text such as `redis-server:hits, 8 bytes at 0x…: 1,234 writes; 12 meet the conditions`.
fn summary(variable: &Variable) -> String {
    let hits = counted(
        variable.hits,
        match &*variable.access {
            "w" => "write",
            "x" => "execution",
            _ => "access",
        },
    );
    let least = if variable.at_least { "at least " } else { "" };
    let bytes = counted(variable.len.into(), "byte");
    let (name, address) = (whole(&variable.name), variable.address);
    let matching = match variable.count == variable.hits {
        true => String::new(),
        false => format!("; {} meet the conditions", grouped(variable.count)),
    };
    let watched = match variable.watched_ns {
        Some(ns) => format!(" in the {} for which it was watched", time(ns as f64)),
        None => String::new(),
    };
    format!("{name}, {bytes} at {address:#x}: {least}{hits}{watched}{matching}")
}

fn numbers(row: &Accesses) -> [String; 4] {
    [
        grouped(row.count),
        grouped(row.changed),
        time(row.first_ns as f64),
        time(row.last_ns as f64),
    ]
}

fn thread(row: &Accesses) -> String {
    let comm = printable(&row.comm);
    match row.tid {
        Some(tid) => format!("{tid} {comm}"),
        None => comm,
    }
}

fn instruction_text(row: &Accesses) -> String {
    let at = printable(&row.at);
    match row.in_kernel {
        true => format!("system call of {at}"),
        false => at,
    }
}

fn below(row: &Accesses, options: &Options) -> Vec<LineBelow> {
    let mut lines = values(row, options.details(VALUES))
        .into_iter()
        .collect::<Vec<_>>();
    let stacks = row.stacks.iter();
    let stacks = stacks.filter(|stack| !stack.callers.is_empty() || stack.is_partial);
    let stacks: Vec<&Stack> = stacks.collect();
    let most = options.details(STACKS);
    for stack in stacks.iter().take(most) {
        let share = match stacks.len() {
            1 => BELOW_STACK.to_owned(),
            _ => format!("{BELOW_STACK}{} ", grouped(stack.count)),
        };
        lines.push(LineBelow::new(
            share,
            callers(stack, options.details(CALLERS)),
        ));
    }
    let more = stacks.len().checked_sub(most);
    if let Some(more) = more.filter(|more| *more > 0 && !options.is_folded) {
        let more = format!("and from {}", counted(more as u64, "more place"));
        lines.push(LineBelow::new(BELOW_STACK, more));
    }
    lines
}

fn callers(stack: &Stack, most: usize) -> String {
    let callers: Vec<&String> = stack.callers.iter().take(most).collect();
    let is_cut = stack.callers.len() > most || stack.is_partial;
    match (is_cut, callers.is_empty()) {
        (true, true) => "<- … (callers not known yet)".to_owned(),
        (true, false) => arrows(&callers) + " <-\u{a0}…",
        (false, _) => arrows(&callers),
    }
}

fn values(row: &Accesses, most: usize) -> Option<LineBelow> {
    if row.values.is_empty() {
        return None;
    }
    let shown: Vec<String> = row
        .values
        .iter()
        .take(most)
        .map(|value| match value.count {
            1 => whole(&value.value),
            count => joined(&format!("{} ({})", printable(&value.value), grouped(count))),
        })
        .collect();
    let shown_count: u64 = row.values.iter().take(most).map(|value| value.count).sum();
    let others = row.count.saturating_sub(shown_count);
    let others = match others {
        0 => String::new(),
        others => format!(", others ({})", grouped(others)),
    };
    let racy = match row.racy {
        0 => String::new(),
        racy if racy == row.count => "; racy".to_owned(),
        racy => format!("; {} racy", grouped(racy)),
    };
    let last = joined(&format!(
        "{} -> {}",
        printable(&row.last_old),
        printable(&row.last_new)
    ));
    if row.count == 1 {
        return Some(LineBelow::new(format!("{BELOW_STACK}value "), last + &racy));
    }
    let text = format!("{}{others}; last {last}{racy}", shown.join(", "));
    Some(LineBelow::new(format!("{BELOW_STACK}values "), text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notes;
    use tiptoe_session::{Allowance, Session, Value};

    fn value(value: &str, count: u64) -> Value {
        Value {
            value: value.to_owned(),
            count,
        }
    }

    fn watch() -> Watch {
        let stack = |caller: &str, count, is_partial| Stack {
            callers: vec![caller.to_owned()],
            is_partial,
            count,
        };
        let often = Accesses {
            variable: "prog:state".into(),
            at: "prog:work+0x8".into(),
            comm: "worker".into(),
            count: 1234,
            changed: 2,
            racy: 4,
            first_ns: 1_500_000,
            last_ns: 2_000_000_000,
            last_old: "1".into(),
            last_new: "2".into(),
            values: vec![value("2", 1200), value("1", 30)],
            other_values: 4,
            stacks: vec![
                stack("prog:a+0x1", 1200, false),
                stack("prog:b+0x2", 34, true),
            ],
            ..Accesses::default()
        };
        let once = Accesses {
            at: "libc.so.6:read+0xd".into(),
            in_kernel: true,
            tid: Some(7),
            count: 1,
            values: vec![value("2", 1)],
            racy: 1,
            stacks: Vec::new(),
            ..often.clone()
        };
        Watch {
            variables: vec![Variable {
                name: "prog:state".into(),
                address: 0x1000,
                len: 4,
                access: "w".into(),
                hits: 1240,
                count: 1235,
                at_least: true,
                watched_ns: None,
            }],
            rows: vec![often, once],
            sees_kernel: true,
            foreign: 3,
            allowance: Some(Allowance {
                hits: 66,
                window_ns: 100_000_000,
                windows: 20,
                used_up: 18,
            }),
            ..Watch::default()
        }
    }

    #[test]
    fn a_row_has_the_thread_the_instruction_values_and_callers() {
        let blocks = blocks(&watch(), &Options::default());
        let want = "\
prog:state, 4 bytes at 0x1000: at least 1,240 writes; 1,235 meet the conditions
count  changed   first   last  thread    at
1,234        2  1.50ms  2.00s  worker    prog:work+0x8
        values 2 (1,200), 1 (30), others (4); last 1 -> 2; 4 racy
        1,200 <- prog:a+0x1
        34 <- prog:b+0x2 <- …
    1        2  1.50ms  2.00s  7 worker  system call of libc.so.6:read+0xd
        value 1 -> 2; racy";
        assert_eq!(blocks[0].join("\n"), want);
    }

    #[test]
    fn an_access_is_one_line() {
        let one = Access {
            at_ns: 1_002_003_004,
            tid: 7,
            comm: "wor\nker",
            variable: "prog:state",
            at: "libc.so.6:read+0xd",
            in_kernel: true,
            old: "1".into(),
            new: "2".into(),
            racy: true,
        };
        assert_eq!(
            access(&one, &Options::default()),
            "     1.002003004  wor\\nker/7               prog:state  1 -> 2  system call of libc.so.6:read+0xd; racy"
        );
        let json = crate::json_line(&one).expect("JSON");
        assert!(json.contains("\"new\":\"2\""));
    }

    #[test]
    fn rows_and_hits_that_are_left_out_are_counted() {
        let one = Options {
            top: Some(1),
            ..Options::default()
        };
        let blocks = blocks(&watch(), &one);
        let last = blocks[0].last().expect("lines");
        assert_eq!(last, "    1  in 1 more row (--top 0 shows all)");
        let session = Session {
            watch: Some(watch()),
            ..Session::default()
        };
        let notes = notes::lines(&session, &one).join("\n");
        for said in [
            "66 hits in 100ms",
            "18 of 20 windows",
            "racy: ",
            "3 hits of other processes",
        ] {
            assert!(notes.contains(said), "{said}: {notes}");
        }
    }
}
