//! Measures a watched store.

use std::time::{Duration, Instant};

use tiptoe_collector::Budget;
use tiptoe_sys::host::perf::{Access, Breakpoint, CountedOn, PerfEvent};

use super::address;
use super::watch_tools::OtherWatcher;
use crate::driver::{Tracing, attached};
use crate::error::Error;
use crate::options::Options;
use crate::table::{Table, TableRow};
use crate::turns::{in_turns, ratio};
use crate::workshop::{Program, Workshop, failed};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HitCase {
    Bare,
    Count,
    /// The program opens an event itself. The fields are the row's name, and the argument of the request `own`.
    Own(&'static str, &'static str),
    Watch,
    PerfRecord,
    PerfRecordCallers,
    Gdb,
}

const CASES: [HitCase; 9] = [
    HitCase::Bare,
    HitCase::Count,
    HitCase::Own("ring", "ring"),
    HitCase::Own("ring_callers", "chain"),
    HitCase::Own("sigtrap", "sigtrap"),
    HitCase::Watch,
    HitCase::PerfRecord,
    HitCase::PerfRecordCallers,
    HitCase::Gdb,
];

impl HitCase {
    fn name(self) -> &'static str {
        match self {
            HitCase::Bare => "bare",
            HitCase::Count => "count",
            HitCase::Own(name, _) => name,
            HitCase::Watch => "watch",
            HitCase::PerfRecord => "perf_record",
            HitCase::PerfRecordCallers => "perf_record_callers",
            HitCase::Gdb => "gdb",
        }
    }
}

/// The number of stores before the measurement, after which `tiptoe watch` has decoded the storing code.
const BEFORE: u64 = 100;
/// The most time until `tiptoe watch` has started.
const LIMIT: Duration = Duration::from_secs(20);
/// The time that `tiptoe watch` needs to decode the storing code.
const SETTLE: Duration = Duration::from_millis(50);

pub(super) fn run(table: &mut Table, workshop: &Workshop, options: &Options) -> Result<(), Error> {
    let stores = (u64::from(options.ms) * 250).clamp(250, 8_000);
    let name = |case: HitCase| case.name().to_owned();
    let found = in_turns(options.rounds, &CASES, name, table, |case| {
        measure(case, workshop, stores)
    })?;
    let count = found.cases.iter().find(|(case, _)| *case == HitCase::Count);
    for (case, times) in &found.cases {
        table
            .rows
            .push(TableRow::new(case.name(), times, "ns").at("hit"));
        if let Some((_, count)) = count.filter(|_| !matches!(case, HitCase::Bare | HitCase::Count))
        {
            let (ratio, spread) = ratio(times, count);
            table.notes.push(format!(
                "hit: {} takes {ratio:.2} times as long as count (± {spread:.2})",
                case.name()
            ));
        }
    }
    by_threads(table, workshop, options, stores)
}

/// Hits of all threads share the BPF program's tables.
fn by_threads(
    table: &mut Table,
    workshop: &Workshop,
    options: &Options,
    stores: u64,
) -> Result<(), Error> {
    let cases = [HitCase::Bare, HitCase::Watch];
    for &threads in &options.threads {
        let name = |case: HitCase| format!("{} by {threads} threads", case.name());
        let found = in_turns(options.rounds, &cases, name, table, |case| {
            let mut program = workshop.start(None)?;
            let address = address(&mut program)?;
            if case == HitCase::Bare {
                return program.ask(&format!("many {threads} {}", stores * 1_000));
            }
            let many =
                |program: &mut Program, stores| program.ask(&format!("many {threads} {stores}"));
            watched(&mut program, address, stores, threads, many)
        })?;
        for (case, times) in &found.cases {
            let row = TableRow::new(case.name(), times, "ns").at("hit in each thread");
            table.rows.push(row.of_threads(threads));
        }
    }
    Ok(())
}

/// Measures stores that `tiptoe watch` counts. `ask(program, n)` lets each thread make `n` stores.
fn watched(
    program: &mut Program,
    address: u64,
    stores: u64,
    threads: u32,
    ask: impl Fn(&mut Program, u64) -> Result<f64, Error>,
) -> Result<f64, Error> {
    let tracing = watch(program, address, Budget::Off)?;
    ask(program, BEFORE)?;
    std::thread::sleep(SETTLE);
    let ns = ask(program, stores)?;
    let watched = tracing.finish()?.watch.unwrap_or_default();
    let seen = watched.variables.first().map_or(0, |seen| seen.hits);
    all_seen(seen, u64::from(threads) * (stores + BEFORE)).map(|()| ns)
}

fn measure(case: HitCase, workshop: &Workshop, stores: u64) -> Result<f64, Error> {
    let mut program = workshop.start(None)?;
    let address = address(&mut program)?;
    program.ask(&format!("hits {BEFORE}"))?;
    let ask = |program: &mut Program, stores: u64| program.ask(&format!("hits {stores}"));
    match case {
        HitCase::Bare => ask(&mut program, stores * 1_000),
        HitCase::Count => {
            let at = Breakpoint {
                address,
                len: 8,
                access: Access::Write,
            };
            let event = PerfEvent::count_accesses(&at, CountedOn::Thread(program.pid()), false);
            let event = event.map_err(failed("opening a breakpoint"))?;
            let ns = ask(&mut program, stores)?;
            let seen = event.read().map_err(failed("reading a breakpoint"))?;
            all_seen(seen.count, stores).map(|()| ns)
        }
        HitCase::Own(_, how) => {
            let refused = program.ask(&format!("own {how}"))?;
            if refused != 0.0 {
                let error = std::io::Error::from_raw_os_error(refused as i32);
                return Err(failed("opening a breakpoint")(error));
            }
            let ns = ask(&mut program, stores)?;
            let seen = program.ask("seen")?.max(0.0) as u64;
            all_seen(seen, stores).map(|()| ns)
        }
        HitCase::Watch => watched(&mut program, address, stores, 1, ask),
        HitCase::PerfRecord | HitCase::PerfRecordCallers => {
            let has_callers = case == HitCase::PerfRecordCallers;
            let folder = workshop.folder();
            let _perf = OtherWatcher::perf_record(&mut program, address, has_callers, folder)?;
            ask(&mut program, stores)
        }
        HitCase::Gdb => {
            let gdb = OtherWatcher::gdb(&mut program, address, workshop.folder())?;
            // The wall time is measured, because the program does not run while gdb handles a store.
            let ns = program.ask(&format!("stops {}", (stores / 20).max(10)))?;
            // The program must end before gdb, because without gdb the next store would kill it.
            drop(program);
            drop(gdb);
            Ok(ns)
        }
    }
}

pub(super) fn watch(program: &Program, address: u64, budget: Budget) -> Result<Tracing, Error> {
    let tracing = Tracing::watch(program.pid(), &format!("{address:#x}:8"), budget);
    let until = Instant::now() + LIMIT;
    while attached() == 0 {
        if tracing.is_over() {
            tracing.finish()?;
            return Err(Error::Unwatched);
        }
        if Instant::now() > until {
            return Err(Error::Unwatched);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(SETTLE);
    Ok(tracing)
}

/// Fails if a tool missed stores, because it would look cheap.
fn all_seen(seen: u64, made: u64) -> Result<(), Error> {
    match seen >= made {
        true => Ok(()),
        false => Err(Error::Unseen { seen, made }),
    }
}
