use crate::Label;

/// A switch to another label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Switch {
    /// The time since the trace began.
    pub at_ns: u64,
    /// The label that runs from then on.
    pub label: Label,
}

/// Random numbers (splitmix64, Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns a seed's sequence.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns the next number, from `low` to below `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let random = mixed ^ (mixed >> 31);
        let range = high.saturating_sub(low).max(1);
        low + ((u128::from(random) * u128::from(range)) >> 64) as u64
    }
}

/// A trace whose labels run equally often, never twice in a row, each time for up to twice the mean.
#[derive(Clone, Debug)]
pub struct Synthetic<'a> {
    labels: &'a [Label],
    mean_ns: u64,
    at_ns: u64,
    last: Option<u64>,
    random: Random,
}

impl Synthetic<'_> {
    /// Returns an endless trace; empty without labels.
    pub fn new(labels: &[Label], mean_ns: u64, seed: u64) -> Synthetic<'_> {
        Synthetic {
            labels,
            mean_ns: mean_ns.max(1),
            at_ns: 0,
            last: None,
            random: Random::new(seed),
        }
    }
}

impl Iterator for Synthetic<'_> {
    type Item = Switch;

    fn next(&mut self) -> Option<Switch> {
        let labels = self.labels.len() as u64;
        let others = labels - u64::from(self.last.is_some() && labels > 1);
        let mut next = self.random.between(0, others);
        if labels > 1 && self.last.is_some_and(|last| next >= last) {
            next += 1;
        }
        self.last = Some(next);
        let switch = Switch {
            at_ns: self.at_ns,
            label: *self.labels.get(next as usize)?,
        };
        self.at_ns += self.random.between(1, 2 * self.mean_ns);
        Some(switch)
    }
}
