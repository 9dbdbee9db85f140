//! How *followed* calls ended: calls that are observed until they return.

/// The calls of an event. Each is in one count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ends {
    /// Calls that returned.
    pub returns: u64,
    /// Calls ended by longjmp, an exception, or the thread's end.
    pub left: u64,
    /// Calls in progress.
    pub inside: u64,
    /// Calls not followed, because the thread had no credit left for followed calls, or no room to record the call.
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

    /// Returns what was added since an earlier state, but the current `inside`, which is no sum.
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
