//! Flags that one instruction sets and another reads. x87's C0 to C3 and the interrupt flag, which the decoder also
//! reports, are excluded, because trampolines preserve them.

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

pub(crate) fn changed(instruction: &Instruction) -> u32 {
    instruction.rflags_modified() & STATUS
}

/// Returns whether the instruction may change the direction flag, which code called by trampolines clears.
pub(crate) fn sets_direction(instruction: &Instruction) -> bool {
    instruction.rflags_modified() & RflagsBits::DF != 0
}
