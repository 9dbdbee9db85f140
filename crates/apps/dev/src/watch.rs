//! `tiptoe-dev bench watch`: the cost of watching a variable, with tiptoe and other tools.
//!
//! - `hit`: a watched store. The kernel counts the store (`count`), writes it into a ring, without or with the callers,
//!   or reports it by a signal. Other cases are `tiptoe watch` (with value and callers), `perf record` and gdb.
//! - `hit in each thread`: watched stores by several threads at once.
//! - `set_up` and `still`: the time until four variables are watched in all threads, and the longest part of it in
//!   which a busy thread did not run.
//! - `switch`: a turn of two threads that alternate on one CPU, while variables that neither writes are watched.
//! - `hot`: a round of a loop that stores tens of millions of times per second, with and without a limit on hits.
//!
//! Each measurement except `switch` has its own process. Times are CPU time of the threads. They are wall time in
//! `hit in each thread`, `set_up` and `still`, and for gdb, which stops the threads.

use crate::error::Error;
use crate::options::Options;
use crate::table::Table;
use crate::workshop::{Program, Workshop};

mod arm;
mod hit;
mod hot;
mod set_up;
mod switch;
mod watch_tools;

const PROGRAM: &str = include_str!("watch/program.c");

pub(crate) fn run(options: &Options) -> Result<Table, Error> {
    let mut table = Table {
        bench: "watch".into(),
        ..Table::default()
    };
    let workshop = Workshop::new("watch", PROGRAM)?;
    hit::run(&mut table, &workshop, options)?;
    set_up::run(&mut table, &workshop, options)?;
    switch::run(&mut table, &workshop, options)?;
    hot::run(&mut table, &workshop, options)?;
    Ok(table)
}

fn address(program: &mut Program) -> Result<u64, Error> {
    Ok(program.ask("address")? as u64)
}
