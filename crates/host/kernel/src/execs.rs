//! Detects that a process runs another program, because uprobes count in any program that maps the same files.

use std::fs;

use tiptoe_sys::host::Process;
use tiptoe_sys::host::perf::{self, CountedOn, PerfEvent, abi};
use tiptoe_sys::host::tracefs::Tracefs;

#[derive(Debug)]
pub(crate) struct Execs {
    event: PerfEvent,
    /// 1 if the process is still our fork, because its exec into the command must not count; else 0.
    own: u64,
}

impl Execs {
    pub(crate) fn of(process: Process) -> Option<Self> {
        let path = "events/sched/sched_process_exec/id";
        let id = fs::read_to_string(Tracefs::detect().root()?.join(path)).ok()?;
        let attr = perf::attr(abi::PERF_TYPE_TRACEPOINT, id.trim().parse().ok()?);
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
