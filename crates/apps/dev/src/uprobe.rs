//! `tiptoe-dev bench uprobe`: how much a hit adds, in ns of the program's own CPU time.
//!
//! A case's value is the median over rounds. In each round, the mean of two untraced times is subtracted from the
//! case's time. Hot loops make hits cheaper; the rows with many functions show by how much. `entry_return` traces each
//! call's entry and return, `latency` times the call, and `record` writes a record with the time and two arguments.
//! `under` and `not_under` measure `--under`, for calls inside and outside its function. `by_arg0` and
//! `latency_by_arg0` measure `--by arg0`, with one value.
//!
//! The rows `throughput_…` are the calls of all pinned threads per second of wall time, with a jump, a trap, or the
//! kernel's probe. tiptoe's agent, its code in the program, looks up a trap's probe by the trap's address: without a
//! lock in `trap`, under a lock in `trap_locked`.
//!
//! Four rows are lower bounds (floors) that the machine sets. `detour` only jumps to a copy of the first instructions
//! and back. `bare_return` jumps to code that calls such a copy. `own_trap` is an int3 with an empty handler of the
//! program. `rdtsc` is one reading of the time stamp counter.

mod case;
mod clock;
mod kernel_returns;

use std::collections::BTreeMap;

use tiptoe_event::Via;
use tiptoe_session::{Event, Session};

use crate::assembly::{BARE_RETURNS, DETOURS, KINDS, MANY, OWN_TRAP, READINGS, SHARED, Site, TRAP};
use crate::driver::Tracing;
use crate::error::Error;
use crate::options::Options;
use crate::table::{Table, TableRow, median_and_spread};
use crate::target::{CallTimes, Question, Target};
use crate::uftrace;
use case::{CallLoad, Case, SINGLE_STEPPED, kind};
use kernel_returns::KernelReturns;

/// The least percentage of traps whose probe must be looked up in the case's way.
const LEAST_PERCENT: u64 = 90;

pub(crate) fn run(options: &Options) -> Result<Table, Error> {
    let probed = [&KINDS[..], &[TRAP], &MANY].concat();
    let all = [
        &probed[..],
        &DETOURS,
        &BARE_RETURNS,
        &[OWN_TRAP, SHARED, READINGS],
    ]
    .concat();
    let loads = questions(&options.threads);
    let mut added: BTreeMap<(usize, Option<Case>), Vec<f64>> = BTreeMap::new();
    let mut rates: BTreeMap<(usize, Case), Vec<f64>> = BTreeMap::new();
    let mut kept = Vec::new();
    let mut refused: BTreeMap<Case, String> = BTreeMap::new();
    for round in 0..options.rounds {
        // Each round needs a new process, because the agent gets slower with each call site that it records.
        let mut target = Target::start(&all)?;
        let before = untraced(&mut target, &loads, options)?;
        let mut measured = Vec::new();
        for turn in 0..Case::ALL.len() {
            let case = Case::ALL[(turn + round) % Case::ALL.len()];
            if refused.contains_key(&case) {
                continue;
            }
            match traced(&mut target, case, &probed, &loads, options) {
                Ok(times) => {
                    measured.push((case, times.each));
                    kept.extend(times.kept);
                }
                // The kernel lacks perf events, or this user may not open them.
                Err(error) if case.is_kernels() => {
                    refused.insert(case, error.to_string());
                }
                Err(error) => return Err(error),
            }
        }
        let after = untraced(&mut target, &loads, options)?;
        for (index, (before, after)) in before.iter().zip(&after).enumerate() {
            let [before, after] = [before, after].map(|measured| measured.ns_per_call);
            added.entry((index, None)).or_default().push(after - before);
            for (case, times) in &measured {
                if let Some(measured) = times[index] {
                    added
                        .entry((index, Some(*case)))
                        .or_default()
                        .push(measured.ns_per_call - (before + after) / 2.0);
                    rates
                        .entry((index, *case))
                        .or_default()
                        .push(measured.per_s);
                }
            }
        }
    }
    let rows = added
        .iter()
        .map(|(&(index, case), values)| table_row(&loads[index], case, values));
    let mut table = Table {
        bench: "uprobe".into(),
        rows: rows.collect(),
        ..Table::default()
    };
    let mut target = Target::start(&all)?;
    throughput(&mut table, &mut target, &loads, &rates, options)?;
    clock::add(&mut table, &mut target, options)?;
    uftrace::add(&mut table, &mut target, options)?;
    let refused = refused.iter();
    let notes = refused.map(|(case, why)| format!("skipped: {} ({why})", case.name(KINDS[0])));
    table.notes.extend(notes);
    if !kept.is_empty() {
        table.notes.push(format!(
            "record: {:.0}% of the calls found room in their ring; a call without room writes nothing",
            median_and_spread(&kept).0 * 100.0
        ));
    }
    table.notes.push(format!(
        "medians of {} alternating rounds; value is what a hit adds",
        options.rounds
    ));
    Ok(table)
}

