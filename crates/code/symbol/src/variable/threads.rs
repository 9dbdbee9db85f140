//! Finds the block of a file's thread-local variables in a thread.
//!
//! On x86-64 the program's block ends at the thread pointer. A library's block is found by a word of the library's
//! offset table. So only one structure of the loader must be known, a thread's table of blocks. The word has:
//!
//! - in libraries loaded with the program, a variable's distance from the thread pointer (`R_X86_64_TPOFF64`);
//! - otherwise the library's number (`R_X86_64_DTPMOD64`), an index in the table of blocks. In glibc and musl, the
//!   table's address is 8 bytes after the thread pointer. If the library was opened with dlopen, glibc makes the block
//!   at the thread's first use.

use super::plan::Read;
use crate::error::variable_error::{BlockGap, VariableError};
use crate::header::{Class, Machine};
use crate::image::Image;

const MAX_MODULES: u64 = 1 << 16;

/// A thread, and the file whose variables are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// The thread pointer (`fs_base`).
    pub pointer: u64,
    /// Run-time minus link-time addresses.
    pub bias: u64,
    /// Whether the file is the program.
    pub is_program: bool,
    /// Whether the C library is musl, not glibc.
    pub is_musl: bool,
}

impl Thread {
    /// Returns the address of the thread's block with a file's variables.
    pub fn block(&self, image: &Image, read: &mut Read<'_>) -> Result<u64, VariableError> {
        let because = |why| VariableError::NoThreadBlock { why };
        let is_known =
            image.header().machine == Machine::X86_64 && image.header().class == Class::Elf64;
        if !is_known {
            return Err(because(BlockGap::Foreign));
        }
        let Some(segment) = image.thread_segment else {
            return Err(because(BlockGap::NoVariables));
        };
        if self.is_program {
            return Ok(self.pointer.wrapping_sub(segment.distance()));
        }
        let mut word = |address: u64| {
            let mut bytes = [0; 8];
            let found = read(address, &mut bytes).then(|| u64::from_le_bytes(bytes));
            found.ok_or(because(BlockGap::Unreadable))
        };
        if let Some((slot, offset)) = image.slots.thread_offset {
            let distance = word(slot.wrapping_add(self.bias))?;
            return Ok(self.pointer.wrapping_add(distance).wrapping_sub(offset));
        }
        let slot = image.slots.module_number;
        let slot = slot.ok_or(because(BlockGap::UnknownAccess))?;
        let number = word(slot.wrapping_add(self.bias))?;
        if number == 0 || number > MAX_MODULES {
            return Err(because(BlockGap::NotLoaded));
        }
        let table = word(self.pointer.wrapping_add(8))?;
        let (count, entry) = match self.is_musl {
            true => (table, 8),
            false => (table.wrapping_sub(16), 16),
        };
        let unused = because(BlockGap::Unused);
        if word(count)? < number {
            return Err(unused);
        }
        match word(table.wrapping_add(entry * number))? {
            0 | u64::MAX => Err(unused),
            block => Ok(block),
        }
    }
}
