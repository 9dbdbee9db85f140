//! `tiptoe bench uprobe`: what a hit adds, in ns of the program's own CPU time.
//!
//! Cases alternate within each round, and a case's value is the median over rounds of its time less the
//! mean of the same round's two untraced times. Hot loops flatter: the rows with many functions say by
//! how much. Two cases are floors that the machine sets: `detour`, a jump to a copy of the first instructions and a
//! jump back, made by the assembler, with nothing counted; and `own_trap`, an int3 whose handler, the
//! program's own, does nothing.

use std::collections::BTreeMap;

use tiptoe_event::Via;

use crate::assembly::{DETOURS, KINDS, MANY, OWN_TRAP, SHARED, Site, TRAP};
use crate::driver::{Traced, Tracing};
use crate::error::Error;
use crate::options::Options;
use crate::table::{Row, Table, median_and_spread};
use crate::target::{Question, Target};
use crate::uftrace;

/// One way to trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Case {
    Floor,
    Count,
    Filtered,
    Kernel,
}

/// Never true: the benched functions are called with 7.
const FILTER: &str = "arg0 > 4096";

impl Case {
    const ALL: [Case; 4] = [Case::Floor, Case::Count, Case::Filtered, Case::Kernel];

    /// Its name in rows; a count behind a trap is a case of its own.
    fn name(self, site: Site) -> &'static str {
        match self {
            Case::Floor if site == TRAP => "own_trap",
            Case::Floor => "detour",
            Case::Count if site == TRAP => "trap",
            Case::Count => "count",
            Case::Filtered => "filtered",
            Case::Kernel => "kernel_uprobe",
        }
    }

    fn traced<'a>(self, sites: &'a [Site], agent: &'static [u8]) -> Traced<'a> {
        let via = if self == Case::Kernel {
            Via::Kernel
        } else {
            Via::Agent
        };
        let filter =
            (self == Case::Filtered).then(|| FILTER.parse().expect("a constant in the grammar"));
        Traced {
            agent,
            sites,
            via,
            filter,
        }
    }

    /// Is this measurement one of the case's?
    fn asks(self, asked: &Asked) -> bool {
        match self {
            Case::Floor => asked.threads == 1 && floor(asked.site).is_some(),
            Case::Count => true,
            Case::Filtered => asked.threads == 1 && asked.site.functions == 1 && asked.site != TRAP,
            Case::Kernel => asked.site != TRAP && asked.site.functions <= 256,
        }
    }
}

/// What one measurement is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    site: Site,
    depth: u32,
    threads: u32,
}

/// The same functions with nothing but the way to a probe and back.
fn floor(site: Site) -> Option<Site> {
    let of_its_size = |detour: &&Site| detour.functions == site.functions;
    match kind(site) {
        "push" => DETOURS.iter().find(of_its_size).copied(),
        _ => (site == TRAP).then_some(OWN_TRAP),
    }
}

/// Measures every case.
pub(crate) fn run(options: &Options) -> Result<Table, Error> {
    let probed = [&KINDS[..], &[TRAP], &MANY].concat();
    let mut target = Target::start(&[&probed[..], &DETOURS, &[OWN_TRAP, SHARED]].concat())?;
    let asked = questions(options.cpus);
    let mut added: BTreeMap<(usize, Option<Case>), Vec<f64>> = BTreeMap::new();
    let mut whole: BTreeMap<(usize, Case), Vec<f64>> = BTreeMap::new();
    for round in 0..options.rounds {
        let before = untraced(&mut target, &asked, options)?;
        let mut measured = Vec::new();
        for turn in 0..Case::ALL.len() {
            let case = Case::ALL[(turn + round) % Case::ALL.len()];
            measured.push((case, traced(&mut target, case, &probed, &asked, options)?));
        }
        let after = untraced(&mut target, &asked, options)?;
        for (index, (before, after)) in before.iter().zip(&after).enumerate() {
            added.entry((index, None)).or_default().push(after - before);
            for (case, times) in &measured {
                if let Some(time) = times[index] {
                    added
                        .entry((index, Some(*case)))
                        .or_default()
                        .push(time - (before + after) / 2.0);
                    whole.entry((index, *case)).or_default().push(time);
                }
            }
        }
    }
    let rows = added
        .iter()
        .map(|(&(index, case), values)| row(&asked[index], case, values));
    let mut table = Table {
        bench: "uprobe",
        rows: rows.collect(),
        notes: Vec::new(),
    };
    throughput(&mut table, &mut target, &asked, &whole, options)?;
    uftrace::add(&mut table, &mut target, options)?;
    table.notes.push(format!(
        "medians of {} alternating rounds; value is what a hit adds",
        options.rounds
    ));
    Ok(table)
}

