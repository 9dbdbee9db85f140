//! Lists processes that may hold the debug registers, because the kernel does not report the holder.

use tiptoe_kernel::Error as KernelError;
use tiptoe_sys::host::Process;
use tiptoe_sys::host::tracers::foreign_tracers;

use crate::error::Error;

pub(crate) fn explain(error: KernelError) -> Error {
    if !matches!(error, KernelError::NoSlot { .. }) {
        return error.into();
    }
    Error::NoSlot {
        error,
        debuggers: debuggers(),
        perf_events: perf_events(),
    }
}

fn debuggers() -> Vec<String> {
    let traced = Process::all().unwrap_or_default();
    let debuggers = traced.into_iter().filter_map(|traced| {
        let tracer = traced.status().ok()?.tracer_pid;
        let tracer = Process::new(tracer).ok()?;
        let name = |process: Process| process.comm().unwrap_or_default();
        Some(format!(
            "{} (pid {}), which traces {} (pid {})",
            name(tracer),
            tracer.pid(),
            name(traced),
            traced.pid()
        ))
    });
    debuggers.collect()
}

fn perf_events() -> Vec<String> {
    let events = foreign_tracers().into_iter();
    let events = events.filter(|tracer| tracer.what.contains("perf event"));
    let events = events.map(|tracer| match tracer.pid {
        Some(pid) => format!("{} (pid {pid}): {}", tracer.comm, tracer.what),
        None => tracer.what,
    });
    events.collect()
}
