//! How many calls were recorded.

/// The numbers of an event's calls, each in one field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Records {
    /// Calls with a record.
    pub recorded: u64,
    /// Calls whose record was lost, because the reader was too slow.
    pub lost: u64,
    /// Calls without a record, because the thread's share of the budget was spent, or the thread had no buffer.
    pub only_counted: u64,
}

impl Records {
    /// Returns the number of calls.
    pub fn calls(self) -> u64 {
        let numbers = [self.lost, self.only_counted];
        numbers.into_iter().fold(self.recorded, u64::wrapping_add)
    }

    /// Returns the sum.
    #[must_use]
    pub fn plus(self, other: Records) -> Records {
        self.each(other, u64::wrapping_add)
    }

    /// Returns what was added since an earlier state.
    #[must_use]
    pub fn since(self, earlier: Records) -> Records {
        self.each(earlier, u64::wrapping_sub)
    }

    fn each(self, other: Records, join: fn(u64, u64) -> u64) -> Records {
        Records {
            recorded: join(self.recorded, other.recorded),
            lost: join(self.lost, other.lost),
            only_counted: join(self.only_counted, other.only_counted),
        }
    }
}
