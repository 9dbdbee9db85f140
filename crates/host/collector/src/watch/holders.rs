//! Lists the processes that may hold the debug registers, because the kernel does not say.

use tiptoe_kernel::Error as KernelError;
use tiptoe_sys::host::Process;
use tiptoe_sys::host::tracers::foreign_tracers;

use crate::request::Error;

/// Adds the possible holders to the error of breakpoints that found no register.
pub(crate) fn explain(error: KernelError) -> Error {
    if !matches!(error, KernelError::NoSlot { .. }) {
        return error.into();
    }
    Error::new(error.to_string()).with_hint(hint(&debuggers(), &perf_events()))
}

/// Returns the hint about possible holders. Only a debugger is suspected: the kernel does not show what a perf event
/// counts, and most are no breakpoints.
fn hint(debuggers: &[String], events: &[String]) -> String {
    match (debuggers, events) {
        ([], []) => {
            "watch fewer variables, or end other programs with breakpoints (in other containers, too)".to_owned()
        }
        ([], events) => format!(
            "no debugger was found; one of these perf events may be a breakpoint, and most are not: {}",
            events.join("; ")
        ),
        (debuggers, _) => format!("these debuggers may have them: {}", debuggers.join("; ")),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: any process with a perf event was named as the holder, even beside a debugger.
    #[test]
    fn an_innocent_perf_event_was_named_as_the_holder() {
        let [gdb, perf] = [
            "gdb (pid 7), which traces prog (pid 8)",
            "perf (pid 9): 2 x perf event",
        ]
        .map(|one| vec![one.to_owned()]);
        assert_eq!(
            hint(&gdb, &perf),
            "these debuggers may have them: gdb (pid 7), which traces prog (pid 8)"
        );
        let alone = hint(&[], &perf);
        assert!(alone.contains("and most are not: perf (pid 9)"), "{alone}");
        assert!(hint(&[], &[]).starts_with("watch fewer variables"));
    }
}
