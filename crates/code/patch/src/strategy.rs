/// How a place in the code is patched, in the order tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// `jmp rel32` to the trampoline (the code that counts), with trap bytes where inner instructions began.
    Jump,
    /// `jmp rel8` to an *island*, a jump to the trampoline in nearby padding.
    Short,
    /// `int3`, whose handler continues at the trampoline.
    Trap,
}

impl Strategy {
    /// Returns the number of bytes written at the site.
    pub const fn patch_len(self) -> u8 {
        match self {
            Strategy::Jump => 5,
            Strategy::Short => 2,
            Strategy::Trap => 1,
        }
    }
}

pub(crate) const JUMP: u8 = 0xe9;
pub(crate) const CALL: u8 = 0xe8;
pub(crate) const SHORT_JUMP: u8 = 0xeb;
