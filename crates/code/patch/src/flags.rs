//! Flags that one instruction leaves for another. The decoder also reports x87's C0 to C3 and the
//! interrupt flag, but trampolines do not change these.

use iced_x86::{Instruction, RflagsBits};

pub(crate) const STATUS: u32 = RflagsBits::OF
    | RflagsBits::SF
    | RflagsBits::ZF
    | RflagsBits::AF
    | RflagsBits::CF
    | RflagsBits::PF;

pub(crate) fn read(instruction: &Instruction) -> u32 {
    instruction.rflags_read() & STATUS
}

/// Includes flags that are left undefined.
pub(crate) fn changed(instruction: &Instruction) -> u32 {
    instruction.rflags_modified() & STATUS
}

/// Returns whether an instruction sets the direction flag, which the agent clears.
pub(crate) fn sets_direction(instruction: &Instruction) -> bool {
    instruction.rflags_modified() & RflagsBits::DF != 0
}
