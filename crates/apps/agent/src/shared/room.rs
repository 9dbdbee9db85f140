//! Memory for the agent's state.

use core::mem::size_of;

use tiptoe_sys::raw::Errno;

use crate::memory::{self, PAGE};

/// One mapping for all state, handed out in pages. If it cannot be made, the process stays unchanged.
pub(super) struct PageAllocator {
    pub(super) at: usize,
    left: usize,
}

impl PageAllocator {
    pub(super) const fn of<T>(count: usize) -> usize {
        (count * size_of::<T>()).next_multiple_of(PAGE)
    }

    pub(super) fn new(len: usize) -> Result<PageAllocator, Errno> {
        memory::private(len).map(|at| PageAllocator { at, left: len })
    }

    pub(super) fn bytes(&mut self, len: usize) -> Result<usize, Errno> {
        self.left = self.left.checked_sub(len).ok_or(Errno(12))?;
        let at = self.at;
        self.at += len;
        Ok(at)
    }

    pub(super) fn slice<T>(&mut self, count: usize) -> Result<&'static [T], Errno> {
        let at = self.bytes(Self::of::<T>(count))?;
        // SAFETY: these are fresh zeroed pages of the right length, handed out once, and never unmapped if `create`
        // succeeds. All `T` used are structs of atomics, for which zero is valid.
        Ok(unsafe { core::slice::from_raw_parts(at as *const T, count) })
    }
}
