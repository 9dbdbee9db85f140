//! `tiptoe-dev bench breakpoint`: the cost of tiptoe's accounting for debug registers (slots), compared with no
//! accounting (`ideal`), one mutex (`global_mutex`) and the kernel's breakpoints. `thread` and `enable` have the
//! options and the output of `perf bench breakpoint`.

mod enable;
mod forms;
mod queue;
mod stress;
mod thread;

pub use enable::Enable;
pub use queue::Queue;
pub use stress::Stress;
pub use thread::Thread;

use tiptoe_sys::host::perf::{Access, Breakpoint, CountedOn, PerfEvent};

use crate::error::Error;
use crate::options::Options;
use crate::table::Table;
use crate::together::cpus;

/// A bench with its options.
#[derive(Clone, Copy, Debug)]
pub enum Breakpoints {
    /// Threads reserve and release slots, in pairs.
    Stress(Stress),
    /// The same pairs, simulated on more CPUs than this machine has.
    Queue(Queue),
    /// Threads are created and end.
    Thread(Thread),
    /// One breakpoint is disabled and enabled.
    Enable(Enable),
}

impl Breakpoints {
    pub(crate) fn run(&self) -> Result<Table, Error> {
        match self {
            Breakpoints::Stress(stress) => stress.run(),
            Breakpoints::Queue(queue) => queue.run(),
            Breakpoints::Thread(thread) => thread.run(),
            Breakpoints::Enable(enable) => enable.run(),
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<Table, Error> {
    Stress::new(options.rounds, options.ms, options.most_threads()).run()
}

/// The debug registers of a CPU on x86.
const SLOTS: u32 = 4;

/// No thread writes it.
static WATCHED: u64 = 0;

/// Opens breakpoints on the calling thread, which its new threads inherit.
fn inherited(count: u32) -> std::io::Result<Vec<PerfEvent>> {
    let breakpoint = |at: u32| Breakpoint {
        address: &raw const WATCHED as u64 + u64::from(at % 8),
        len: 1,
        access: Access::Write,
    };
    let opened =
        (0..count).map(|at| PerfEvent::count_accesses(&breakpoint(at), CountedOn::Thread(0), true));
    opened.collect()
}