fn questions(threads: &[u32]) -> Vec<CallLoad> {
    let kinds = KINDS.iter().chain([&TRAP]);
    let depths = kinds.flat_map(|&site| {
        [0, 5].map(|depth| CallLoad {
            site,
            depth,
            threads: 1,
        })
    });
    let several = threads.iter().filter(|&&threads| threads > 1);
    let threads = several.flat_map(|&threads| {
        [KINDS[0], TRAP, SINGLE_STEPPED].map(|site| CallLoad {
            site,
            depth: 0,
            threads,
        })
    });
    let many = MANY.iter().map(|&site| CallLoad {
        site,
        depth: 0,
        threads: 1,
    });
    depths.chain(threads).chain(many).collect()
}

fn ask(target: &mut Target, load: &CallLoad, options: &Options) -> Result<CallTimes, Error> {
    let CallLoad {
        site,
        depth,
        threads,
    } = *load;
    target.measure(Question {
        site,
        depth,
        threads,
        ms: options.ms,
    })
}

fn untraced(
    target: &mut Target,
    loads: &[CallLoad],
    options: &Options,
) -> Result<Vec<CallTimes>, Error> {
    loads
        .iter()
        .map(|load| ask(target, load, options))
        .collect()
}

/// A case's times, one for each load (the called functions); `None` if the case is not measured for the load.
struct Times {
    each: Vec<Option<CallTimes>>,
    kept: Option<f64>,
}

impl From<Vec<Option<CallTimes>>> for Times {
    fn from(each: Vec<Option<CallTimes>>) -> Times {
        Times { each, kept: None }
    }
}

fn traced(
    target: &mut Target,
    case: Case,
    probed: &[Site],
    loads: &[CallLoad],
    options: &Options,
) -> Result<Times, Error> {
    if matches!(case, Case::Floor | Case::ReturnFloor) {
        let times = loads
            .iter()
            .map(|load| unprobed(target, case, load, options));
        return Ok(times.collect::<Result<Vec<_>, _>>()?.into());
    }
    let wanted = |site: &&Site| {
        loads
            .iter()
            .any(|load| load.site == **site && case.measures(load))
    };
    let sites: Vec<Site> = probed.iter().filter(wanted).copied().collect();
    let times = |target: &mut Target| -> Result<Vec<Option<CallTimes>>, Error> {
        let times = loads.iter().map(|load| {
            case.measures(load)
                .then(|| ask(target, load, options))
                .transpose()
        });
        times.collect()
    };
    if case == Case::KernelReturn {
        let armed = KernelReturns::arm(target, &sites)?;
        let times = times(target)?;
        return match armed.finish()? {
            0 => Err(Error::Unprobed("kernel_uretprobe")),
            _ => Ok(times.into()),
        };
    }
    let tracing = Tracing::start(target, &case.traced(&sites, options.agent))?;
    let each = times(target);
    let session = tracing.finish()?;
    let each = each?;
    let hits: u64 = session.events.iter().map(|event| event.count).sum();
    if (hits > 0) != case.counts() {
        return Err(Error::Unprobed(case.name(KINDS[0])));
    }
    if sites.contains(&TRAP) {
        check_lookups(&session, case)?;
    }
    Ok(Times {
        each,
        kept: kept(&session),
    })
}

fn check_lookups(session: &Session, case: Case) -> Result<(), Error> {
    let (traps, lookups) = (traps(session), lookups(session, case));
    match traps > 0 && lookups >= traps / 100 * LEAST_PERCENT {
        true => Ok(()),
        false => Err(Error::Lookups(case.name(TRAP))),
    }
}

fn traps(session: &Session) -> u64 {
    let prefix = format!("{}_at", TRAP.name);
    let is_trap = |event: &&Event| {
        let name = event.event.rsplit(':').next().unwrap_or_default();
        // A site's first function has a second name `first_…`, a label of the program.
        name.trim_start_matches("first_").starts_with(&prefix)
    };
    let events = session.events.iter();
    let of_traps = events
        .filter(|event| event.via == Via::Agent)
        .filter(is_trap);
    of_traps.map(|event| event.count).sum()
}

