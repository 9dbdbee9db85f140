//! `tiptoe bench watch`: what watching a variable costs, beside the other ways to do it.
//!
//! - `hit`: a store that is watched: counted by the kernel (`count`), written into a ring, with the callers, told by a
//!   signal, `tiptoe watch` (with value and callers), `perf record` and gdb.
//! - `set_up` and `still`: how long it takes until four variables are watched in so many threads, and how long one of
//!   them, which never waits, stands still meanwhile: events of the CPUs, of each thread, and ptrace.
//! - `switch`: a turn of two threads on one CPU that wake each other, while variables are watched that neither writes.
//! - `hot`: a round of a loop that stores tens of millions of times a second, with and without the allowance.
//!
//! Each measurement is of a process of its own, but for `switch`. It is of the threads' CPU time, but for gdb, which stops
//! them, and for the set-up.

use crate::error::Error;
use crate::options::Options;
use crate::table::{Table, median_and_spread};
use crate::workshop::{Program, Workshop};

mod arm;
mod hit;
mod hot;
mod others;
mod set_up;
mod switch;

const PROGRAM: &str = include_str!("watch/program.c");

/// Measures all of it.
pub(crate) fn run(options: &Options) -> Result<Table, Error> {
    let mut table = Table {
        bench: "watch",
        ..Table::default()
    };
    let workshop = Workshop::new("watch", PROGRAM)?;
    hit::run(&mut table, &workshop, options)?;
    set_up::run(&mut table, &workshop, options)?;
    switch::run(&mut table, &workshop, options)?;
    hot::run(&mut table, &workshop, options)?;
    Ok(table)
}

/// What was found in each case, by round.
struct Found<C> {
    cases: Vec<(C, Vec<f64>)>,
}

/// Measures all cases in each round, in an order that turns. What is refused is left out, with a note; but the first
/// case, which all are compared with, has to be there.
fn in_turns<C: Copy + PartialEq>(
    rounds: usize,
    all: &[C],
    name: impl Fn(C) -> String,
    table: &mut Table,
    mut measure: impl FnMut(C) -> Result<f64, Error>,
) -> Result<Found<C>, Error> {
    let mut cases: Vec<(C, Vec<f64>)> = all.iter().map(|&case| (case, Vec::new())).collect();
    for round in 0..rounds {
        for turn in 0..all.len() {
            let case = all[(turn + round) % all.len()];
            let Some(at) = cases.iter().position(|(other, _)| *other == case) else {
                continue;
            };
            match measure(case) {
                Ok(value) => cases[at].1.push(value),
                Err(error) if case == all[0] => return Err(error),
                Err(error) => {
                    cases.remove(at);
                    table
                        .notes
                        .push(format!("skipped: {} ({error})", name(case)));
                }
            }
        }
    }
    Ok(Found { cases })
}

/// What a case took of another's time, by round: the median and the spread.
fn ratio(times: &[f64], than: &[f64]) -> (f64, f64) {
    let pairs = times.iter().zip(than);
    median_and_spread(&pairs.map(|(a, b)| a / b).collect::<Vec<f64>>())
}

/// Where its variables are.
fn address(program: &mut Program) -> Result<u64, Error> {
    Ok(program.ask("address")? as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_left_out() {
        let mut table = Table::default();
        let found = in_turns(
            3,
            &[1.0, 2.0, 3.0],
            |case| format!("case {case}"),
            &mut table,
            |case| match case {
                2.0 => Err(Error::Missing),
                _ => Ok(case),
            },
        );
        let found = found.expect("the first case is there");
        assert_eq!(found.cases, [(1.0, vec![1.0; 3]), (3.0, vec![3.0; 3])]);
        assert_eq!(table.notes, ["skipped: case 2 (not installed)"]);
    }

    #[test]
    fn without_the_first_case_there_is_nothing() {
        let name = |case: i32| case.to_string();
        let refused = |_| Err(Error::Unwatched);
        let found = in_turns(1, &[1], name, &mut Table::default(), refused);
        assert!(found.is_err());
    }

    #[test]
    fn rounds_are_compared_with_their_own() {
        assert_eq!(ratio(&[2.0, 30.0, 8.0], &[1.0, 10.0, 2.0]), (3.0, 0.5));
    }
}
