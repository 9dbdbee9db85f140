//! What an agent says of itself when it begins to serve.

/// What the planner must know about an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// The process, in its own pid namespace.
    pub pid: u32,
    /// Offset from %fs of the pointer to a thread's descriptor.
    pub tls: i64,
    /// Address of the entry for threads without a slab.
    pub cold_entry: u64,
    /// Address of the entry for system call hooks.
    pub hook_entry: u64,
    /// Address of the entry for trampolines that follow calls and need help.
    pub slow_entry: u64,
    /// Address of the entry for trampolines that time calls.
    pub time_entry: u64,
    /// Address of the entry before and after futex calls.
    pub futex_entry: u64,
    /// Address of the byte that is 0 where a thread without a slab must do nothing, as in a forked
    /// child. It stays the same for the life of the process.
    pub gate: u64,
    /// Address of the table of return thunks, which also stays the same.
    pub thunks: u64,
}
