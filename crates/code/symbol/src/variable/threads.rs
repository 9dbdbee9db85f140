//! Finds a thread's own variables of a file.
//!
//! On x86-64 the program's block ends at the thread pointer, so its address follows from its size.
//! For a library's code, the loader stores where the block is in words of the library's offset
//! table. Only these are read, so that no structure of the loader must be known:
//!
//! - the distance of one of the variables from the thread pointer, if the library was loaded with
//!   the program and has such a word (`R_X86_64_TPOFF64`);
//! - otherwise the library's number (`R_X86_64_DTPMOD64`), its index in the thread's table of
//!   blocks (at 8 after its thread pointer, in glibc and musl). For a library opened later, glibc
//!   makes the block at the thread's first use.

use super::plan::Read;
use super::variable_error::VariableError;
use crate::header::{Class, Machine};
use crate::image::Image;

const MAX_MODULES: u64 = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadSegment {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) alignment: u64,
}

/// A thread of a process, and the file in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// The thread pointer, `fs_base`.
    pub pointer: u64,
    /// The file's run-time minus link-time addresses.
    pub bias: u64,
    /// Whether the file is the program.
    pub is_program: bool,
    /// Whether the C library is musl, not glibc.
    pub is_musl: bool,
}

impl Image {
    /// Returns the address of a thread's own variables of this file.
    pub fn thread_block(&self, thread: &Thread, read: &mut Read<'_>) -> Result<u64, VariableError> {
        let because = |why| VariableError::NoThreadBlock { why };
        let is_known =
            self.header().machine == Machine::X86_64 && self.header().class == Class::Elf64;
        if !is_known {
            return Err(because("it is no 64-bit program"));
        }
        let Some(segment) = self.thread_segment else {
            return Err(because("it has no thread-local variables"));
        };
        if thread.is_program {
            return Ok(thread.pointer.wrapping_sub(segment.distance()));
        }
        let mut word = |address: u64| {
            let mut bytes = [0; 8];
            let found = read(address, &mut bytes).then(|| u64::from_le_bytes(bytes));
            found.ok_or(because("its memory cannot be read"))
        };
        if let Some((slot, offset)) = self.slots.thread_offset() {
            let distance = word(slot.wrapping_add(thread.bias))?;
            return Ok(thread.pointer.wrapping_add(distance).wrapping_sub(offset));
        }
        let why = "the library gets their address in an unknown way";
        let slot = self.slots.module_number().ok_or(because(why))?;
        let number = word(slot.wrapping_add(thread.bias))?;
        if number == 0 || number > MAX_MODULES {
            return Err(because("the loader has not set the library up yet"));
        }
        let table = word(thread.pointer.wrapping_add(8))?;
        let (count, entry) = match thread.is_musl {
            true => (table, 8),
            false => (table.wrapping_sub(16), 16),
        };
        let unused = because("the thread has not used any of them yet");
        if word(count)? < number {
            return Err(unused);
        }
        match word(table.wrapping_add(entry * number))? {
            0 | u64::MAX => Err(unused),
            block => Ok(block),
        }
    }
}

impl ThreadSegment {
    /// Returns the distance from the block's first byte to the thread pointer: the block's size,
    /// plus padding that gives the first byte the alignment that it has in the file.
    fn distance(&self) -> u64 {
        let mask = self.alignment.max(1).wrapping_sub(1);
        let padding = self.size.wrapping_add(self.address).wrapping_neg() & mask;
        self.size.wrapping_add(padding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_block_ends_at_the_thread_pointer() {
        let check = |address, size, alignment, distance| {
            let segment = ThreadSegment {
                address,
                size,
                alignment,
            };
            assert_eq!(segment.distance(), distance, "{segment:?}");
        };
        check(0x3df0, 0x10, 8, 0x10);
        check(0x3df0, 0x11, 8, 0x18);
        check(0x3dc0, 0x44, 64, 0x80);
        check(0x3df0, 0x11, 0, 0x11);
        // Not aligned in the file either: the first byte is at 8 after a multiple of 64.
        check(0x3dc8, 0x10, 64, 0x38);
    }
}
