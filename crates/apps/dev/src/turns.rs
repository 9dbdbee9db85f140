//! Measures cases in turns.

use crate::error::Error;
use crate::table::{Table, median_and_spread};

pub(crate) struct CaseResults<C> {
    pub(crate) cases: Vec<(C, Vec<f64>)>,
}

/// Measures all cases in each round. The order rotates, and every other round is reversed, because a case may disturb
/// the next. A failed case is omitted, with a note. The first case must succeed, because all others are compared with
/// it.
pub(crate) fn in_turns<C: Copy + PartialEq>(
    rounds: usize,
    all: &[C],
    name: impl Fn(C) -> String,
    table: &mut Table,
    mut measure: impl FnMut(C) -> Result<f64, Error>,
) -> Result<CaseResults<C>, Error> {
    let mut cases: Vec<(C, Vec<f64>)> = all.iter().map(|&case| (case, Vec::new())).collect();
    for round in 0..rounds {
        for turn in 0..all.len() {
            let turn = match round.is_multiple_of(2) {
                true => turn,
                false => all.len() - 1 - turn,
            };
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
    Ok(CaseResults { cases })
}

/// Returns the median and the spread of the ratios of two times in the same round.
pub(crate) fn ratio(times: &[f64], than: &[f64]) -> (f64, f64) {
    let pairs = times.iter().zip(than);
    median_and_spread(&pairs.map(|(a, b)| a / b).collect::<Vec<f64>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_case_is_skipped() {
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
    fn a_failed_first_case_fails_the_whole_bench() {
        let name = |case: i32| case.to_string();
        let refused = |_| Err(Error::Unwatched);
        let found = in_turns(1, &[1], name, &mut Table::default(), refused);
        assert!(found.is_err());
    }

    #[test]
    fn ratios_compare_times_of_one_round() {
        assert_eq!(ratio(&[2.0, 30.0, 8.0], &[1.0, 10.0, 2.0]), (3.0, 0.5));
    }
}
