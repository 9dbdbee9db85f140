//! Times in which no hit is missing: a value is what a variable held before the next hit of the same time.

use super::{Hits, head};
use crate::primitive::Ordering::{AcqRel, Acquire, Release};

/// A time between two in which stores were missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch {
    /// Which it is: of two hits with the same number none is missing in between.
    pub number: u64,
    /// It is none: stores are missed just now.
    pub is_gap: bool,
}

/// In a word.
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
    /// The time that it is now.
    pub fn epoch(&self) -> Epoch {
        // Acquire, in this order: pairs with the AcqRel in `next_epoch` and the Release in `set_waking` (edge E). A gap
        // that begins or ends in between shows as another number.
        let load = |at| self.0.at(at).map_or(0, |word| word.load(Acquire));
        let number = load(head::EPOCH);
        let is_gap = load(head::IS_RESTING) != 0 || load(head::IS_WAKING) != 0;
        Epoch {
            number,
            is_gap: is_gap || load(head::EPOCH) != number,
        }
    }

    /// Another time begins: of what was stored before something may not be told. (agent)
    pub fn next_epoch(&self) {
        if let Some(word) = self.0.at(head::EPOCH) {
            // AcqRel: pairs with the Acquire in `epoch` (edge E).
            word.fetch_add(1, AcqRel);
        }
    }

    /// Events are being switched on, or are all on by now: another time begins then. (agent)
    pub fn set_waking(&self, waking: bool) {
        if !waking {
            self.next_epoch();
        }
        if let Some(word) = self.0.at(head::IS_WAKING) {
            // Release: pairs with the Acquire in `epoch` (edge E).
            word.store(waking.into(), Release);
        }
    }
}
