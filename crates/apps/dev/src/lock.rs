//! `tiptoe-dev bench lock`: the cost of watching contended locks.
//!
//! The same program is measured in turns: without tiptoe (`bare`), with tiptoe's agent, its code in the program
//! (`armed`), with an agent that times how long one mutex is held (`hold`), with the default budget (`budget`), and
//! with BPF programs at the kernel's futex tracepoints (`futex_tracepoints`).
//!
//! An uncontended lock and unlock execute the same bytes in all cases but `hold`, because only `hold` patches the lock
//! functions. The cost of a wait and a wake is measured with a wait that returns at once and an unlock that wakes no
//! thread. `floor` is the least time that hooks can take.
//!
//! The rows `pair`, `pair_within` and `contended` measure programs that link tiptoe's locks ([`linked`]). Other tools'
//! libraries replace the lock functions ([`preloads`]), so they slow each uncontended pair.

use std::time::{Duration, Instant};

use tiptoe_collector::Budget;
use tiptoe_event::Via;

use crate::driver::{Tracing, attached};
use crate::error::Error;
use crate::options::Options;
use crate::table::{Table, TableRow, median_and_spread};
use crate::workshop::{Program, Workshop};

mod linked;
mod preloads;

use preloads::PreloadedProgram;

const PROGRAM: &str = include_str!("lock/program.c");
/// The longest wait until all call sites are patched or restored.
const LIMIT: Duration = Duration::from_secs(20);

/// The time that tiptoe needs after the bench has seen an attach or a detach.
const SETTLE: Duration = Duration::from_millis(30);
/// The number of BPF programs: for the beginning of a wait, for its end, and for the end of a thread.
const PROGRAMS: usize = 3;

/// For each measured site: the row's name, the question to the program, and the unit.
const SITES: [(&str, &str, &str); 10] = [
    ("mutex", "pair mutex", "ns"),
    ("other_mutex", "pair other", "ns"),
    ("rwlock_read", "pair read", "ns"),
    ("rwlock_write", "pair write", "ns"),
    ("wait", "wait", "ns"),
    ("wake", "wake", "ns"),
    ("convoy", "convoy 4", "ns"),
    ("pingpong_sem", "pingpong sem", "ns"),
    ("pingpong_cond", "pingpong cond", "ns"),
    ("pingpong_mutex", "pingpong mutex", "ns"),
];

const CASES: [(&str, Option<Via>); 5] = [
    ("bare", None),
    ("armed", Some(Via::Agent)),
    (HOLD, Some(Via::Agent)),
    (BUDGET, Some(Via::Agent)),
    ("futex_tracepoints", Some(Via::Kernel)),
];
const HOLD: &str = "hold";
const HELD_LOCKS: [&str; 2] = ["mutex", "other_mutex"];
/// This case is measured only at [`WAITING`], sites that mostly wait, and after [`WARM`], in which the agent measures
/// the rate of waits.
const BUDGET: &str = "budget";
const WAITING: [&str; 6] = [
    "wait",
    "wake",
    "convoy",
    "pingpong_sem",
    "pingpong_cond",
    "pingpong_mutex",
];
const WARM: &str = "wait 300";
const FLOORS: [(&str, &str); 2] = [("wait", "floor wait"), ("wake", "floor wake")];
/// The sites at which other tools are measured.
const THEIRS: [&str; 4] = ["mutex", "rwlock_read", "rwlock_write", "convoy"];

