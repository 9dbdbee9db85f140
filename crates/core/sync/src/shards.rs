//! Mutexes (*shards*) that together form a reader-writer lock.
//!
//! 1. A thread that needs one shard takes that shard, and no other.
//! 2. A thread that needs all shards takes them in ascending order, otherwise two threads could deadlock.
//! 3. So data that changes only under all shards stays unchanged while a thread holds one shard.
//!
//! The holder of an `AWAITED` shard must wake a thread at the release, because threads may be parked. The holder of a
//! `HELD` shard need not wake one, because no thread is parked, or a woken thread is about to set `AWAITED`.

use crate::primitive::{AtomicU64, Ordering, spin_loop};

const FREE: u64 = 0;
const HELD: u64 = 1;
const AWAITED: u64 = 2;

/// How a thread waits.
pub trait Wait {
    /// How often a thread checks a word before it parks.
    const LOOKS: u32;

    /// Parks the calling thread while `word` is `seen`; may return early. A futex on the word's low half suffices.
    fn park(&self, word: &AtomicU64, seen: u64);

    /// Wakes a thread parked at `word`, if any.
    fn unpark(&self, word: &AtomicU64);

    /// Returns the time, to measure waits.
    fn now_ns(&self) -> u64;
}

/// A shard's first word is its mutex. Zeroed words are free.
#[derive(Debug)]
pub struct Shards<'a, W> {
    words: &'a [AtomicU64],
    stride: usize,
    wait: &'a W,
}

impl<'a, W: Wait> Shards<'a, W> {
    /// Makes as many shards of `stride` words as fit into `words`.
    pub fn new(words: &'a [AtomicU64], stride: usize, wait: &'a W) -> Self {
        Shards {
            words,
            stride,
            wait,
        }
    }

    /// Locks a shard, if it exists.
    #[inline]
    pub fn one(&self, index: usize) -> Option<ShardGuard<'a, W>> {
        let word = self.word(index)?;
        let waited_ns = lock(word, self.wait);
        Some(ShardGuard {
            word,
            wait: self.wait,
            waited_ns,
        })
    }

    /// Locks a shard without waiting; `None` if it is held or does not exist.
    pub fn try_one(&self, index: usize) -> Option<ShardGuard<'a, W>> {
        let word = self.word(index).filter(|word| try_lock(word))?;
        Some(ShardGuard {
            word,
            wait: self.wait,
            waited_ns: None,
        })
    }

    /// Locks all shards.
    pub fn all(&self) -> AllShardsGuard<'_, 'a, W> {
        let mut all = AllShardsGuard::none(self);
        for word in self.locks() {
            let waited_ns = lock(word, self.wait);
            all.locked_count += 1;
            all.waited_ns = match (all.waited_ns, waited_ns) {
                (Some(before), Some(more)) => Some(before.saturating_add(more)),
                (before, more) => before.or(more),
            };
        }
        all
    }

    /// Locks all shards without waiting; `None` if one is held.
    pub fn try_all(&self) -> Option<AllShardsGuard<'_, 'a, W>> {
        let mut all = AllShardsGuard::none(self);
        for word in self.locks() {
            if !try_lock(word) {
                return None; // dropping the guard releases the others
            }
            all.locked_count += 1;
        }
        Some(all)
    }

    fn word(&self, index: usize) -> Option<&'a AtomicU64> {
        self.words.get(index.checked_mul(self.stride)?)
    }

    fn locks(&self) -> impl Iterator<Item = &'a AtomicU64> {
        let shards = self.words.chunks_exact(self.stride.max(1));
        shards.filter_map(|shard| shard.first())
    }
}

/// While this guard lives, no other thread holds the shard, so none holds all shards.
#[derive(Debug)]
pub struct ShardGuard<'a, W: Wait> {
    word: &'a AtomicU64,
    wait: &'a W,
    /// How long this thread waited; `None` if the shard was free.
    pub waited_ns: Option<u64>,
}

impl<W: Wait> Drop for ShardGuard<'_, W> {
    #[inline]
    fn drop(&mut self) {
        unlock(self.word, self.wait);
    }
}

