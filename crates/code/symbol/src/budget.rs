//! A budget for reading hostile debug information. The file's size does not bound the work, because an attribute may
//! have no bytes, and an entry may be referred to over and over. So each entry, each attribute, and each search for
//! the end of a text must be *paid* for: its cost in reads is subtracted from the budget.

use std::cell::Cell;

use crate::error::BudgetExceeded;

/// The reads that a budget allows for each byte of debug information.
const PER_BYTE: u64 = 16;
/// The reads that every budget allows in addition.
const LEAST: u64 = 1 << 20;
/// Searching this many bytes for a text's end takes as long as one read.
const BYTES_PER_READ: usize = 16;

#[derive(Debug)]
pub(crate) struct ReadBudget {
    left: Cell<u64>,
    bytes: Cell<u64>,
}

impl ReadBudget {
    pub(crate) fn new(bytes: u64) -> ReadBudget {
        let budget = ReadBudget {
            left: Cell::new(0),
            bytes: Cell::new(bytes),
        };
        budget.refill();
        budget
    }

    /// Enlarges the budget, from the next refill on.
    pub(crate) fn add(&self, bytes: u64) {
        self.bytes.set(self.bytes.get().saturating_add(bytes));
    }

    pub(crate) fn refill(&self) {
        let left = self
            .bytes
            .get()
            .saturating_mul(PER_BYTE)
            .saturating_add(LEAST);
        self.left.set(left);
    }

    pub(crate) fn pay_entry(&self, attributes: usize) -> Result<(), BudgetExceeded> {
        self.pay(attributes.saturating_add(1))
    }

    /// Pays for this many bytes, because all of them may have been searched for the end of a text.
    pub(crate) fn pay_bytes(&self, bytes: usize) -> Result<(), BudgetExceeded> {
        self.pay(bytes / BYTES_PER_READ)
    }

    pub(crate) fn pay(&self, reads: usize) -> Result<(), BudgetExceeded> {
        let left = self.left.get().checked_sub(reads as u64);
        self.left.set(left.unwrap_or(0));
        left.map(drop).ok_or(BudgetExceeded)
    }

    /// Spends the rest of the budget, because the caller found something that no honest file has.
    pub(crate) fn exhaust(&self) {
        self.left.set(0);
    }

    pub(crate) fn is_exceeded(&self) -> bool {
        self.left.get() == 0
    }
}