pub(crate) fn run(options: &Options) -> Result<Table, Error> {
    let mut table = Table {
        bench: "lock".into(),
        ..Table::default()
    };
    let workshop = Workshop::new("lock", PROGRAM)?;
    let mut program = workshop.start(None)?;
    let (mut others, missing) = preloads::all(&workshop)?;
    let mut found = vec![CASES.map(|_| Vec::new()); SITES.len()];
    let mut theirs = vec![vec![Vec::new(); THEIRS.len()]; others.len()];
    let mut floors = FLOORS.map(|_| Vec::new());
    let mut left_out = None;
    for round in 0..options.rounds {
        for ((_, question), more) in FLOORS.iter().zip(&mut floors) {
            more.push(ask(&mut program, question, options)?);
        }
        for (other, times) in others.iter_mut().zip(&mut theirs) {
            ask_other(other, times, options)?;
        }
        // Every other round is reversed, so that the order does not favour a case.
        let mut cases: Vec<_> = CASES.into_iter().enumerate().collect();
        if round % 2 == 1 {
            cases.reverse();
        }
        for (at, (case, via)) in cases {
            let tracing = match via {
                Some(Via::Kernel) if left_out.is_some() => continue,
                Some(Via::Kernel) => match watch(&program, options) {
                    Ok(tracing) => Some(tracing),
                    Err(error) => {
                        left_out = Some(error.to_string());
                        continue;
                    }
                },
                Some(_) => Some(arm(&mut program, case, options)?),
                None => None,
            };
            let sites = SITES.iter().zip(&mut found);
            let sites = sites.filter(|((site, ..), _)| match case {
                HOLD => HELD_LOCKS.contains(site),
                BUDGET => WAITING.contains(site),
                _ => true,
            });
            if case == BUDGET {
                program.ask(WARM)?;
            }
            for ((_, question, _), times) in sites {
                times[at].push(ask(&mut program, question, options)?);
            }
            if let Some(tracing) = tracing {
                tracing.finish()?;
                if via == Some(Via::Agent) {
                    wait(&mut program, false)?;
                }
            }
        }
    }
    for ((site, _, unit), times) in SITES.iter().zip(&found) {
        let cases = CASES
            .iter()
            .zip(times)
            .filter(|(_, times)| !times.is_empty());
        for ((case, via), found) in cases {
            table.rows.push(TableRow::new(*case, found, unit).at(*site));
            let note = via.map(|_| note(site, case, &times[0], found));
            table.notes.extend(note);
        }
        if let Some(at) = FLOORS.iter().position(|(floor, _)| floor == site) {
            let least: Vec<f64> = times[0]
                .iter()
                .zip(&floors[at])
                .map(|(a, b)| a + b)
                .collect();
            table
                .rows
                .push(TableRow::new("floor", &least, unit).at(*site));
            table.notes.push(note(site, "floor", &times[0], &least));
        }
        let at = THEIRS.iter().position(|theirs| theirs == site);
        for (other, times) in others.iter().zip(&theirs).filter(|_| at.is_some()) {
            let times = &times[at.unwrap_or(0)];
            table
                .rows
                .push(TableRow::new(other.case, times, unit).at(*site));
        }
    }
    let left_out = left_out.map(|why| format!("futex_tracepoints is left out: {why}"));
    table.notes.extend(left_out);
    linked::run(options, &mut table)?;
    let skipped = missing.iter();
    let skipped = skipped.map(|case| format!("skipped: {case} (not installed)"));
    table.notes.extend(skipped);
    Ok(table)
}

fn ask(program: &mut Program, question: &str, options: &Options) -> Result<f64, Error> {
    // Several threads take longer to reach a steady speed.
    let together = question.starts_with("convoy") || question.starts_with("ping");
    let ms = if together {
        10 * options.ms
    } else {
        options.ms
    };
    program.ask(&format!("{question} {ms}"))
}

fn ask_other(
    other: &mut PreloadedProgram,
    times: &mut [Vec<f64>],
    options: &Options,
) -> Result<(), Error> {
    let sites = SITES.iter().filter(|(site, ..)| THEIRS.contains(site));
    for ((_, question, _), times) in sites.zip(times) {
        times.push(ask(&mut other.program, question, options)?);
    }
    Ok(())
}

fn note(site: &str, case: &str, bare: &[f64], watched: &[f64]) -> String {
    let pairs = bare.iter().zip(watched);
    let more: Vec<f64> = pairs
        .clone()
        .map(|(bare, watched)| watched - bare)
        .collect();
    let part: Vec<f64> = pairs
        .map(|(bare, watched)| 100.0 * (watched / bare - 1.0))
        .collect();
    let [(more, spread), (part, _)] = [&more, &part].map(|all| median_and_spread(all));
    format!("{site}: {case} takes {more:+.2} ns more (± {spread:.2}), {part:+.1} %")
}

fn arm(program: &mut Program, case: &str, options: &Options) -> Result<Tracing, Error> {
    let hold = (case == HOLD).then_some("program:mutex");
    let budget = match case {
        BUDGET => Budget::Percent(1.0),
        _ => Budget::Off,
    };
    let tracing = Tracing::locks(program.pid(), Via::Agent, hold, budget, options.agent);
    wait(program, true)?;
    Ok(tracing)
}

fn watch(program: &Program, options: &Options) -> Result<Tracing, Error> {
    let tracing = Tracing::locks(program.pid(), Via::Kernel, None, Budget::Off, options.agent);
    let until = Instant::now() + LIMIT;
    while attached() < PROGRAMS {
        if tracing.is_over() {
            tracing.finish()?;
            return Err(Error::Unprobed("the kernel"));
        }
        if Instant::now() > until {
            return Err(Error::Unprobed("the kernel"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(SETTLE);
    Ok(tracing)
}

fn wait(program: &mut Program, is_armed: bool) -> Result<(), Error> {
    let until = Instant::now() + LIMIT;
    while (program.ask("armed")? != 0.0) != is_armed {
        if Instant::now() > until {
            return Err(match is_armed {
                true => Error::Unprobed("libc"),
                false => Error::StillProbed("libc"),
            });
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(SETTLE);
    Ok(())
}
