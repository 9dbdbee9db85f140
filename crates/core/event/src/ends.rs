//! How calls ended that were followed from their entry on.

/// One event's calls. Each that was entered is in one of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ends {
    /// Calls that returned.
    pub returns: u64,
    /// Calls that were left without a return: by longjmp, by an exception, or
    /// because their thread ended.
    pub left: u64,
    /// Calls that still run.
    pub inside: u64,
    /// Calls that found no credit or no room: nobody knows how they ended.
    pub only_counted: u64,
}

impl Ends {
    /// All calls that were entered.
    pub fn calls(self) -> u64 {
        let numbers = [self.left, self.inside, self.only_counted];
        numbers.into_iter().fold(self.returns, u64::wrapping_add)
    }

    /// Both together, as of two threads or two processes.
    #[must_use]
    pub fn plus(self, other: Ends) -> Ends {
        Ends {
            inside: self.inside.wrapping_add(other.inside),
            ..self.sums(other, u64::wrapping_add)
        }
    }

    /// What was added since an earlier state of the same event. The calls that
    /// still run are a state themselves, and no sum: they stay.
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
