//! Detects that a process runs another program, in which uprobes go on counting if the program maps the same files.

use tiptoe_sys::host::Process;
use tiptoe_sys::host::perf::{self, CountedOn, PerfEvent, abi};

use crate::counters::tracepoint_id;

#[derive(Debug)]
pub(crate) struct Execs {
    event: PerfEvent,
    /// The execs that must not count: 1 if the process is still our fork, which will become the command; else 0.
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
