//! How *followed* calls ended: calls that are observed until they return.

/// The numbers of an event's calls, each in one field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ends {
    /// Calls that returned.
    pub returns: u64,
    /// Calls ended by longjmp, an exception, or the thread's end.
    pub left: u64,
    /// Calls in progress.
    pub inside: u64,
    /// Calls not followed, because the thread's share of the budget was spent, or its list of followed calls was full.
    pub only_counted: u64,
}

impl Ends {
    /// Returns the number of calls.
    pub fn calls(self) -> u64 {
        let numbers = [self.left, self.inside, self.only_counted];
        numbers.into_iter().fold(self.returns, u64::wrapping_add)
    }

    /// Returns the sum.
    #[must_use]
    pub fn plus(self, other: Ends) -> Ends {
        Ends {
            inside: self.inside.wrapping_add(other.inside),
            ..self.sums(other, u64::wrapping_add)
        }
    }

    /// Returns what was added since an earlier state. `inside` stays the current number.
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
