//! `tiptoe bench breakpoint`: what accounting for debug registers costs, beside the same calls with accounting off
//! (`ideal`), the same accounting under one mutex (`global_mutex`), and the kernel's own.
//!
//! The options and the output of `thread` and `enable` are those of `perf bench breakpoint`.

mod enable;
mod forms;
mod queue;
mod stress;
mod thread;

pub use enable::Enable;
pub use queue::Queue;
pub use stress::Stress;
pub use thread::Thread;

use tiptoe_sys::host::perf::{Access, Breakpoint, On, PerfEvent};

use crate::error::Error;
use crate::options::Options;
use crate::table::Table;

/// `tiptoe bench breakpoint` by its options.
#[derive(Clone, Copy, Debug)]
pub enum Breakpoints {
    /// Pairs of reserve and release, and nothing else.
    Stress(Stress),
    /// The same on more CPUs than there are, simulated.
    Queue(Queue),
    /// Threads that are created and end.
    Thread(Thread),
    /// Switching one breakpoint off and on.
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

/// Without options of its own: `stress`.
pub(crate) fn run(options: &Options) -> Result<Table, Error> {
    Stress::new(options.rounds, options.ms, options.most_threads()).run()
}

/// The slots of a CPU's debug registers on x86.
const SLOTS: u32 = 4;

/// What the kernel's events watch: nothing ever writes there.
static WATCHED: u64 = 0;

/// So many breakpoints on the calling thread and on all that it will start.
fn inherited(count: u32) -> std::io::Result<Vec<PerfEvent>> {
    let breakpoint = |at: u32| Breakpoint {
        address: &raw const WATCHED as u64 + u64::from(at % 8),
        len: 1,
        access: Access::Write,
    };
    let opened =
        (0..count).map(|at| PerfEvent::count_accesses(&breakpoint(at), On::Thread(0), true));
    opened.collect()
}

/// How many CPUs a machine has, whatever this process may use of them.
fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32)
}
