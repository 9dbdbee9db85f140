//! The ranges of code to which *followed* calls (whose returns count, too) may return.
//!
//! Runtimes that generate code, such as HotSpot and V8, walk their own stacks, and look up the return address of each C
//! function that generated code called. If we replaced such an address to follow a call, the runtime would crash. C
//! unwinders cannot pass through generated code either. So calls from code without unwind information are only counted.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use tiptoe_sync::SeqCount;
use tiptoe_wire::calls::MAX_EXTENTS;

/// Sorted ranges of code, a word for each start and end. Only the agent's thread writes.
pub struct DescribedCode {
    words: &'static [AtomicU64],
    count: AtomicU32,
    changes: SeqCount,
}

impl DescribedCode {
    pub const WORDS: usize = 2 * MAX_EXTENTS;

    pub fn new(words: &'static [AtomicU64]) -> DescribedCode {
        DescribedCode {
            words,
            count: AtomicU32::new(0),
            changes: SeqCount::new(),
        }
    }

    pub fn set(&self, count: usize, word: impl Fn(usize) -> u64) {
        let count = count.min(Self::WORDS) & !1;
        self.changes.write_begin();
        // Relaxed: the sequence count orders these stores.
        self.count.store(count as u32, Relaxed);
        for (index, to) in self.words.iter().take(count).enumerate() {
            to.store(word(index), Relaxed);
        }
        self.changes.write_end();
    }

    /// Returns whether a range contains the call that returns to `back`; `false` while the ranges are being replaced.
    pub fn calls_from(&self, back: u64) -> bool {
        let Some(begun) = self.changes.try_begin() else {
            return false;
        };
        // Relaxed: the sequence count orders these loads. The byte before the return address is looked up, because the
        // code after a call that never returns may belong to another function.
        let call = back.wrapping_sub(1);
        let count = self.count.load(Relaxed) as usize;
        let words = self.words.get(..count).unwrap_or(&[]);
        let passed = words.partition_point(|word| word.load(Relaxed) <= call);
        passed % 2 == 1 && !self.changes.retry(begun)
    }
}
