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
use crate::table::Table;
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

/// Where its variables are.
fn address(program: &mut Program) -> Result<u64, Error> {
    Ok(program.ask("address")? as u64)
}
