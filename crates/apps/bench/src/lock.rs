//! `tiptoe bench lock`: what watching contended locks costs those that are not, and those that are.
//!
//! The same program is measured with tiptoe attached and without, in turns: `bare` and `armed`. An
//! uncontended pair runs the same bytes either way. What a wait and a wake cost more is the difference of a
//! wait that returns at once and of an unlock that wakes nobody; `convoy` and `pingpong` are programs that do
//! little else.

use std::time::{Duration, Instant};

use crate::driver::Tracing;
use crate::error::Error;
use crate::options::Options;
use crate::table::{Row, Table, median_and_spread};

mod program;

use program::Program;

/// How long arming may take.
const LIMIT: Duration = Duration::from_secs(20);

/// What is measured: how the row is called, its question, and whether the threads' own time counts.
const SITES: [(&str, &str, &str); 7] = [
    ("mutex", "pair mutex", "ns"),
    ("rwlock_read", "pair read", "ns"),
    ("rwlock_write", "pair write", "ns"),
    ("wait", "wait", "ns"),
    ("wake", "wake", "ns"),
    ("convoy", "convoy 4", "ns"),
    ("pingpong", "pingpong", "ns"),
];

/// Measures every site, bare and armed in turns.
pub(crate) fn run(options: &Options) -> Result<Table, Error> {
    let mut table = Table {
        bench: "lock",
        ..Table::default()
    };
    let mut program = Program::start()?;
    let mut found = vec![[Vec::new(), Vec::new()]; SITES.len()];
    for _ in 0..options.rounds {
        for (at, armed) in [false, true].into_iter().enumerate() {
            let tracing = match armed {
                true => Some(arm(&mut program, options)?),
                false => None,
            };
            for ((_, question, _), times) in SITES.iter().zip(&mut found) {
                // What threads do together takes longer to settle.
                let ms = if question.starts_with("convoy") || question.starts_with("ping") {
                    10 * options.ms
                } else {
                    options.ms
                };
                times[at].push(program.ask(&format!("{question} {ms}"))?);
            }
            if let Some(tracing) = tracing {
                tracing.finish()?;
                wait(&mut program, false)?;
            }
        }
    }
    for ((site, _, unit), [bare, armed]) in SITES.iter().zip(&found) {
        table.rows.push(row("bare", site, bare, unit));
        table.rows.push(row("armed", site, armed, unit));
        table.notes.push(note(site, bare, armed));
    }
    Ok(table)
}

/// The difference of each round, in nanoseconds and as a part.
fn note(site: &str, bare: &[f64], armed: &[f64]) -> String {
    let pairs = bare.iter().zip(armed);
    let more: Vec<f64> = pairs.clone().map(|(bare, armed)| armed - bare).collect();
    let part: Vec<f64> = pairs
        .map(|(bare, armed)| 100.0 * (armed / bare - 1.0))
        .collect();
    let [(more, spread), (part, _)] = [&more, &part].map(|all| median_and_spread(all));
    format!("{site}: armed takes {more:+.2} ns more (± {spread:.2}), {part:+.1} %")
}

fn arm(program: &mut Program, options: &Options) -> Result<Tracing, Error> {
    let tracing = Tracing::locks(program.pid(), options.agent);
    wait(program, true)?;
    Ok(tracing)
}

fn wait(program: &mut Program, armed: bool) -> Result<(), Error> {
    let until = Instant::now() + LIMIT;
    while program.is_armed()? != armed {
        if Instant::now() > until {
            return Err(match armed {
                true => Error::Unprobed("libc"),
                false => Error::StillProbed("libc"),
            });
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // The last of them, and whatever else an attach has to do.
    std::thread::sleep(Duration::from_millis(30));
    Ok(())
}

fn row(case: &str, site: &str, times: &[f64], unit: &'static str) -> Row {
    let (value, spread) = median_and_spread(times);
    Row {
        case: case.to_owned(),
        site: Some(site.to_owned()),
        value,
        spread: Some(spread),
        unit,
        ..Row::default()
    }
}
