//! By what means hits (events that happened) are counted.

use core::fmt;
use core::str::FromStr;

/// What counts hits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Via {
    /// Code that the agent (tiptoe's library in the target) generates.
    Agent,
    /// The kernel's uprobes; for variables, breakpoints on all CPUs.
    Kernel,
    /// For variables: breakpoints of each thread.
    KernelTask,
    /// For each probe: the agent if possible, otherwise the kernel. If the agent would need a trap (int3), the cheaper
    /// of the two counts.
    #[default]
    Auto,
}

impl Via {
    /// All values.
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

/// A word that names no [`Via`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnknownWord;

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected one of agent, kernel, kernel-task, auto")
    }
}

impl core::error::Error for UnknownWord {}

impl FromStr for Via {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Via, UnknownWord> {
        let found = Via::ALL.into_iter().find(|via| via.word() == word);
        found.ok_or(UnknownWord)
    }
}
