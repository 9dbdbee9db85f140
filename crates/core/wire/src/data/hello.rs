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
    /// Called if the thread has no counters yet. On the stack are the slot and flags such as
    /// [`RECORDS`](crate::calls::RECORDS); the program's arguments are in their registers. Preserves
    /// every register, returns by `ret $8`.
    pub cold_entry: u64,
    /// Called with a system call's number on the stack. Preserves every register, returns by `ret
    /// $8`.
    pub hook_entry: u64,
    /// Called by trampolines that follow calls, with the request on the stack. Preserves every
    /// register except %rax, returns by `ret $8`.
    pub slow_entry: u64,
    /// Called by trampolines that time calls, with ticks in %rax, the end of the frame in %rcx and
    /// the byte offset of the probe's words in %rdx. Preserves every register except these three.
    pub time_entry: u64,
    /// Called before and after futex calls. On the stack is the notice ([`futex`](crate::futex));
    /// the call's arguments, or its result, are in their registers. Preserves every register,
    /// returns by `ret $8`.
    pub futex_entry: u64,
    /// A byte that is 0 where a thread without counters must do nothing, as in a forked child. It
    /// stays at its address for the life of the process.
    pub gate: u64,
    /// The table of return thunks, which also stays.
    pub thunks: u64,
}