/// Depth 0 and 5 for every kind, more threads and more functions for `push`.
fn questions(cpus: u32) -> Vec<Asked> {
    let kinds = KINDS.iter().chain([&TRAP]);
    let depths = kinds.flat_map(|&site| {
        [0, 5].map(|depth| Asked {
            site,
            depth,
            threads: 1,
        })
    });
    let threads = (2..=cpus.max(2)).map(|threads| Asked {
        site: KINDS[0],
        depth: 0,
        threads,
    });
    let many = MANY.iter().map(|&site| Asked {
        site,
        depth: 0,
        threads: 1,
    });
    depths.chain(threads).chain(many).collect()
}

fn ask(target: &mut Target, asked: &Asked, options: &Options) -> Result<f64, Error> {
    let Asked {
        site,
        depth,
        threads,
    } = *asked;
    Ok(target
        .measure(Question {
            site,
            depth,
            threads,
            ms: options.ms,
        })?
        .ns_per_call)
}

fn untraced(target: &mut Target, asked: &[Asked], options: &Options) -> Result<Vec<f64>, Error> {
    asked
        .iter()
        .map(|asked| ask(target, asked, options))
        .collect()
}

fn traced(
    target: &mut Target,
    case: Case,
    probed: &[Site],
    asked: &[Asked],
    options: &Options,
) -> Result<Vec<Option<f64>>, Error> {
    if case == Case::Floor {
        return asked
            .iter()
            .map(|asked| unprobed(target, asked, options))
            .collect();
    }
    let wanted = |site: &&Site| {
        asked
            .iter()
            .any(|asked| asked.site == **site && case.asks(asked))
    };
    let sites: Vec<Site> = probed.iter().filter(wanted).copied().collect();
    let tracing = Tracing::start(target, &case.traced(&sites, options.agent))?;
    let times = asked.iter().map(|asked| {
        case.asks(asked)
            .then(|| ask(target, asked, options))
            .transpose()
    });
    let times = times.collect::<Result<Vec<_>, _>>();
    tracing.finish()?;
    times
}

fn unprobed(target: &mut Target, asked: &Asked, options: &Options) -> Result<Option<f64>, Error> {
    let site = floor(asked.site).filter(|_| Case::Floor.asks(asked));
    let asked = site.map(|site| Asked { site, ..*asked });
    asked.map(|asked| ask(target, &asked, options)).transpose()
}

fn row(asked: &Asked, case: Option<Case>, values: &[f64]) -> Row {
    let (value, spread) = median_and_spread(values);
    Row {
        case: case.map_or("off", |case| case.name(asked.site)).to_owned(),
        site: Some(kind(asked.site).to_owned()),
        depth: Some(asked.depth),
        threads: Some(asked.threads),
        sites: Some(asked.site.functions),
        value,
        spread: Some(spread),
        unit: "ns",
        ..Row::default()
    }
}

/// The first instruction.
fn kind(site: Site) -> &'static str {
    match site.name {
        name if name.starts_with("push") => "push",
        "trap" => "ret",
        name => name,
    }
}

/// Hits a second over all CPUs: ours, one counter that all share, and the kernel's.
fn throughput(
    table: &mut Table,
    target: &mut Target,
    asked: &[Asked],
    whole: &BTreeMap<(usize, Case), Vec<f64>>,
    options: &Options,
) -> Result<(), Error> {
    let hot = |(_, asked): &(usize, &Asked)| asked.site == KINDS[0] && asked.depth == 0;
    for (index, asked) in asked.iter().enumerate().filter(hot) {
        for case in [Case::Count, Case::Kernel] {
            let times = whole.get(&(index, case)).map_or(&[][..], Vec::as_slice);
            per_second(table, case.name(asked.site), asked.threads, times);
        }
        let shared = Asked {
            site: SHARED,
            ..*asked
        };
        let times = (0..options.rounds).map(|_| ask(target, &shared, options));
        per_second(
            table,
            "shared_counter",
            asked.threads,
            &times.collect::<Result<Vec<_>, _>>()?,
        );
    }
    Ok(())
}

fn per_second(table: &mut Table, name: &str, threads: u32, times: &[f64]) {
    let rates: Vec<f64> = times
        .iter()
        .map(|ns| f64::from(threads) * 1e3 / ns)
        .collect();
    let (value, spread) = median_and_spread(&rates);
    let each = value / f64::from(threads);
    let case = format!("throughput_{name}");
    table.notes.push(format!(
        "{case} ({threads} cpus): {value:.1} ± {spread:.1} M/s ({each:.1} M/s/cpu)"
    ));
    table.rows.push(Row {
        case,
        site: Some("push".to_owned()),
        depth: Some(0),
        threads: Some(threads),
        sites: Some(1),
        value,
        spread: Some(spread),
        unit: "M/s",
        ..Row::default()
    });
}
