/// The reason why a bench failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No bench has this name.
    #[error("no bench `{0}`")]
    Unknown(String),
    /// The numbers exceed those of any machine.
    #[error("no machine has this many slots, CPUs or threads")]
    Numbers,
    /// Threads would share CPUs, so their rates would not be those of as many CPUs.
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
        /// The failed operation.
        what: &'static str,
        /// The system's error.
        error: std::io::Error,
    },
    /// The benched program did not compile.
    #[error("the benched program does not compile: {0}")]
    Compile(String),
    /// There is no source to build.
    #[error(
        "TIPTOE_BENCH_SOURCE names no folder with a Makefile; scripts/bench-source.sh unpacks one"
    )]
    NoSource,
    /// The benched program's answer does not have the expected form.
    #[error("the benched program answered `{0}`")]
    Answer(String),
    /// A function has no probe, although tracing started.
    #[error("not every function of `{0}` was probed")]
    Unprobed(&'static str),
    /// Most traps were found without the lookup that the bench measures.
    #[error("most traps of `{0}` were not found speculatively")]
    Unspeculative(&'static str),
    /// A function still has its probe, although tracing ended.
    #[error("some function of `{0}` is still probed")]
    StillProbed(&'static str),
    /// Another tool is not installed.
    #[error("not installed")]
    Missing,
    /// The tool that watches a variable did not start.
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
    /// A limit of the machine, or an ended process.
    #[error(transparent)]
    System(#[from] tiptoe_sys::host::Error),
    /// Tracing failed.
    #[error(transparent)]
    Trace(#[from] tiptoe_collector::Error),
}
