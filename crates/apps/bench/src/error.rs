//! Why a bench failed.

/// Why a bench failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No bench has this name.
    #[error("no bench `{0}`")]
    Unknown(String),
    /// There are no machines like that.
    #[error("no machine has so many slots, CPUs or threads")]
    Numbers,
    /// The operating system refused.
    #[error("{what}: {error}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// Its words.
        error: std::io::Error,
    },
    /// The benched program did not compile.
    #[error("the benched program does not compile: {0}")]
    Compile(String),
    /// There is nothing to build.
    #[error(
        "TIPTOE_BENCH_SOURCE names no folder with a Makefile; scripts/bench-source.sh unpacks one"
    )]
    NoSource,
    /// The benched program answered something else than was asked.
    #[error("the benched program answered `{0}`")]
    Answer(String),
    /// Tracing began, and some function got no probe.
    #[error("not every function of `{0}` was probed")]
    Unprobed(&'static str),
    /// Tracing ended, and some function still carries its probe.
    #[error("some function of `{0}` is still probed")]
    StillProbed(&'static str),
    /// Another tool is not there.
    #[error("not installed")]
    Missing,
    /// What watches a variable did not begin.
    #[error("it did not begin to watch")]
    Unwatched,
    /// Not every access was seen.
    #[error("it saw {seen} of {made} accesses")]
    Unseen {
        /// So many were.
        seen: u64,
        /// Of so many.
        made: u64,
    },
    /// The kernel's breakpoints were refused.
    #[error(transparent)]
    Kernel(#[from] tiptoe_kernel::Error),
    /// A limit of the machine, or a process that is gone.
    #[error(transparent)]
    System(#[from] tiptoe_sys::host::Error),
    /// Tracing failed.
    #[error(transparent)]
    Trace(#[from] tiptoe_collector::Error),
}
