//! Detects that a process has called exec.

use tiptoe_sys::host::Process;
use tiptoe_sys::host::perf::{self, CountedOn, PerfEvent, abi};

use crate::counters::tracepoint_id;

#[derive(Debug)]
pub(crate) struct Execs {
    event: PerfEvent,
    /// The expected execs: 1 if the process is still tiptoe's fork, which will exec the command; otherwise 0.
    own: u64,
}

impl Execs {
    pub(crate) fn of(process: Process) -> Option<Self> {
        let id = tracepoint_id("sched", "sched_process_exec").ok()?;
        let attr = perf::attr(abi::PERF_TYPE_TRACEPOINT, u32::try_from(id).ok()?);
        let event = PerfEvent::open(attr, CountedOn::Thread(process.pid())).ok()?;
        let runs = |process: Process| process.exe().ok();
        let is_our_fork = runs(process).is_some_and(|exe| Some(exe) == runs(Process::current()));
        let own = u64::from(is_our_fork);
        Some(Self { event, own })
    }

    pub(crate) fn any(&self) -> bool {
        self.event
            .read()
            .is_ok_and(|counts| counts.count > self.own)
    }
}
