//! A thread's records of forced unwinding, in the last page of its region ([`crate::calls`]).

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WORDS: usize = 4;

/// One forced unwinding. Relaxed throughout: while a record's thread lives, no other thread uses the record.
#[repr(transparent)]
pub struct ForcedRecord([AtomicU64; WORDS]);

impl ForcedRecord {
    /// Returns the record's words: the exception object, or 0 if the record is free; the program's function and
    /// argument; the unwinder's `_Unwind_GetIP`.
    pub fn words(&self) -> [u64; WORDS] {
        self.0.each_ref().map(|word| word.load(Relaxed))
    }

    /// Takes the record for an exception object. Fails if a signal handler took the record first, for another object.
    fn take(&self, exception: u64) -> bool {
        let [owner, ..] = &self.0;
        let taken = owner.compare_exchange(0, exception, Relaxed, Relaxed);
        taken.is_ok() || taken == Err(exception)
    }

    pub fn write(&self, words: [u64; WORDS]) {
        for (word, value) in self.0.iter().zip(words) {
            word.store(value, Relaxed);
        }
    }

    pub fn free(&self) {
        let [owner, ..] = &self.0;
        owner.store(0, Relaxed);
    }
}

pub struct Records<'a>(&'a [AtomicU64]);

impl<'a> Records<'a> {
    pub fn new(words: &'a [AtomicU64]) -> Self {
        Records(words)
    }

    fn all(&self) -> impl Iterator<Item = &'a ForcedRecord> {
        let words = self.0.as_chunks::<WORDS>().0.iter();
        words.map(|words| {
            // SAFETY: a record has the layout of its words.
            unsafe { &*core::ptr::from_ref(words).cast::<ForcedRecord>() }
        })
    }

    pub fn take(&self, exception: u64) -> Option<&'a ForcedRecord> {
        let known = self.all().find(|record| record.words()[0] == exception);
        known.or_else(|| self.all().find(|record| record.take(exception)))
    }

    pub fn clear(&self) {
        let used = self.all().filter(|record| record.words()[0] != 0);
        used.for_each(ForcedRecord::free);
    }
}
