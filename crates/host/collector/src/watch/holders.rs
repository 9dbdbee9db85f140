//! Lists which processes may hold the debug registers that a watch found taken, because the kernel
//! does not say.

use tiptoe_kernel::Error as KernelError;
use tiptoe_sys::host::Process;
use tiptoe_sys::host::tracers::foreign_tracers;

use crate::request::Error;

/// Makes an error of why breakpoints could not be opened, with the possible holders.
pub(crate) fn explain(error: KernelError) -> Error {
    if !matches!(error, KernelError::NoSlot { .. }) {
        return error.into();
    }
    let holders = holders();
    Error::new(error.to_string()).with_hint(match holders.is_empty() {
        true => "watch fewer variables, or end other programs with breakpoints (in other containers, too)"
            .to_owned(),
        false => format!("these may have them: {}", holders.join("; ")),
    })
}

fn holders() -> Vec<String> {
    let debuggers = Process::all().unwrap_or_default();
    let debuggers = debuggers.into_iter().filter_map(|traced| {
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
    let events = foreign_tracers().into_iter();
    let events = events.filter(|tracer| tracer.what.contains("perf event"));
    let events = events.map(|tracer| match tracer.pid {
        Some(pid) => format!("{} (pid {pid}): {}", tracer.comm, tracer.what),
        None => tracer.what,
    });
    debuggers.chain(events).collect()
}
