//! What a variable held before a hit, where threads write hits down themselves: the value of the hit before it, or what
//! memory said, if no store was missed since.

use tiptoe_wire::hits::{Epoch, Hit};

/// A hit is written down some microseconds behind its store: memory that is read meanwhile has that already.
const DELAY_NS: u64 = 100_000;

/// What a variable holds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    value: u64,
    since: Since,
}

/// From where that is known; the numbers are those of epochs.
#[derive(Clone, Copy, Debug, Default)]
enum Since {
    #[default]
    Unknown,
    Hit(u64),
    Read {
        number: u64,
        ns: u64,
    },
}

impl Held {
    /// Memory said this, in this epoch, before this time.
    pub(super) fn read(value: u64, epoch: Epoch, ns: u64) -> Held {
        let since = match epoch.is_gap {
            true => Since::Unknown,
            false => Since::Read {
                number: epoch.number,
                ns,
            },
        };
        Held { value, since }
    }

    /// Takes the value that a hit left, `None` where nobody knows it; what there was before, if that is known.
    pub(super) fn replace(&mut self, hit: &Hit, new: Option<u64>) -> Option<u64> {
        let Epoch { number, is_gap } = hit.epoch;
        let is_known = match self.since {
            Since::Unknown => false,
            Since::Hit(since) => since == number,
            // Memory had its value already.
            Since::Read { ns, .. } if hit.time_ns < ns => return None,
            // A hit that stores what memory said may be the one whose store memory had: nothing bounds how much later a
            // hit is written down, where a virtual machine stops its CPU in between.
            Since::Read { number: since, ns } => {
                let is_later = hit.time_ns > ns + DELAY_NS && new != Some(self.value);
                since == number && is_later
            }
        };
        let before = (is_known && !is_gap).then_some(self.value);
        *self = match new {
            Some(value) if !is_gap => Held {
                value,
                since: Since::Hit(number),
            },
            _ => Held::default(),
        };
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(time_ns: u64, number: u64, is_gap: bool) -> Hit {
        Hit {
            time_ns,
            epoch: Epoch { number, is_gap },
            ..Hit::default()
        }
    }

    #[test]
    fn a_value_is_known_from_the_hit_before_it_unless_one_was_missed() {
        let mut held = Held::default();
        assert_eq!(held.replace(&hit(1, 0, false), Some(5)), None);
        assert_eq!(held.replace(&hit(2, 0, false), Some(6)), Some(5));
        assert_eq!(held.replace(&hit(3, 1, false), Some(7)), None);
        assert_eq!(held.replace(&hit(4, 1, true), Some(8)), None);
        assert_eq!(held.replace(&hit(5, 1, false), None), None);
        assert_eq!(held.replace(&hit(6, 1, false), Some(9)), None);
        assert_eq!(held.replace(&hit(7, 1, false), Some(1)), Some(9));
    }

    #[test]
    fn memory_is_believed_of_hits_that_came_later() {
        let epoch = Epoch::default();
        let read = Held::read(5, epoch, 1_000);
        let mut held = read;
        assert_eq!(held.replace(&hit(999, 0, false), Some(4)), None);
        let later = hit(1_000 + 2 * DELAY_NS, 0, false);
        assert_eq!(held.replace(&later, Some(6)), Some(5));
        // Memory may have had this very store, whose hit came late.
        let mut held = read;
        assert_eq!(held.replace(&later, Some(5)), None);
        let mut held = read;
        assert_eq!(held.replace(&hit(1_001, 0, false), Some(6)), None);
        assert_eq!(held.replace(&later, Some(7)), Some(6));
        let mut held = read;
        assert_eq!(held.replace(&hit(1_000_000, 1, false), Some(6)), None);
        let gap = Epoch {
            is_gap: true,
            ..epoch
        };
        let mut held = Held::read(5, gap, 1_000);
        assert_eq!(held.replace(&later, Some(6)), None);
    }
}
