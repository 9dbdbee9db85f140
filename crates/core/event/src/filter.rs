//! Filters on integer argument registers, such as `arg1 > 4096 && arg0 == 3`.

/// The most comparisons in a filter.
pub const MAX_COMPARISONS: usize = 8;

/// An argument's low bits to compare, signed or unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// 8 bits, unsigned.
    U8,
    /// 8 bits, signed.
    S8,
    /// 16 bits, unsigned.
    U16,
    /// 16 bits, signed.
    S16,
    /// 32 bits, unsigned.
    U32,
    /// 32 bits, signed.
    S32,
    /// All 64 bits, unsigned.
    U64,
    /// All 64 bits, signed: the default.
    S64,
}

impl Width {
    /// Returns the number of low bits compared.
    pub const fn bits(self) -> u32 {
        match self {
            Width::U8 | Width::S8 => 8,
            Width::U16 | Width::S16 => 16,
            Width::U32 | Width::S32 => 32,
            Width::U64 | Width::S64 => 64,
        }
    }

    /// Returns whether the bits are signed.
    pub const fn signed(self) -> bool {
        matches!(self, Width::S8 | Width::S16 | Width::S32 | Width::S64)
    }

    pub(crate) fn range(self) -> core::ops::RangeInclusive<i128> {
        match self.signed() {
            true => -(1 << (self.bits() - 1))..=(1 << (self.bits() - 1)) - 1,
            false => 0..=(1 << self.bits()) - 1,
        }
    }
}

/// A register's relation to the constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}

/// One comparison: `argN[:width] OP value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Comparison {
    /// The integer argument, 0 to 5 (rdi, rsi, rdx, rcx, r8, r9 on x86-64).
    pub arg: u8,
    /// The argument's bits to compare.
    pub width: Width,
    /// The relation.
    pub operator: Operator,
    /// The constant; for an unsigned width, the bits of a `u64`.
    pub value: i64,
}

impl Comparison {
    /// Returns whether a register's value passes the comparison.
    pub fn holds(&self, register: u64) -> bool {
        let shift = 64 - self.width.bits();
        let order = if self.width.signed() {
            (((register << shift) as i64) >> shift).cmp(&self.value)
        } else {
            ((register << shift) >> shift).cmp(&(self.value as u64))
        };
        match self.operator {
            Operator::Eq => order.is_eq(),
            Operator::Ne => order.is_ne(),
            Operator::Lt => order.is_lt(),
            Operator::Le => order.is_le(),
            Operator::Gt => order.is_gt(),
            Operator::Ge => order.is_ge(),
        }
    }
}

/// The operator between a filter's comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Join {
    /// `&&`
    All,
    /// `||`
    Any,
}

/// Comparisons, joined all by `&&` or all by `||`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Filter {
    comparisons: [Comparison; MAX_COMPARISONS],
    len: u8,
    join: Join,
}

impl Filter {
    /// Returns a filter; `None` for no comparison, more than [`MAX_COMPARISONS`], or a register above `arg5`.
    pub fn new(join: Join, comparisons: &[Comparison]) -> Option<Filter> {
        let first = *comparisons.first()?;
        if comparisons.len() > MAX_COMPARISONS || comparisons.iter().any(|c| c.arg > 5) {
            return None;
        }
        let mut held = [first; MAX_COMPARISONS];
        held[..comparisons.len()].copy_from_slice(comparisons);
        Some(Filter {
            comparisons: held,
            len: comparisons.len() as u8,
            join,
        })
    }

    /// Returns the comparisons in order.
    pub fn comparisons(&self) -> &[Comparison] {
        &self.comparisons[..self.len as usize]
    }

    /// Returns the join.
    pub fn join(&self) -> Join {
        self.join
    }

    /// Returns whether a call's arguments pass the filter.
    pub fn passes(&self, args: &[u64; 6]) -> bool {
        let mut each = self
            .comparisons()
            .iter()
            .map(|c| c.holds(args[c.arg as usize]));
        match self.join {
            Join::All => each.all(|held| held),
            Join::Any => each.any(|held| held),
        }
    }
}
