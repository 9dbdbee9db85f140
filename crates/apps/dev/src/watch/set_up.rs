//! Measures the time until four variables are watched.

use std::time::Duration;

use super::address;
use super::arm::{ArmMethod, Words};
use crate::error::Error;
use crate::options::Options;
use crate::table::{Table, TableRow};
use crate::turns::in_turns;
use crate::workshop::Workshop;

/// The watched words, which need all debug registers.
const WORDS: u64 = 4;
/// The number of threads, and for how many ms one thread looks for times in which it did not run: longer than the
/// set-up takes.
const THREADS: [(u32, u32); 3] = [(1, 300), (100, 400), (2_000, 1_000)];
const BEFORE: Duration = Duration::from_millis(20);

const SET_UP: &str = "set_up";
const STILL: &str = "still";

/// How the words are watched (`None`: unwatched), and what is measured.
type SetUpCase = (Option<ArmMethod>, &'static str);

const CASES: [SetUpCase; 7] = [
    (None, STILL),
    (Some(ArmMethod::CpuWide), SET_UP),
    (Some(ArmMethod::PerTask), SET_UP),
    (Some(ArmMethod::Ptrace), SET_UP),
    (Some(ArmMethod::CpuWide), STILL),
    (Some(ArmMethod::PerTask), STILL),
    (Some(ArmMethod::Ptrace), STILL),
];

fn name((way, _): SetUpCase) -> &'static str {
    way.map_or("idle", ArmMethod::name)
}

pub(super) fn run(table: &mut Table, workshop: &Workshop, options: &Options) -> Result<(), Error> {
    for (threads, ms) in THREADS {
        let full = |case: SetUpCase| format!("{}, {}, {threads} threads", name(case), case.1);
        let found = in_turns(options.rounds, &CASES, full, table, |case| {
            measure(case, workshop, threads, ms)
        })?;
        let rows = found.cases.iter().map(|(case, times)| TableRow {
            threads: Some(threads),
            ..TableRow::new(name(*case), times, "ms").at(case.1)
        });
        table.rows.extend(rows);
    }
    Ok(())
}

fn measure(
    (way, what): SetUpCase,
    workshop: &Workshop,
    threads: u32,
    watched_ms: u32,
) -> Result<f64, Error> {
    let mut program = workshop.start(None)?;
    let more = f64::from(threads - 1);
    if program.ask(&format!("threads {more}"))? < more {
        return Err(Error::Numbers);
    }
    let words = Words {
        pid: program.pid(),
        address: address(&mut program)?,
        count: WORDS,
    };
    let is_still = what == STILL;
    if is_still {
        program.begin(&format!("gap {watched_ms}"))?;
        std::thread::sleep(BEFORE);
    }
    let held = way.map(|way| words.arm(way, workshop)).transpose()?;
    match held {
        Some((ms, _)) if !is_still => Ok(ms),
        _ => program.answer().map(|ns| ns / 1e6),
    }
}
