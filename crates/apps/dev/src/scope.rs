//! `tiptoe-dev bench scope`: the cost of entering and leaving a scope, a named section of a program.
//!
//! The same program is measured without tiptoe (`bare`) and while tiptoe counts scopes (`scope`). The program enters
//! one scope (`one`), a scope inside another (`inner`), and a hundred scopes in turn (`many`). For comparison, it reads
//! the time stamp counter twice, which any timing needs, and makes two system calls for CPU time.

use std::time::{Duration, Instant};

use crate::driver::Tracing;
use crate::error::Error;
use crate::options::Options;
use crate::table::{Table, TableRow};
use crate::workshop::{Program, Workshop};

const PROGRAM: &str = include_str!("scope/program.c");
const LIMIT: Duration = Duration::from_secs(20);

const SITES: [(&str, &str); 3] = [("one", "scope"), ("inner", "inner"), ("many", "many")];
/// The rows for comparison: name, and question to the program.
const OTHERS: [(&str, &str); 2] = [("rdtsc", "counter"), ("thread_cputime", "clock")];

#[derive(Clone, Default)]
struct ScopeTimes {
    bare: [Vec<f64>; SITES.len()],
    scope: [Vec<f64>; SITES.len()],
    others: [Vec<f64>; OTHERS.len()],
}

pub(crate) fn run(options: &Options) -> Result<Table, Error> {
    let mut table = Table {
        bench: "scope".into(),
        ..Table::default()
    };
    let workshop = Workshop::with("scope", PROGRAM, &[("tiptoe.h", tiptoe_scope::HEADER)])?;
    let mut program = workshop.start(None)?;
    let mut found = vec![ScopeTimes::default(); options.threads.len()];
    for _ in 0..options.rounds {
        for (threads, found) in options.threads.iter().zip(&mut found) {
            let mut ask =
                |question: &str| program.ask(&format!("{question} {threads} {}", options.ms));
            for ((_, question), times) in OTHERS.iter().zip(&mut found.others) {
                times.push(ask(question)?);
            }
            for ((_, question), times) in SITES.iter().zip(&mut found.bare) {
                times.push(ask(question)?);
            }
        }
        let tracing = Tracing::scopes(program.pid(), options.agent);
        wait(&mut program, true)?;
        for (threads, found) in options.threads.iter().zip(&mut found) {
            for ((_, question), times) in SITES.iter().zip(&mut found.scope) {
                times.push(program.ask(&format!("{question} {threads} {}", options.ms))?);
            }
        }
        tracing.finish()?;
        wait(&mut program, false)?;
    }
    for (threads, found) in options.threads.iter().zip(&found) {
        let row = |case, times: &Vec<f64>, site| {
            let row = TableRow::new(case, times, "ns").at(site);
            TableRow {
                threads: Some(*threads),
                ..row
            }
        };
        for (at, (site, _)) in SITES.iter().enumerate() {
            table.rows.push(row("bare", &found.bare[at], *site));
            table.rows.push(row("scope", &found.scope[at], *site));
        }
        for ((other, _), times) in OTHERS.iter().zip(&found.others) {
            table.rows.push(row(other, times, "one"));
        }
    }
    Ok(table)
}

fn wait(program: &mut Program, is_traced: bool) -> Result<(), Error> {
    let until = Instant::now() + LIMIT;
    while (program.ask("traced")? > 0.0) != is_traced {
        if Instant::now() > until {
            return Err(Error::Unwatched);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
