//! The grouping of waits.

/// What waits are grouped by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ByLock {
    /// Each lock.
    #[default]
    Lock,
    /// Each call site that waited.
    Callsite,
    /// Each thread.
    Thread,
    /// Each kind of lock.
    Type,
    /// Each scope that the program enters.
    Scope,
}

impl ByLock {
    /// Returns the user's word for the grouping.
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
