//! Filters on integer argument registers, such as `arg1 > 4096 && arg0 == 3`.
//!
//! The trampoline evaluates a filter with a compare and a branch per term. So a filter is a few
//! comparisons of a register with a constant, all joined the same way.

/// The most comparisons of a filter.
pub const MAX_COMPARISONS: usize = 8;

/// How a register's bits are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// Unsigned, the low 8 bits.
    U8,
    /// Signed, the low 8 bits.
    S8,
    /// Unsigned, the low 16 bits.
    U16,
    /// Signed, the low 16 bits.
    S16,
    /// Unsigned, the low 32 bits.
    U32,
    /// Signed, the low 32 bits.
    S32,
    /// Unsigned, the whole register.
    U64,
    /// Signed, the whole register: the default.
    S64,
}

impl Width {
    /// Returns how many low bits of the register are compared.
    pub const fn bits(self) -> u32 {
        match self {
            Width::U8 | Width::S8 => 8,
            Width::U16 | Width::S16 => 16,
            Width::U32 | Width::S32 => 32,
            Width::U64 | Width::S64 => 64,
        }
    }

    /// Returns whether the comparison is signed.
    pub const fn signed(self) -> bool {
        matches!(self, Width::S8 | Width::S16 | Width::S32 | Width::S64)
    }
}

/// The relation between the register (left) and the constant (right).
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
    /// Which integer argument register, 0 to 5 (rdi, rsi, rdx, rcx, r8, r9 on x86-64).
    pub arg: u8,
    /// How its bits are read.
    pub width: Width,
    /// The relation.
    pub operator: Operator,
    /// The constant's bits; for unsigned widths they are those of the `u64`.
    pub value: i64,
}

impl Comparison {
    /// Returns whether a register's value satisfies this comparison.
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

/// How a filter's comparisons are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Join {
    /// All comparisons must hold (`&&`).
    All,
    /// At least one comparison must hold (`||`).
    Any,
}

/// A non-empty list of comparisons with one join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Filter {
    comparisons: [Comparison; MAX_COMPARISONS],
    len: u8,
    join: Join,
}

impl Filter {
    /// Returns a filter; `None` for no comparison, more than [`MAX_COMPARISONS`], or a register
    /// above `arg5`.
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

    /// Returns the comparisons, in the order written.
    pub fn comparisons(&self) -> &[Comparison] {
        &self.comparisons[..self.len as usize]
    }

    /// Returns the join.
    pub fn join(&self) -> Join {
        self.join
    }

    /// Returns whether the six integer argument registers pass.
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
