//! A store instruction.

/// Where a store's value is. A register is given by its number in machine code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A register.
    Register(u8),
    /// A constant.
    Immediate(u64),
    /// The register of an exchange, which afterwards has the old value.
    Exchanged(u8),
    /// The register of a compare and exchange, stored if the old value equalled %rax. Afterwards %rax has the old
    /// value.
    Compared(u8),
    /// A constant, which was added to the old value.
    Added(u64),
}

/// The value and address of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store {
    /// Where the value is.
    pub source: Source,
    /// The register's bit at which the value begins.
    pub shift: u8,
    /// The value's width in bytes.
    pub width: u8,
    /// The base register.
    pub base: Option<u8>,
    /// The index register.
    pub index: Option<u8>,
    /// The index's factor: 1, 2, 4 or 8.
    pub scale: u8,
    /// The constant part of the address; the whole address if it is relative to the instruction.
    pub displacement: u64,
    /// Whether the address is unknown, because a segment's base is added.
    pub is_elsewhere: bool,
}

/// The watched bytes before and after an access; `None` if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessValues {
    /// The value before the access.
    pub old: Option<u64>,
    /// The value after the access.
    pub new: Option<u64>,
}

const ZERO_FLAG: u64 = 1 << 6;
const ACCUMULATOR: u8 = 0;

impl Store {
    /// Derives the values of the `len` watched bytes at `at` from the registers after the store. `bpf/watch.bpf.c` must
    /// do the same.
    pub fn values_from_registers(
        &self,
        registers: &[u64; 16],
        flags: u64,
        at: u64,
        len: u8,
    ) -> AccessValues {
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
        let (old, new) = match self.source {
            Source::Register(number) => (None, shifted(number)),
            Source::Immediate(value) => (None, part(value)),
            Source::Exchanged(number) => (shifted(number), None),
            Source::Compared(number) => {
                let old = part(register(ACCUMULATOR));
                let stored = flags & ZERO_FLAG != 0;
                (old, if stored { shifted(number) } else { old })
            }
            Source::Added(_) => (None, None),
        };
        AccessValues { old, new }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 0x5000;

    fn known(source: Source, change: impl Fn(&mut Store), len: u8) -> AccessValues {
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
        store.values_from_registers(&registers, ZERO_FLAG, AT, len)
    }

    #[test]
    fn a_part_of_a_stored_value() {
        let new = |new| AccessValues { old: None, new };
        assert_eq!(
            known(Source::Register(2), |_| (), 4),
            new(Some(0x1122_3344))
        );
        assert_eq!(known(Source::Register(2), |_| (), 2), new(Some(0x3344)));
        // Half of the watched bytes are after the stored ones.
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
            AccessValues { old, new: None }
        );
        let known_both = known(Source::Compared(2), exact, 8);
        assert_eq!((known_both.old, known_both.new), (Some(0x10), old));
    }
}