fn lookups(session: &Session, case: Case) -> u64 {
    let spaces = session.targets.iter();
    let spaces = spaces.filter_map(|target| target.address_space);
    let of_case = spaces.map(|space| match case {
        Case::Locked => space.locked,
        _ => space.speculative,
    });
    of_case.sum()
}

fn kept(session: &Session) -> Option<f64> {
    let records = session.events.iter().filter_map(|event| event.records);
    let (kept, all) = records.fold((0, 0), |(kept, all), records| {
        (
            kept + records.recorded,
            all + records.recorded + records.lost,
        )
    });
    (all > 0).then(|| kept as f64 / all as f64)
}

fn unprobed(
    target: &mut Target,
    case: Case,
    load: &CallLoad,
    options: &Options,
) -> Result<Option<CallTimes>, Error> {
    let site = case.floor(load.site).filter(|_| case.measures(load));
    let load = site.map(|site| CallLoad { site, ..*load });
    load.map(|load| ask(target, &load, options)).transpose()
}

fn table_row(load: &CallLoad, case: Option<Case>, values: &[f64]) -> TableRow {
    let case = case.map_or("off", |case| case.name(load.site));
    TableRow {
        depth: Some(load.depth),
        threads: Some(load.threads),
        sites: Some(load.site.functions),
        ..TableRow::new(case, values, "ns").at(kind(load.site))
    }
}

fn throughput(
    table: &mut Table,
    target: &mut Target,
    loads: &[CallLoad],
    rates: &BTreeMap<(usize, Case), Vec<f64>>,
    options: &Options,
) -> Result<(), Error> {
    let direct = |(_, load): &(usize, &CallLoad)| load.depth == 0;
    for (index, load) in loads.iter().enumerate().filter(direct) {
        let cases: &[Case] = match load.site {
            site if site == KINDS[0] => &[Case::Count, Case::Kernel],
            site if site == TRAP => &[Case::Count, Case::Locked, Case::Floor],
            site if site == SINGLE_STEPPED => &[Case::Kernel],
            _ => continue,
        };
        for case in cases {
            let found = rates.get(&(index, *case));
            let found = found.map_or(&[][..], Vec::as_slice);
            per_second(table, case.name(load.site), load, found);
        }
        if load.site == KINDS[0] {
            let shared = CallLoad {
                site: SHARED,
                ..*load
            };
            let rate = |_| Ok(ask(target, &shared, options)?.per_s);
            let rates = (0..options.rounds).map(rate);
            let rates = rates.collect::<Result<Vec<f64>, Error>>()?;
            per_second(table, "shared_counter", load, &rates);
        }
    }
    Ok(())
}

fn per_second(table: &mut Table, name: &str, load: &CallLoad, rates: &[f64]) {
    let rates: Vec<f64> = rates.iter().map(|rate| rate / 1e6).collect();
    let (value, spread) = median_and_spread(&rates);
    let threads = load.threads;
    let each = value / f64::from(threads);
    let (case, site) = (format!("throughput_{name}"), kind(load.site));
    table.notes.push(format!(
        "{case} of {site} ({threads} cpus): {value:.1} ± {spread:.1} M/s ({each:.1} M/s/cpu)"
    ));
    table.rows.push(TableRow {
        depth: Some(0),
        threads: Some(threads),
        sites: Some(1),
        ..TableRow::new(case, &rates, "M/s").at(site)
    });
}

#[cfg(test)]
mod tests {
    use tiptoe_event::Reading;
    use tiptoe_session::{AddressSpace, Event, Process};

    use super::*;

    #[test]
    fn a_trap_that_is_looked_up_in_another_way_is_not_measured() {
        let check = |case, event: &str, [speculative, locked]: [u64; 2]| {
            let reading = Reading {
                count: 1_000,
                ..Reading::default()
            };
            let session = Session {
                events: vec![Event::new(event, Via::Agent, reading)],
                targets: vec![Process {
                    pid: 1,
                    comm: "target".into(),
                    address_space: Some(AddressSpace {
                        speculative,
                        locked,
                        ..AddressSpace::default()
                    }),
                }],
                ..Session::new(Vec::new())
            };
            check_lookups(&session, case).is_ok()
        };
        let trap = "uprobe:target:trap_at0";
        assert!(check(Case::Count, trap, [900, 100]));
        assert!(!check(Case::Count, trap, [899, 101]));
        assert!(check(Case::Locked, trap, [0, 1_000]));
        assert!(!check(Case::Locked, trap, [1_000, 0]));
        assert!(!check(Case::Count, "uprobe:target:push_at0", [900, 0]));
    }
}
