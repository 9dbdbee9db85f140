//! What counts: code in the target, or the kernel.

use core::fmt;
use core::str::FromStr;

/// How hits are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Via {
    /// By code that the agent puts into the target.
    Agent,
    /// By the kernel's uprobes; for variables, by breakpoints on all CPUs.
    Kernel,
    /// For variables: by breakpoints of each thread.
    KernelTask,
    /// By the agent if possible, else by the kernel, decided for each probe. Where the agent would need a trap, by the
    /// cheaper of the two.
    #[default]
    Auto,
}

impl Via {
    /// All ways.
    pub const ALL: [Via; 4] = [Via::Agent, Via::Kernel, Via::KernelTask, Via::Auto];

    /// Returns `agent`, `kernel`, `kernel-task` or `auto`.
    pub const fn word(self) -> &'static str {
        match self {
            Via::Agent => "agent",
            Via::Kernel => "kernel",
            Via::KernelTask => "kernel-task",
            Via::Auto => "auto",
        }
    }
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A word that is not allowed for a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnknownWord {
    /// The allowed words.
    pub expected: &'static str,
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected one of {}", self.expected)
    }
}

impl core::error::Error for UnknownWord {}

impl FromStr for Via {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Via, UnknownWord> {
        let found = Via::ALL.into_iter().find(|via| via.word() == word);
        found.ok_or(UnknownWord {
            expected: "agent, kernel, kernel-task, auto",
        })
    }
}
