//! How many calls were recorded.

/// The calls of one event by whether they were recorded. Each call is in one count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Records {
    /// Calls with a record.
    pub recorded: u64,
    /// Calls whose record was lost, because the reader was too slow.
    pub lost: u64,
    /// Calls only counted, because their thread had no credit or no ring.
    pub only_counted: u64,
}

impl Records {
    /// Returns the number of all calls.
    pub fn calls(self) -> u64 {
        let numbers = [self.lost, self.only_counted];
        numbers.into_iter().fold(self.recorded, u64::wrapping_add)
    }

    /// Returns the sum of two threads or processes.
    #[must_use]
    pub fn plus(self, other: Records) -> Records {
        self.each(other, u64::wrapping_add)
    }

    /// Returns what was added since an earlier state of the same event.
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
