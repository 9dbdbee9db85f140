//! What an agent says of itself when it begins to serve.

/// What the planner must know about an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// The process, in its own pid namespace.
    pub pid: u32,
    /// Offset from %fs of the pointer to a thread's descriptor.
    pub tls: i64,
    /// What trampolines call and read.
    pub addresses: AgentAddresses,
}

/// The addresses in the agent's image and tables that all trampolines use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentAddresses {
    /// Called if the thread has no counters yet, with slot and flags such as
    /// [`RECORDS`](crate::calls::RECORDS) on the stack. Preserves every register, returns by `ret
    /// $8`.
    pub cold_entry: u64,
    /// Called with a system call's number on the stack. Preserves every register, returns by `ret
    /// $8`.
    pub hook_entry: u64,
    /// Called by trampolines that follow calls, with the request on the stack. Preserves every
    /// register except %rax, returns by `ret $8`.
    pub slow_entry: u64,
    /// Called by trampolines that time calls, with ticks in %rax, the frame's end in %rcx and the
    /// byte offset of the probe's words in %rdx. Preserves all other registers.
    pub time_entry: u64,
    /// Called before and after futex calls, with the notice ([`futex`](crate::futex)) on the stack,
    /// and arguments or result in their registers. Preserves every register, returns by `ret $8`.
    pub futex_entry: u64,
    /// A byte that is 0 where a thread without counters must do nothing, as in a forked child.
    /// Never moves.
    pub gate: u64,
    /// The table of return thunks. Never moves.
    pub thunks: u64,
}
