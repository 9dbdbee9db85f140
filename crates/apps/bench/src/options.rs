//! How much a bench measures.

/// How much a bench measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The agent's bytes, as the command carries them.
    pub agent: &'static [u8],
    /// How often every case is measured.
    pub rounds: usize,
    /// How often at most where what is compared takes seconds.
    pub pairs: usize,
    /// For how much CPU time each single measurement runs.
    pub ms: u32,
    /// Up to how many threads run side by side.
    pub cpus: u32,
}

impl Options {
    /// The usual amount, with this agent.
    pub fn new(agent: &'static [u8]) -> Options {
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
        Options {
            agent,
            rounds: 7,
            pairs: 30,
            ms: 8,
            cpus: cpus.min(64),
        }
    }
}
