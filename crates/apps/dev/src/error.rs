/// Why a bench failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No bench has this name.
    #[error("no bench `{0}`")]
    Unknown(String),
    /// The requested numbers exceed those of any machine.
    #[error("no machine has this many slots, CPUs or threads")]
    Numbers,
    /// Threads would share CPUs, which would lower their rates.
    #[error("{threads} threads need {threads} CPUs, and {cpus} can be used")]
    Threads {
        /// The requested threads.
        threads: u32,
        /// The CPUs that may be used.
        cpus: u32,
    },
    /// An input of the simulation cannot be measured.
    #[error("the time of a cache line from one CPU to another cannot be measured on one CPU")]
    OneCpu,
    /// The operating system refused.
    #[error("{what}: {error}")]
    Io {
        /// The operation.
        what: &'static str,
        /// The system's error.
        error: std::io::Error,
    },
    /// The benched program did not compile.
    #[error("the benched program does not compile: {0}")]
    Compile(String),
    /// No source to build was named.
    #[error(
        "TIPTOE_BENCH_SOURCE names no folder with a Makefile; scripts/bench-source.sh unpacks one"
    )]
    NoSource,
    /// The benched program's answer does not have the expected form.
    #[error("the benched program answered `{0}`")]
    Answer(String),
    /// Some functions were not probed.
    #[error("not every function of `{0}` was probed")]
    Unprobed(&'static str),
    /// Too many traps' probes were looked up in another way than the measured one.
    #[error("fewer than 90% of the traps of `{0}` were looked up in that way")]
    Lookups(&'static str),
    /// Some functions still have their probes.
    #[error("some function of `{0}` is still probed")]
    StillProbed(&'static str),
    /// A tool is not installed.
    #[error("not installed")]
    Missing,
    /// A tool did not start to watch.
    #[error("it did not begin to watch")]
    Unwatched,
    /// Not every access was counted.
    #[error("it saw {seen} of {made} accesses")]
    Unseen {
        /// The counted accesses.
        seen: u64,
        /// The accesses that were made.
        made: u64,
    },
    /// The kernel's breakpoints were refused.
    #[error(transparent)]
    Kernel(#[from] tiptoe_kernel::Error),
    /// The machine has a limit, or the process has ended.
    #[error(transparent)]
    System(#[from] tiptoe_sys::host::Error),
    /// Tracing failed.
    #[error(transparent)]
    Trace(#[from] tiptoe_collector::Error),
}
