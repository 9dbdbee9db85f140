//! A budget for reading the entries of debug information.
//!
//! The bytes are hostile. An attribute may have no bytes, and one entry may be referred to over and over. So each
//! entry, each of its attributes, and each search for the end of a text must be paid for.

use std::cell::Cell;

use crate::error::BudgetExceeded;

/// Reads allowed per byte of debug information, and in the smallest budget.
const PER_BYTE: u64 = 16;
const LEAST: u64 = 1 << 20;
/// Bytes that are searched for a text's end in the time of one read.
const BYTES_PER_READ: usize = 16;

#[derive(Debug)]
pub(crate) struct ReadBudget {
    left: Cell<u64>,
    /// The size of debug information for which the budget was made.
    bytes: Cell<u64>,
}

impl ReadBudget {
    /// Returns a budget proportional to the bytes.
    pub(crate) fn new(bytes: u64) -> ReadBudget {
        let budget = ReadBudget {
            left: Cell::new(0),
            bytes: Cell::new(bytes),
        };
        budget.refill();
        budget
    }

    /// Makes the budget proportional to more bytes, from the next refill on.
    pub(crate) fn add(&self, bytes: u64) {
        self.bytes.set(self.bytes.get().saturating_add(bytes));
    }

    /// Makes the budget whole again.
    pub(crate) fn refill(&self) {
        let left = self
            .bytes
            .get()
            .saturating_mul(PER_BYTE)
            .saturating_add(LEAST);
        self.left.set(left);
    }

    /// Pays for an entry with this many attributes. Fails once the budget is exceeded.
    pub(crate) fn pay_entry(&self, attributes: usize) -> Result<(), BudgetExceeded> {
        self.pay(attributes.saturating_add(1))
    }

    /// Pays for entries of this many bytes, any of which may be in a text. Fails once the budget is exceeded.
    pub(crate) fn pay_bytes(&self, bytes: usize) -> Result<(), BudgetExceeded> {
        self.pay(bytes / BYTES_PER_READ)
    }

    /// Pays for this many reads. Fails once the budget is exceeded.
    pub(crate) fn pay(&self, reads: usize) -> Result<(), BudgetExceeded> {
        let left = self.left.get().checked_sub(reads as u64);
        self.left.set(left.unwrap_or(0));
        left.map(drop).ok_or(BudgetExceeded)
    }

    /// Spends the whole budget, because no honest file has what was found.
    pub(crate) fn exhaust(&self) {
        self.left.set(0);
    }

    pub(crate) fn is_exceeded(&self) -> bool {
        self.left.get() == 0
    }
}
