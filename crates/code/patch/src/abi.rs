//! What a trampoline must know of the agent.

/// The agent's addresses that a trampoline uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abi {
    /// The %fs offset of the pointer to the thread's descriptor, whose first word points to the
    /// thread's counters or is 0.
    pub tls: i32,
    /// The %fs offset of the end of the thread's uppermost frame.
    pub frames: i32,
    /// Called if the thread has no counters yet. On the stack are the slot and flags such as
    /// [`tiptoe_wire::calls::RECORDS`]; the program's arguments are in their registers. Preserves
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
    /// Called before and after futex calls. On the stack is the notice ([`tiptoe_wire::futex`]);
    /// the call's arguments, or its result, are in their registers. Preserves every register,
    /// returns by `ret $8`.
    pub futex_entry: u64,
    /// The address of a byte that is 0 where a thread without counters must do nothing.
    pub gate: u64,
    /// The address of the table of return thunks.
    pub thunks: u64,
}
