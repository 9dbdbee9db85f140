//! The ways to patch a site, in the order tried:
//!
//! | strategy | patch | window | needs |
//! | --- | --- | --- | --- |
//! | [`Strategy::Jump`] | `jmp rel32` | 5 bytes | trap bytes on the heads |
//! | [`Strategy::Short`] | `jmp rel8` to an island | 2 bytes | padding nearby |
//! | [`Strategy::Trap`] | `int3` | 1 byte | nothing |

/// How a site is patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// A 5-byte jump to the trampoline.
    Jump,
    /// A 2-byte jump to an island in padding, which jumps to the trampoline.
    Short,
    /// A breakpoint, whose handler continues at the trampoline.
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
