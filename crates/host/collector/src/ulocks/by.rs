//! What rows of waits are made of.

/// What rows are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ByLock {
    /// Each lock.
    #[default]
    Lock,
    /// Each place from where it was waited for.
    Callsite,
    /// Each thread.
    Thread,
    /// Each kind of lock.
    Type,
    /// Each scope that the program enters.
    Scope,
}

impl ByLock {
    /// As the user has it.
    pub fn word(self) -> &'static str {
        match self {
            ByLock::Lock => "lock",
            ByLock::Callsite => "callsite",
            ByLock::Thread => "thread",
            ByLock::Type => "type",
            ByLock::Scope => "scope",
        }
    }
}
