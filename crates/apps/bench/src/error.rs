//! Why a bench failed.

/// Why a bench failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No bench has this name.
    #[error("no bench `{0}`")]
    Unknown(String),
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
    /// The benched program answered something else than was asked.
    #[error("the benched program answered `{0}`")]
    Answer(String),
    /// Something else traces this machine, and would be measured too.
    #[error("something else traces this machine: {0}")]
    Disturbed(String),
    /// Tracing failed.
    #[error(transparent)]
    Trace(#[from] tiptoe_collector::Error),
}
