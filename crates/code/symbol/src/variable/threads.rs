//! Where a thread keeps its own variables of a file.
//!
//! On x86-64 the program's block ends at the thread pointer, so that its place follows from
//! its size. A library's is known to the loader, which tells the library's own code in words
//! of its offset table; these are what is read here, so that no structure of the loader's has
//! to be known:
//!
//! - the distance from the thread pointer of one of the variables, where the library was
//!   loaded with the program and says so (`R_X86_64_TPOFF64`);
//! - else the library's number (`R_X86_64_DTPMOD64`), under which a table that each thread
//!   has (at 8 behind its thread pointer, in glibc and musl alike) names the block. glibc
//!   makes the block of a library that was opened later when the thread first uses it.

use super::error::VariableError;
use super::plan::Read;
use crate::header::{Class, Machine};
use crate::image::Image;

/// More modules than that have no process.
const MAX_MODULES: u64 = 1 << 16;

/// What each thread gets of a file (`PT_TLS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadSegment {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) alignment: u64,
}

/// One thread of a process, and the file in question there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// The thread pointer, `fs_base`.
    pub pointer: u64,
    /// What to add to the file's link-time addresses.
    pub bias: u64,
    /// Whether the file is the program, and no library of it.
    pub is_program: bool,
    /// Whether the process's C library is musl, and not glibc.
    pub is_musl: bool,
}

impl Image {
    /// Where a thread keeps its own variables of this file.
    pub fn thread_block(&self, thread: &Thread, read: &mut Read<'_>) -> Result<u64, VariableError> {
        let because = |why| VariableError::NoThreadBlock { why };
        let is_known =
            self.header().machine == Machine::X86_64 && self.header().class == Class::Elf64;
        if !is_known {
            return Err(because("it is no 64-bit program"));
        }
        let Some(segment) = self.thread_segment else {
            return Err(because("it has none"));
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
        let why = "the library does not ask the loader for them in a way that is understood";
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
    /// How far in front of the thread pointer a program's block begins: as much as it needs,
    /// and what aligns its first byte as its address in the file is.
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
        // Not aligned in the file either: the first byte is at 8 behind a multiple of 64.
        check(0x3dc8, 0x10, 64, 0x38);
    }
}
