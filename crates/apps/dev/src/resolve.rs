//! `tiptoe-dev bench resolve`: the rate at which threads can look up the probe of an address.
//!
//! The addresses are random over all mappings, and each has a probe. `speculative` looks addresses up in tiptoe's tree
//! of mappings, mostly without a lock; `rwlock` in the same tree under a reader-writer lock, as other tracers do.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use crate::error::Error;
use crate::options::Options;
use crate::table::{Table, TableRow, median_and_spread};

mod find_object;
mod world;

use find_object::FindObject;
use world::{LookupCounts, World, WorldCase};

const MAPPINGS: [usize; 3] = [100, 10_000, 100_000];
const CHANGES_PER_S: [u32; 2] = [0, 1_000];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ResolveCase {
    changes_per_s: u32,
    case: WorldCase,
    threads: u32,
}

pub(crate) fn run(options: &Options) -> Result<Table, Error> {
    let mut table = Table {
        bench: "resolve".into(),
        ..Table::default()
    };
    for mappings in MAPPINGS {
        space(&mut table, mappings, options)?;
    }
    libraries(&mut table, options)?;
    Ok(table)
}

fn space(table: &mut Table, mappings: usize, options: &Options) -> Result<(), Error> {
    let zero = || AtomicU64::new(0);
    let words: Vec<AtomicU64> = std::iter::repeat_with(zero)
        .take(world::shape(mappings).words())
        .collect();
    let world = World::new(&words, mappings)?;
    let all = questions(&options.threads);
    let mut measured: BTreeMap<ResolveCase, Vec<LookupCounts>> = BTreeMap::new();
    for round in 0..options.rounds {
        for turn in 0..all.len() {
            let question = all[(turn + round) % all.len()];
            let ResolveCase {
                changes_per_s,
                case,
                threads,
            } = question;
            let found = world.measure(case, threads, changes_per_s, options.ms)?;
            measured.entry(question).or_default().push(found);
        }
    }
    for (question, found) in &measured {
        let rates: Vec<f64> = found.iter().map(|found| found.per_s / 1e6).collect();
        add(table, question, mappings, &rates);
    }
    note_slow_lookups(table, mappings, &measured);
    Ok(())
}

fn questions(threads: &[u32]) -> Vec<ResolveCase> {
    let mut all = Vec::new();
    for &threads in threads {
        for changes_per_s in CHANGES_PER_S {
            all.extend(WorldCase::ALL.map(|case| ResolveCase {
                changes_per_s,
                case,
                threads,
            }));
        }
    }
    all
}

fn add(table: &mut Table, question: &ResolveCase, mappings: usize, rates: &[f64]) {
    let ResolveCase {
        changes_per_s,
        case,
        threads,
    } = *question;
    let what = format!(
        "{} {mappings} mappings {changes_per_s} changes/s",
        case.name()
    );
    let row = rate(table, &what, threads, rates);
    table.rows.push(TableRow {
        case: case.name().to_owned(),
        mappings: Some(mappings),
        changes_per_s: Some(changes_per_s),
        ..row
    });
}

fn rate(table: &mut Table, what: &str, threads: u32, rates: &[f64]) -> TableRow {
    let (value, spread) = median_and_spread(rates);
    let each = value / f64::from(threads);
    table.notes.push(format!(
        "{what} ({threads} cpus): {value:.1} M/s ({each:.1} M/s/cpu)"
    ));
    TableRow {
        threads: Some(threads),
        value,
        spread: Some(spread),
        unit: "M/s".into(),
        ..TableRow::default()
    }
}

fn note_slow_lookups(
    table: &mut Table,
    mappings: usize,
    measured: &BTreeMap<ResolveCase, Vec<LookupCounts>>,
) {
    let changed = measured.iter().filter(|(question, _)| {
        question.case == WorldCase::Speculative && question.changes_per_s > 0
    });
    let sum = changed
        .flat_map(|(_, found)| found.iter().copied())
        .fold(LookupCounts::default(), LookupCounts::plus);
    let LookupCounts {
        speculative,
        locked,
        unsure,
        ..
    } = sum;
    table.notes.push(format!(
        "{mappings} mappings {} changes/s: of {} lookups {locked} took the lock and {unsure} were unsure",
        CHANGES_PER_S[1],
        speculative + locked + unsure,
    ));
}

fn libraries(table: &mut Table, options: &Options) -> Result<(), Error> {
    let Some(program) = FindObject::compile()? else {
        table
            .notes
            .push("skipped: dl_find_object (not in this libc)".to_owned());
        return Ok(());
    };
    for &threads in &options.threads {
        let found = (0..options.rounds).map(|_| program.measure(threads, options.ms));
        let found = found.collect::<Result<Vec<_>, _>>()?;
        let rates: Vec<f64> = found.iter().map(|(_, rate)| *rate).collect();
        let row = rate(table, "dl_find_object", threads, &rates);
        table.rows.push(TableRow {
            case: "dl_find_object".to_owned(),
            mappings: found.first().map(|(objects, _)| *objects),
            changes_per_s: Some(0),
            ..row
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_is_right_while_mappings_change() {
        let zero = || AtomicU64::new(0);
        let words: Vec<_> = std::iter::repeat_with(zero)
            .take(world::shape(100).words())
            .collect();
        let world = World::new(&words, 100).expect("storage");
        for case in WorldCase::ALL {
            let found = world.measure(case, 2, 10_000, 5).expect("right");
            assert!(found.speculative + found.locked > 0);
        }
    }
}
