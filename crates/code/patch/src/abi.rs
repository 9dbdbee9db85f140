use tiptoe_wire::AgentAddresses;

/// Where a trampoline finds its thread's words and the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abi {
    /// %fs offset of the pointer to the thread's descriptor, whose first word points to the thread's counters or is 0.
    pub tls: i32,
    /// %fs offset of [`tiptoe_wire::tls::FRAMES`].
    pub frames: i32,
    /// What trampolines call and read in the agent.
    pub agent: AgentAddresses,
}
