//! Measures how much longer two threads take to alternate on a CPU while variables that no thread writes are watched.

use super::address;
use super::arm::{ArmMethod, Words};
use crate::error::Error;
use crate::options::Options;
use crate::table::{Table, TableRow};
use crate::turns::{in_turns, ratio};
use crate::workshop::Workshop;

/// How variables are watched, and how many; `None` without a watch.
type SwitchCase = Option<(ArmMethod, u64)>;

const CASES: [SwitchCase; 4] = [
    None,
    Some((ArmMethod::CpuWide, 4)),
    Some((ArmMethod::PerTask, 1)),
    Some((ArmMethod::PerTask, 4)),
];

fn name(case: SwitchCase) -> String {
    match case {
        None => "bare".to_owned(),
        Some((way, count)) => format!("{}_{count}", way.name()),
    }
}

pub(super) fn run(table: &mut Table, workshop: &Workshop, options: &Options) -> Result<(), Error> {
    let mut program = workshop.start(None)?;
    // Both threads must exist before the watch begins.
    program.ask("switch 1")?;
    let address = address(&mut program)?;
    let ms = 10 * options.ms;
    let found = in_turns(options.rounds, &CASES, name, table, |case| {
        let held = case.map(|(way, count)| {
            let words = Words {
                pid: program.pid(),
                address,
                count,
            };
            words.arm(way, workshop)
        });
        let _held = held.transpose()?;
        program.ask(&format!("switch {ms}"))
    })?;
    let bare = &found.cases[0].1;
    for (case, times) in &found.cases {
        table
            .rows
            .push(TableRow::new(name(*case), times, "ns").at("switch"));
        if case.is_some() {
            let (ratio, spread) = ratio(times, bare);
            table.notes.push(format!(
                "switch: {} takes {:+.1} % more (± {:.1})",
                name(*case),
                100.0 * (ratio - 1.0),
                100.0 * spread
            ));
        }
    }
    Ok(())
}
