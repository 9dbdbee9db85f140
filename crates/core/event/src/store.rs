//! An instruction that stores, as far as its value can be told behind it.

/// Where the value comes from. Registers go by their numbers in machine code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A register.
    Register(u8),
    /// The instruction itself.
    Immediate(u64),
    /// What was in memory before is in this register now.
    Exchanged(u8),
    /// A register, if %rax held what was in memory before; that is in %rax now.
    Compared(u8),
    /// What was in memory before, and this.
    Added(u64),
}

/// What is stored, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store {
    /// What.
    pub source: Source,
    /// At which bit of the register the value begins.
    pub shift: u8,
    /// How many bytes.
    pub width: u8,
    /// Where: the sum of this register,
    pub base: Option<u8>,
    /// this one times `scale`,
    pub index: Option<u8>,
    /// which is 1, 2, 4 or 8,
    pub scale: u8,
    /// and this: an address where the instruction goes by its own.
    pub displacement: u64,
    /// It goes by a segment as well: where is not known.
    pub is_elsewhere: bool,
}

/// What is known of an access, of as many bytes as were watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The value before.
    pub old: Option<u64>,
    /// The value behind.
    pub new: Option<u64>,
}

/// The bit of the flags that says whether a comparison was equal.
const ZERO_FLAG: u64 = 1 << 6;
/// The number of %rax.
const ACCUMULATOR: u8 = 0;

impl Store {
    /// What the registers behind it tell of a watched address, `len` bytes of it: in the order of their numbers in
    /// machine code. `bpf/watch.bpf.c` does the same at each hit.
    pub fn known(&self, registers: &[u64; 16], flags: u64, at: u64, len: u8) -> Known {
        let register = |number: u8| registers.get(usize::from(number)).copied().unwrap_or(0);
        let of = |number: Option<u8>| number.map_or(0, register);
        let from = of(self.base)
            .wrapping_add(of(self.index).wrapping_mul(self.scale.into()))
            .wrapping_add(self.displacement);
        let ahead = match self.is_elsewhere {
            true => 0,
            false => at.wrapping_sub(from),
        };
        let inside = ahead < 8 && ahead + u64::from(len) <= self.width.into();
        let whole = inside && (!self.is_elsewhere || len == self.width);
        let part = |value: u64| {
            let value = value >> (8 * (ahead & 7));
            let kept = match len {
                ..8 => value & ((1 << (8 * len)) - 1),
                _ => value,
            };
            whole.then_some(kept)
        };
        let shifted = |number: u8| part(register(number) >> (self.shift & 63));
        match self.source {
            Source::Register(number) => Known {
                old: None,
                new: shifted(number),
            },
            Source::Immediate(value) => Known {
                old: None,
                new: part(value),
            },
            Source::Exchanged(number) => Known {
                old: shifted(number),
                new: None,
            },
            Source::Compared(number) => {
                let old = part(register(ACCUMULATOR));
                let stored = flags & ZERO_FLAG != 0;
                Known {
                    old,
                    new: if stored { shifted(number) } else { old },
                }
            }
            Source::Added(_) => Known::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 0x5000;

    fn known(source: Source, change: impl Fn(&mut Store), len: u8) -> Known {
        let mut store = Store {
            source,
            shift: 0,
            width: 8,
            base: Some(7),
            index: None,
            scale: 1,
            displacement: 0,
            is_elsewhere: false,
        };
        change(&mut store);
        let mut registers = [0; 16];
        registers[0] = 0x10;
        registers[2] = 0x1122_3344_5566_7788;
        registers[7] = AT - 4;
        store.known(&registers, ZERO_FLAG, AT, len)
    }

    #[test]
    fn a_part_of_what_was_stored() {
        let new = |new| Known { old: None, new };
        assert_eq!(
            known(Source::Register(2), |_| (), 4),
            new(Some(0x1122_3344))
        );
        assert_eq!(known(Source::Register(2), |_| (), 2), new(Some(0x3344)));
        // Half of it is behind what was stored.
        assert_eq!(known(Source::Register(2), |_| (), 8), new(None));
        let exact = |store: &mut Store| store.displacement = 4;
        assert_eq!(known(Source::Immediate(5), exact, 8), new(Some(5)));
        let high = |store: &mut Store| {
            store.displacement = 4;
            store.width = 1;
            store.shift = 8;
        };
        assert_eq!(known(Source::Register(2), high, 1), new(Some(0x77)));
        let elsewhere = |store: &mut Store| store.is_elsewhere = true;
        assert_eq!(known(Source::Immediate(5), elsewhere, 8), new(Some(5)));
        assert_eq!(known(Source::Immediate(5), elsewhere, 4), new(None));
    }

    #[test]
    fn exchanges() {
        let exact = |store: &mut Store| store.displacement = 4;
        let old = Some(0x1122_3344_5566_7788);
        assert_eq!(
            known(Source::Exchanged(2), exact, 8),
            Known { old, new: None }
        );
        let known_both = known(Source::Compared(2), exact, 8);
        assert_eq!((known_both.old, known_both.new), (Some(0x10), old));
    }
}
