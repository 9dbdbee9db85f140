//! What became of the calls of which records were asked for.

/// One event's calls. Each is in one of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Records {
    /// Calls of which there is a record.
    pub recorded: u64,
    /// Calls whose record was lost: nobody read as fast as they came.
    pub lost: u64,
    /// Calls that found no credit: they are counted, and no more is known of them.
    pub only_counted: u64,
}

impl Records {
    /// All calls.
    pub fn calls(self) -> u64 {
        let numbers = [self.lost, self.only_counted];
        numbers.into_iter().fold(self.recorded, u64::wrapping_add)
    }

    /// Both together, as of two threads or two processes.
    #[must_use]
    pub fn plus(self, other: Records) -> Records {
        self.each(other, u64::wrapping_add)
    }

    /// What was added since an earlier state of the same event.
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
