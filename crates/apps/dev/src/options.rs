/// How much a bench measures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The bytes of tiptoe's agent, its code in a traced program.
    pub agent: &'static [u8],
    /// How often each case is measured.
    pub rounds: usize,
    /// The most rounds of a bench whose cases take seconds.
    pub pairs: usize,
    /// The time of each measurement.
    pub ms: u32,
    /// The numbers of threads, the largest last.
    pub threads: Vec<u32>,
}

impl Options {
    /// Returns the default options, with this agent.
    pub fn new(agent: &'static [u8]) -> Options {
        let cpus = crate::together::cpus();
        Options {
            agent,
            rounds: 7,
            pairs: 30,
            ms: 8,
            threads: up_to(cpus.min(64)),
        }
    }

    /// Returns the largest number of threads.
    pub fn most_threads(&self) -> u32 {
        self.threads.last().copied().unwrap_or(1)
    }
}

/// Returns 1, 2, 4 and so on below `threads`, and then `threads`.
pub fn up_to(threads: u32) -> Vec<u32> {
    let doubled = std::iter::successors(Some(1), |threads| Some(threads * 2));
    doubled
        .take_while(|&fewer| fewer < threads)
        .chain([threads])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_double_up_to_all() {
        assert_eq!(up_to(1), [1]);
        assert_eq!(up_to(2), [1, 2]);
        assert_eq!(up_to(6), [1, 2, 4, 6]);
    }
}
