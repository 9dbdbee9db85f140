//! Reads and writes the program's code from inside the program. An access to unmapped memory fails without a fault.
//!
//! /proc/self/mem ignores the protection of memory. The file cannot be opened without /proc, or after the program gave
//! up its privileges, because root then owns the file. In these cases the agent uses process_vm_readv(2) and
//! process_vm_writev(2), which need no rights here, but obey the protection. So a page of code is made writable for the
//! copy, and stays executable.

use tiptoe_sys::raw::{call, getpid, membarrier, nr};
use tiptoe_uprobe::patcher::Text;

use crate::files::{File, ProcFile};
use crate::memory::{PAGE, let_code_be_written};

/// An open /proc/self/mem, if it can be opened.
pub struct SelfMemory(Option<File>);

impl SelfMemory {
    pub fn open() -> Self {
        SelfMemory(File::open(ProcFile::Memory))
    }
}

impl Text for SelfMemory {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let to = bytes.as_mut_ptr() as usize;
        match &self.0 {
            // SAFETY: the buffer is ours for its whole length.
            Some(file) => unsafe { through(nr::PREAD64, file.fd(), address, to, bytes.len()) },
            None => read_directly(address, bytes),
        }
    }

    fn write(&self, address: u64, bytes: &[u8]) -> bool {
        let from = bytes.as_ptr() as usize;
        let Some(file) = &self.0 else {
            // A patch is shorter than a page, so it touches at most two pages.
            let here = bytes.len().min(PAGE - address as usize % PAGE);
            let beyond = bytes.get(here..).unwrap_or(&[]);
            return write_in_page(address, bytes.get(..here).unwrap_or(&[]))
                && (beyond.is_empty() || write_in_page(address + here as u64, beyond));
        };
        // SAFETY: tiptoe proved each patch harmless to any thread at any instruction; see `tiptoe_uprobe::patcher`.
        unsafe { through(nr::PWRITE64, file.fd(), address, from, bytes.len()) }
    }

    fn sync(&self) {
        // This cannot fail, because the process registered for membarrier(2) before the first patch.
        let _ = membarrier::sync_core();
    }
}

/// Reads memory, which may be unmapped, without a descriptor.
pub fn read_directly(address: u64, bytes: &mut [u8]) -> bool {
    // SAFETY: the buffer is ours for its whole length.
    unsafe {
        directly(
            nr::PROCESS_VM_READV,
            address,
            bytes.as_mut_ptr() as usize,
            bytes.len(),
        )
    }
}

pub fn read_words<const COUNT: usize>(address: u64) -> Option<[u64; COUNT]> {
    let mut words = [[0; 8]; COUNT];
    read_directly(address, words.as_flattened_mut()).then(|| words.map(u64::from_ne_bytes))
}

/// Writes within one page. A page that is not writable is code, and becomes writable for this copy.
fn write_in_page(address: u64, bytes: &[u8]) -> bool {
    let from = bytes.as_ptr() as usize;
    // SAFETY: as in `SelfMemory::write`.
    let put = || unsafe { directly(nr::PROCESS_VM_WRITEV, address, from, bytes.len()) };
    let page = address as usize & !(PAGE - 1);
    let opened = || {
        let_code_be_written(page, true).is_ok() && {
            let done = put();
            // The kernel needs no memory for this, because it joins the page's mapping with its neighbours again.
            let _ = let_code_be_written(page, false);
            done
        }
    };
    put() || opened()
}

/// Copies through the open file. Returns whether everything was copied.
///
/// # Safety
/// `ours` must be a buffer of `len` bytes, and what is written at `address` must be harmless to every thread.
unsafe fn through(number: usize, file: i32, address: u64, ours: usize, len: usize) -> bool {
    let args = [file as usize, ours, len, address as usize, 0, 0];
    // SAFETY: the caller's duty.
    unsafe { call(number, args) == Ok(len) }
}

/// Copies as [`through`], but within this process without the file.
///
/// # Safety
/// As [`through`].
unsafe fn directly(number: usize, address: u64, ours: usize, len: usize) -> bool {
    let (from, to) = ([ours, len], [address as usize, len]);
    let [from, to] = [&from, &to].map(|range| range.as_ptr() as usize);
    // SAFETY: the caller's duty; the ranges live through the call.
    unsafe { call(number, [getpid() as usize, from, 1, to, 1, 0]) == Ok(len) }
}
