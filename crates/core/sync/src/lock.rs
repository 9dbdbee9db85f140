//! A reader-writer lock without unbounded waits.
//!
//! 1. The lock's word has its top bit set while a writer holds the lock or waits for readers. The other bits count
//!    readers.
//! 2. A writer sets the bit, so that no more readers enter, and waits until the present readers have left.
//! 3. A thread with a read guard may call `try_read` again, even in a signal handler. If a writer waits, the call fails
//!    instead of deadlocking.

use crate::primitive::{AtomicU64, Ordering, spin_loop};

const WRITER: u64 = 1 << 63;

/// The lock; a word of zero is free.
#[derive(Debug)]
pub struct RwLock(AtomicU64);

impl RwLock {
    /// Returns a free lock.
    pub fn new() -> Self {
        RwLock(AtomicU64::new(0))
    }

    /// Takes the lock to read; `None` if a writer has the bit set at each of `looks` checks.
    pub fn try_read(&self, looks: u32) -> Option<ReadGuard<'_>> {
        for _ in 0..looks {
            // Relaxed: the load only saves an addition that would be undone.
            if self.0.load(Ordering::Relaxed) & WRITER == 0 {
                // Acquire: pairs with the drop of [`WriteGuard`] (edge G of `lib.rs`).
                if self.0.fetch_add(1, Ordering::Acquire) & WRITER == 0 {
                    return Some(ReadGuard(self));
                }
                self.0.fetch_sub(1, Ordering::Relaxed); // Relaxed: nothing was read meanwhile
            }
            spin_loop();
        }
        None
    }

    /// Takes the lock to write; `None` if the lock is still held after `looks` checks.
    pub fn try_write(&self, looks: u32) -> Option<WriteGuard<'_>> {
        let mut left = looks;
        // Acquire: pairs with the drop of [`WriteGuard`] (edge G).
        while self.0.fetch_or(WRITER, Ordering::Acquire) & WRITER != 0 {
            left = left.checked_sub(1)?;
            spin_loop();
        }
        let guard = WriteGuard(self);
        // Acquire: pairs with the drop of [`ReadGuard`] (edge G).
        while self.0.load(Ordering::Acquire) != WRITER {
            left = left.checked_sub(1)?; // on `None` the guard's drop clears the bit
            spin_loop();
        }
        Some(guard)
    }
}

impl Default for RwLock {
    fn default() -> Self {
        Self::new()
    }
}

/// Excludes writers.
#[derive(Debug)]
pub struct ReadGuard<'a>(&'a RwLock);

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release); // pairs with `try_write`'s load (edge G)
    }
}

/// Excludes readers and other writers.
#[derive(Debug)]
pub struct WriteGuard<'a>(&'a RwLock);

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        // Release: pairs with every way to take the lock (edge G).
        self.0.0.fetch_sub(WRITER, Ordering::Release);
    }
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;

    #[test]
    fn readers_share_and_writers_do_not() {
        let lock = RwLock::new();
        let (one, two) = (lock.try_read(1), lock.try_read(1));
        assert!(one.is_some() && two.is_some());
        assert!(lock.try_write(3).is_none(), "readers hold the lock");
        drop((one, two));
        let alone = lock.try_write(3).expect("free");
        assert!(lock.try_read(3).is_none() && lock.try_write(3).is_none());
        drop(alone);
        assert!(
            lock.try_read(1).is_some(),
            "a writer that gave up or left holds nothing"
        );
    }
}
