//! A reader-writer lock on which nobody waits without bound.
//!
//! Rules: (1) the word's top bit is the writer, the rest counts readers. (2) A
//! writer takes the bit first, so that no reader comes any more, and then waits
//! for those who are in; if they do not leave it gives the bit back. (3) A
//! thread may read while it reads, as a signal handler does. (4) There is no
//! owner: guards give back what they took, and only that.

use crate::primitive::{AtomicU64, Ordering, spin_loop};

const WRITER: u64 = 1 << 63;

/// The lock. A word of zero is free.
#[derive(Debug)]
pub struct RwLock(AtomicU64);

impl RwLock {
    /// A free lock.
    pub fn new() -> Self {
        RwLock(AtomicU64::new(0))
    }

    /// Comes in beside other readers, unless a writer is in through `looks` looks.
    pub fn try_read(&self, looks: u32) -> Option<ReadGuard<'_>> {
        for _ in 0..looks {
            // Relaxed: only saves an exchange that would fail.
            if self.0.load(Ordering::Relaxed) & WRITER == 0 {
                // Acquire: pairs with the Release of a writer's guard (edge G).
                if self.0.fetch_add(1, Ordering::Acquire) & WRITER == 0 {
                    return Some(ReadGuard(self));
                }
                self.0.fetch_sub(1, Ordering::Relaxed); // read nothing, so orders nothing
            }
            spin_loop();
        }
        None
    }

    /// Comes in alone, unless somebody stays in through `looks` looks.
    pub fn try_write(&self, looks: u32) -> Option<WriteGuard<'_>> {
        let mut left = looks;
        // Acquire: pairs with the Release of a writer's guard (edge G).
        while self.0.fetch_or(WRITER, Ordering::Acquire) & WRITER != 0 {
            left = left.checked_sub(1)?;
            spin_loop();
        }
        let guard = WriteGuard(self);
        // Acquire: pairs with the Release of the readers' guards (edge G).
        while self.0.load(Ordering::Acquire) != WRITER {
            left = left.checked_sub(1)?; // the guard gives the bit back
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

/// While it lives no writer is in.
#[derive(Debug)]
pub struct ReadGuard<'a>(&'a RwLock);

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release); // pairs with `try_write`'s load (edge G)
    }
}

/// While it lives nobody else is in.
#[derive(Debug)]
pub struct WriteGuard<'a>(&'a RwLock);

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        // Release: pairs with both ways in (edge G).
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
        assert!(lock.try_write(3).is_none(), "readers are in");
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
