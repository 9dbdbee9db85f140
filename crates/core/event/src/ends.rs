//! How followed calls ended.

/// The calls of one event by how they ended. Each entered call is in one count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ends {
    /// Calls that returned.
    pub returns: u64,
    /// Calls that ended without a return: by longjmp, by an exception, or with their thread.
    pub left: u64,
    /// Calls in progress.
    pub inside: u64,
    /// Calls without credit or room, whose end is unknown.
    pub only_counted: u64,
}

impl Ends {
    /// Returns the number of all entered calls.
    pub fn calls(self) -> u64 {
        let numbers = [self.left, self.inside, self.only_counted];
        numbers.into_iter().fold(self.returns, u64::wrapping_add)
    }

    /// Returns the sum of the ends of two threads or processes.
    #[must_use]
    pub fn plus(self, other: Ends) -> Ends {
        Ends {
            inside: self.inside.wrapping_add(other.inside),
            ..self.sums(other, u64::wrapping_add)
        }
    }

    /// Returns what was added since an earlier state of the same event. `inside` is no sum, so it
    /// stays.
    #[must_use]
    pub fn since(self, earlier: Ends) -> Ends {
        self.sums(earlier, u64::wrapping_sub)
    }

    fn sums(self, other: Ends, join: fn(u64, u64) -> u64) -> Ends {
        Ends {
            returns: join(self.returns, other.returns),
            left: join(self.left, other.left),
            only_counted: join(self.only_counted, other.only_counted),
            ..self
        }
    }
}
