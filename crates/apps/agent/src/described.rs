//! Where code is to which followed calls may return.
//!
//! Runtimes that generate code, HotSpot and V8, walk their own stacks: where generated code called a function of C's, they
//! read that function's return address and look it up among their code. A thunk's would crash them. An unwinder of C's
//! cannot pass through generated code either, so calls from code without unwind information are only counted.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use tiptoe_sync::SeqCount;
use tiptoe_wire::calls::MAX_EXTENTS;

/// Extents of code, a word for each beginning and each end. One writer, the agent's thread.
pub struct Described {
    words: &'static [AtomicU64],
    count: AtomicU32,
    changes: SeqCount,
}

impl Described {
    /// Words that the storage needs.
    pub const WORDS: usize = 2 * MAX_EXTENTS;

    /// None, over zeroed storage.
    pub fn new(words: &'static [AtomicU64]) -> Described {
        Described {
            words,
            count: AtomicU32::new(0),
            changes: SeqCount::new(),
        }
    }

    /// Replaces all, by `count` words. (agent's thread)
    pub fn set(&self, count: usize, word: impl Fn(usize) -> u64) {
        let count = count.min(Self::WORDS) & !1;
        self.changes.write_begin();
        // Relaxed: under the sequence count.
        self.count.store(count as u32, Relaxed);
        for (index, to) in self.words.iter().take(count).enumerate() {
            to.store(word(index), Relaxed);
        }
        self.changes.write_end();
    }

    /// Whether a call that returns to an address comes from such code. While that is being said anew, no call does.
    pub fn calls_from(&self, back: u64) -> bool {
        let Some(begun) = self.changes.try_begin() else {
            return false;
        };
        // Relaxed: under the sequence count. What follows a call that never returns may be the next code.
        let call = back.wrapping_sub(1);
        let count = self.count.load(Relaxed) as usize;
        let words = self.words.get(..count).unwrap_or(&[]);
        let passed = words.partition_point(|word| word.load(Relaxed) <= call);
        passed % 2 == 1 && !self.changes.retry(begun)
    }
}
