//! The benches of `tiptoe-dev bench`: they measure what parts of tiptoe and their alternatives cost.
//!
//! Benches that compare cases alternate them in one run, because machines change their speed. They print medians and
//! spreads. Benches of hits generate and compile (`cc`) a program, and measure that program's CPU time; with several
//! threads, the wall time.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod assembly;
mod attach;
mod breakpoint;
mod build;
mod cgroup;
mod coverage;
mod driver;
mod error;
mod interrupt;
mod lock;
mod options;
mod private;
mod quiet;
mod resolve;
mod schedule;
mod scope;
mod table;
mod target;
mod temporary;
mod together;
mod turns;
mod uftrace;
mod uprobe;
mod watch;
mod workshop;

pub use breakpoint::{Breakpoints, Enable, Queue, Stress, Thread};
pub use error::Error;
pub use options::{Options, up_to};
pub use table::{Table, TableRow};
pub use temporary::{clean_up_on_signals, stay_if_ending};

/// A bench.
#[derive(Clone, Copy, Debug)]
pub struct Bench {
    /// The bench's name.
    pub name: &'static str,
    /// What the bench measures, in one line.
    pub about: &'static str,
    run: fn(&Options) -> Result<Table, Error>,
}

/// Returns every bench.
pub fn list() -> &'static [Bench] {
    &[
        Bench {
            name: "uprobe",
            about: "what a hit adds: by first instruction, depth, threads and number of functions",
            run: uprobe::run,
        },
        Bench {
            name: "lock",
            about: "what watching contended locks costs an uncontended pair, a wait and a wake; locks that \
                    report by themselves",
            run: lock::run,
        },
        Bench {
            name: "build",
            about: "how much longer a C build, and a load that contends, take while waits for mmap_lock are \
                    watched (half an hour)",
            run: build::run,
        },
        Bench {
            name: "coverage",
            about: "the share of functions that take a jump, by binary, and why the others do not",
            run: coverage::run,
        },
        Bench {
            name: "attach",
            about: "how long attaching to and detaching from many functions takes",
            run: attach::run,
        },
        Bench {
            name: "interrupt",
            about: "how long it takes from SIGINT to the end of tiptoe, in each phase of a trace (goal: 200 ms)",
            run: interrupt::run,
        },
        Bench {
            name: "resolve",
            about: "how often a second threads can ask which probe an address has, while mappings change",
            run: resolve::run,
        },
        Bench {
            name: "breakpoint",
            about: "what accounting for debug registers costs: `stress`, `queue`, and perf's `thread` and `enable`",
            run: breakpoint::run,
        },
        Bench {
            name: "cgroup",
            about: "what counting for each cgroup adds to a switch of tasks, beside perf's events of cgroups",
            run: cgroup::run,
        },
        Bench {
            name: "schedule",
            about: "what switching between cgroups does to counters, on 256 simulated CPUs with 1,000 cgroups",
            run: schedule::run,
        },
        Bench {
            name: "scope",
            about: "what entering and leaving a scope takes, by threads",
            run: scope::run,
        },
        Bench {
            name: "watch",
            about: "what watching a variable costs: a store, the set-up, a switch of threads, a hot loop",
            run: watch::run,
        },
    ]
}

/// Runs a bench of breakpoints. Fails if `stress` requests more threads than there are CPUs.
pub fn run_breakpoints(bench: &Breakpoints) -> Result<Table, Error> {
    if let Breakpoints::Stress(stress) = bench {
        fit(stress.threads)?;
    }
    quiet::watched(|| bench.run())
}

/// Runs a bench. Fails if `options` have more threads than there are CPUs.
pub fn run(name: &str, options: &Options) -> Result<Table, Error> {
    let bench = list().iter().find(|bench| bench.name == name);
    let bench = bench.ok_or_else(|| Error::Unknown(name.to_owned()))?;
    fit(options.most_threads())?;
    quiet::watched(|| (bench.run)(options))
}

fn fit(threads: u32) -> Result<(), Error> {
    match together::cpus() {
        cpus if threads > cpus => Err(Error::Threads { threads, cpus }),
        _ => Ok(()),
    }
}
