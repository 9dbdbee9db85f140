/// What tiptoe must know of an agent, its library in a target, to plan patches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// The process id in the agent's own pid namespace.
    pub pid: u32,
    /// %fs offset of the pointer to the thread's descriptor, whose first word points to the thread's counters.
    pub tls: i64,
    /// What trampolines (the code that tiptoe generates) call and read.
    pub addresses: AgentAddresses,
}

/// The agent's addresses that trampolines use. Entries preserve all registers and return by `ret $8`, unless stated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentAddresses {
    /// Called at a hit by a thread without counters, with the counter's number (*slot*) and flags
    /// ([`crate::calls::RECORDS`]) on the stack.
    pub cold_entry: u64,
    /// Called with a system call's number on the stack.
    pub hook_entry: u64,
    /// Called if the beginning or end of a followed call (observed until it returns) needs the agent, with slot and
    /// flags on the stack. Changes %rax.
    pub slow_entry: u64,
    /// Called to time calls: ticks in %rax, the end of the call's record in %rcx, the byte offset of the probe's words
    /// in %rdx. May change these registers; returns by `ret`.
    pub time_entry: u64,
    /// Called around futex calls, with a description of the call ([`crate::futex`]) on the stack.
    pub futex_entry: u64,
    /// A byte at a constant address. If it is 0, as in a forked child, a thread without counters must not call the
    /// agent.
    pub gate: u64,
    /// The table of return thunks, the code to which followed calls return, at a constant address.
    pub thunks: u64,
}
