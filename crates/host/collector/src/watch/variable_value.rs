//! Keeps the value that a variable has before its next recorded hit: what the last hit stored, or what was read from
//! memory. The value is unknown once a store may have been missed.

use std::ops::Range;

use tiptoe_wire::hits::{Epoch, Hit};

/// A hit is recorded some microseconds after its store, so a read of memory in between already has the new value.
const DELAY_NS: u64 = 100_000;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct VariableValue {
    value: u64,
    since: ValueOrigin,
}

/// Where the value is from, with the number of its epoch. Between two epochs a store may have been missed.
#[derive(Clone, Copy, Debug, Default)]
enum ValueOrigin {
    #[default]
    Unknown,
    Hit(u64),
    /// Memory was read between these times, so the value may include a store between them.
    Read {
        number: u64,
        begin_ns: u64,
        end_ns: u64,
    },
}

impl VariableValue {
    pub(super) fn read(value: u64, epoch: Epoch, ns: Range<u64>) -> VariableValue {
        let since = match epoch.is_gap {
            true => ValueOrigin::Unknown,
            false => ValueOrigin::Read {
                number: epoch.number,
                begin_ns: ns.start,
                end_ns: ns.end,
            },
        };
        VariableValue { value, since }
    }

    /// Returns the value before the hit, if it is known, and keeps `new`, which the hit stored.
    pub(super) fn replace(&mut self, hit: &Hit, new: Option<u64>) -> Option<u64> {
        let Epoch { number, is_gap } = hit.epoch;
        let is_known = match self.since {
            ValueOrigin::Unknown => false,
            ValueOrigin::Hit(since) => since == number,
            // The hit was before the read, so memory already had the hit's value.
            ValueOrigin::Read { begin_ns, .. } if hit.time_ns < begin_ns => return None,
            // If the hit stored the value that was read, its store may have been before the read. A hit may be recorded
            // long after its store, because a hypervisor may stop the CPU.
            ValueOrigin::Read {
                number: since,
                end_ns,
                ..
            } => {
                let is_later = hit.time_ns > end_ns + DELAY_NS && new != Some(self.value);
                since == number && is_later
            }
        };
        let before = (is_known && !is_gap).then_some(self.value);
        *self = match new {
            Some(value) if !is_gap => VariableValue {
                value,
                since: ValueOrigin::Hit(number),
            },
            _ => VariableValue::default(),
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
        let mut held = VariableValue::default();
        assert_eq!(held.replace(&hit(1, 0, false), Some(5)), None);
        assert_eq!(held.replace(&hit(2, 0, false), Some(6)), Some(5));
        assert_eq!(held.replace(&hit(3, 1, false), Some(7)), None);
        assert_eq!(held.replace(&hit(4, 1, true), Some(8)), None);
        assert_eq!(held.replace(&hit(5, 1, false), None), None);
        assert_eq!(held.replace(&hit(6, 1, false), Some(9)), None);
        assert_eq!(held.replace(&hit(7, 1, false), Some(1)), Some(9));
    }

    /// Regression: the value of a hit during the read was discarded, and the next hit had a wrong old value.
    #[test]
    fn a_store_while_memory_is_read_is_the_old_value_of_the_next_hit() {
        let mut held = VariableValue::read(5, Epoch::default(), 900..1_000);
        assert_eq!(held.replace(&hit(950, 0, false), Some(6)), None);
        let later = hit(1_000 + 2 * DELAY_NS, 0, false);
        assert_eq!(held.replace(&later, Some(7)), Some(6));
    }

    #[test]
    fn a_value_read_from_memory_is_used_only_for_later_hits() {
        let epoch = Epoch::default();
        let read = VariableValue::read(5, epoch, 900..1_000);
        let mut held = read;
        assert_eq!(held.replace(&hit(899, 0, false), Some(4)), None);
        let later = hit(1_000 + 2 * DELAY_NS, 0, false);
        assert_eq!(held.replace(&later, Some(6)), Some(5));
        // The read may have included this store, whose hit was recorded late.
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
        let mut held = VariableValue::read(5, gap, 900..1_000);
        assert_eq!(held.replace(&later, Some(6)), None);
    }
}
