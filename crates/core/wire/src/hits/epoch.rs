//! Within an epoch no store is missed, so the value after one hit is the old value of the next hit.

use super::{Hits, head};
use crate::primitive::Ordering::{AcqRel, Acquire, Release};

/// An interval in which no store was missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch {
    /// Two hits have the same number if no hit between them was missed.
    pub number: u64,
    /// Whether this is a gap, not an epoch: the events are disabled, so stores are missed.
    pub is_gap: bool,
}

const IS_GAP: u64 = 1 << 63;

impl Epoch {
    pub(super) fn word(self) -> u64 {
        self.number & !IS_GAP | if self.is_gap { IS_GAP } else { 0 }
    }

    pub(super) fn of(word: u64) -> Epoch {
        Epoch {
            number: word & !IS_GAP,
            is_gap: word & IS_GAP != 0,
        }
    }
}

impl Hits<'_> {
    /// Returns the current epoch.
    pub fn epoch(&self) -> Epoch {
        // Acquire: pairs with `next_epoch` and `set_waking` (edge K). The number must be loaded first and compared
        // last; otherwise a gap in between is missed.
        let load = |at| self.0.at(at).map_or(0, |word| word.load(Acquire));
        let number = load(head::EPOCH);
        let is_gap = load(head::IS_RESTING) != 0 || load(head::IS_WAKING) != 0;
        Epoch {
            number,
            is_gap: is_gap || load(head::EPOCH) != number,
        }
    }

    /// Begins an epoch, because a store may have been missed.
    pub fn next_epoch(&self) {
        if let Some(word) = self.0.at(head::EPOCH) {
            // AcqRel: pairs with `epoch` (edge K).
            word.fetch_add(1, AcqRel);
        }
    }

    /// Records whether the events are being enabled. `false` means that all events are enabled, and begins an epoch.
    pub fn set_waking(&self, waking: bool) {
        if !waking {
            self.next_epoch();
        }
        if let Some(word) = self.0.at(head::IS_WAKING) {
            // Release: pairs with `epoch` (edge K).
            word.store(waking.into(), Release);
        }
    }
}