/// While this guard lives, no other thread holds any shard.
#[derive(Debug)]
pub struct AllShardsGuard<'s, 'a, W: Wait> {
    shards: &'s Shards<'a, W>,
    locked_count: usize,
    /// How long this thread waited for all shards; `None` if every shard was free.
    pub waited_ns: Option<u64>,
}

impl<'s, 'a, W: Wait> AllShardsGuard<'s, 'a, W> {
    fn none(shards: &'s Shards<'a, W>) -> Self {
        AllShardsGuard {
            shards,
            locked_count: 0,
            waited_ns: None,
        }
    }
}

impl<W: Wait> Drop for AllShardsGuard<'_, '_, W> {
    fn drop(&mut self) {
        for word in self.shards.locks().take(self.locked_count) {
            unlock(word, self.shards.wait);
        }
    }
}

#[inline]
fn try_lock(word: &AtomicU64) -> bool {
    // Acquire: pairs with `unlock` (edge H of `lib.rs`). Relaxed on failure: no data is read.
    let taken = word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
    taken.is_ok()
}

#[inline]
fn lock<W: Wait>(word: &AtomicU64, wait: &W) -> Option<u64> {
    match try_lock(word) {
        true => None,
        false => Some(lock_slow(word, wait)),
    }
}

#[cold]
fn lock_slow<W: Wait>(word: &AtomicU64, wait: &W) -> u64 {
    let since = wait.now_ns();
    let is_taken = (0..W::LOOKS).any(|_| {
        spin_loop();
        // Relaxed: the load only saves an exchange that would fail.
        word.load(Ordering::Relaxed) == FREE && try_lock(word)
    });
    if !is_taken {
        // Acquire: pairs with `unlock` (edge H). The word becomes `AWAITED` even if this thread takes the shard,
        // because other threads may be parked, and must be woken at the release.
        while word.swap(AWAITED, Ordering::Acquire) != FREE {
            wait.park(word, AWAITED);
        }
    }
    wait.now_ns().saturating_sub(since)
}

#[inline]
fn unlock<W: Wait>(word: &AtomicU64, wait: &W) {
    // Release: pairs with every way to take the shard (edge H).
    if word.swap(FREE, Ordering::Release) == AWAITED {
        wait.unpark(word);
    }
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    struct Yields;

    impl Wait for Yields {
        const LOOKS: u32 = 3;
        fn park(&self, _: &AtomicU64, _: u64) {
            std::thread::yield_now();
        }
        fn unpark(&self, _: &AtomicU64) {}
        fn now_ns(&self) -> u64 {
            0
        }
    }

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn shards_are_independent_and_all_excludes_each() {
        let words = words(6);
        let shards = Shards::new(&words, 2, &Yields);
        let (one, two) = (shards.try_one(0), shards.try_one(2));
        assert!(one.is_some() && two.is_some());
        assert!(shards.try_one(2).is_none() && shards.try_all().is_none());
        assert!(shards.try_one(1).is_some(), "a failed try holds nothing");
        assert!(shards.try_one(3).is_none(), "there is no such shard");
        drop((one, two));
        let all = shards.try_all().expect("free");
        assert!((0..3).all(|index| shards.try_one(index).is_none()));
        drop(all);
        assert_eq!(shards.one(1).expect("there").waited_ns, None);
        assert_eq!(shards.all().waited_ns, None);
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        let words = words(8);
        let shards = Shards::new(&words, 2, &Yields);
        let add = |index: usize| {
            let counter = &words[index * 2 + 1];
            counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        };
        let rounds = if cfg!(miri) { 20 } else { 2_000 };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (shards, add) = (&shards, &add);
                scope.spawn(move || {
                    for round in 0..rounds {
                        if (round + thread) % 8 == 0 {
                            let _all = shards.all();
                            (0..4).for_each(add);
                        } else {
                            let index = (round / 8 + thread) % 4;
                            let _one = shards.one(index).expect("there");
                            add(index);
                        }
                    }
                });
            }
        });
        let all: u64 = (0..4)
            .map(|index| words[index * 2 + 1].load(Ordering::Relaxed))
            .sum();
        let alls = (0..4)
            .map(|thread| {
                (0..rounds)
                    .filter(|round| (round + thread) % 8 == 0)
                    .count()
            })
            .sum::<usize>() as u64;
        assert_eq!(all, 4 * rounds as u64 + 3 * alls);
    }
}
