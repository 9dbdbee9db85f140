//! Measures a loop that stores all the time.

use tiptoe_collector::Budget;

use super::address;
use super::hit::watch;
use crate::error::Error;
use crate::options::Options;
use crate::table::{Table, TableRow};
use crate::turns::{in_turns, ratio};
use crate::workshop::Workshop;

type HotCase = (&'static str, Option<Budget>);

const CASES: [HotCase; 3] = [
    ("bare", None),
    ("watch", Some(Budget::Percent(1.0))),
    ("watch_unlimited", Some(Budget::Off)),
];

pub(super) fn run(table: &mut Table, workshop: &Workshop, options: &Options) -> Result<(), Error> {
    // The loop must run for several of the periods (100 ms) for which the limit on hits is computed.
    let ms = 100 * options.ms;
    let name = |(name, _): HotCase| name.to_owned();
    let found = in_turns(options.rounds, &CASES, name, table, |(_, budget)| {
        let mut program = workshop.start(None)?;
        let address = address(&mut program)?;
        program.ask("hot 1")?;
        let watched = budget.map(|budget| watch(&program, address, budget));
        let _watched = watched.transpose()?;
        program.ask(&format!("hot {ms}"))
    })?;
    let bare = &found.cases[0].1;
    for ((case, budget), times) in &found.cases {
        table.rows.push(TableRow::new(*case, times, "ns").at("hot"));
        if budget.is_some() {
            let (ratio, spread) = ratio(times, bare);
            table.notes.push(format!(
                "hot: {case} takes {ratio:.3} times as long (± {spread:.3})"
            ));
        }
    }
    Ok(())
}
