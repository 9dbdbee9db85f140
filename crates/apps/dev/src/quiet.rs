//! Detects other tracers of this machine, because a measurement beside another tracer measures
//! both.

use std::time::Duration;

use tiptoe_sys::host::{ForeignTracer, foreign_tracers};

use crate::table::Table;

/// The time in which the kernel forgets closed programs of ours.
const FORGETS: Duration = Duration::from_millis(500);

/// Runs a bench between two lookups of other tracers, which become notes of its table.
pub(crate) fn watched<E>(bench: impl FnOnce() -> Result<Table, E>) -> Result<Table, E> {
    let before = foreign_tracers();
    let mut table = bench()?;
    std::thread::sleep(FORGETS);
    let after = foreign_tracers();
    let mut seen: Vec<ForeignTracer> = before.into_iter().chain(after).collect();
    seen.sort();
    seen.dedup();
    table.notes.extend(seen.iter().map(|tracer| {
        let ForeignTracer { pid, comm, what } = tracer;
        let pid = pid.map_or(String::new(), |pid| format!(" ({pid})"));
        format!("not to be trusted: {comm}{pid} traced this machine too, with {what}")
    }));
    Ok(table)
}
