//! An agent's greeting.

/// What the planner must know of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// In its own pid namespace.
    pub pid: u32,
    /// Offset from %fs of the pointer to a thread's descriptor.
    pub tls: i64,
    /// What trampolines call and read.
    pub addresses: AgentAddresses,
}

/// The agent's addresses that trampolines use. Entries preserve all registers and return by `ret $8`, unless stated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentAddresses {
    /// Called without counters yet, with slot and flags ([`RECORDS`](crate::calls::RECORDS)) on the stack.
    pub cold_entry: u64,
    /// Called with a system call's number on the stack.
    pub hook_entry: u64,
    /// Called to follow calls, with the request on the stack. Changes %rax.
    pub slow_entry: u64,
    /// Called to time calls: ticks in %rax, frame's end in %rcx, byte offset of the probe's words in %rdx. May change
    /// these; returns by `ret`.
    pub time_entry: u64,
    /// Called around futex calls with a notice ([`futex`](crate::futex)) on the stack.
    pub futex_entry: u64,
    /// A byte: 0 if a thread without counters must do nothing, as in a forked child. Never moves.
    pub gate: u64,
    /// The table of return thunks. Never moves.
    pub thunks: u64,
}
