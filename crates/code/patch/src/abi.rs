use tiptoe_wire::AgentAddresses;

/// The addresses and offsets that trampolines use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abi {
    /// %fs offset of the pointer to the thread's descriptor, whose first word points to the thread's counters or is 0.
    pub tls: i32,
    /// %fs offset of [`tiptoe_wire::tls::FRAMES`].
    pub frames: i32,
    /// The functions and words of the agent, our library in the target.
    pub agent: AgentAddresses,
}
