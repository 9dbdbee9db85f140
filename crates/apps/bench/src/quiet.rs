//! Is anything else tracing this machine? A measurement beside another tracer measures both.

use tiptoe_sys::host::{ForeignTracer, foreign_tracers};

use crate::table::Table;

/// Runs a bench between two looks around; what was seen becomes notes of its table.
pub(crate) fn watched<E>(bench: impl FnOnce() -> Result<Table, E>) -> Result<Table, E> {
    let before = foreign_tracers();
    let mut table = bench()?;
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
