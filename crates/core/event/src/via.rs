//! Who counts: code in the target, or the kernel.

use core::fmt;
use core::str::FromStr;

/// The way a hit is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Via {
    /// Code that the agent put into the target.
    Agent,
    /// The kernel's uprobes; of variables, breakpoints of all CPUs.
    Kernel,
    /// Of variables: breakpoints of each thread.
    KernelTask,
    /// The agent where it can, else the kernel, decided for each probe.
    #[default]
    Auto,
}

impl Via {
    /// Every way.
    pub const ALL: [Via; 4] = [Via::Agent, Via::Kernel, Via::KernelTask, Via::Auto];

    /// `agent`, `kernel`, `kernel-task` or `auto`.
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

/// A word that is none of those a value may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnknownWord {
    /// The words that it may be.
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
