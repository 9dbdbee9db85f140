//! The program's code, read and written from inside, failing softly where nothing is mapped.
//!
//! Through /proc/self/mem, which needs no change of protection. A program that gave up its
//! privileges may not open that file (it is root's then), as memcached and many a daemon; nor
//! is it there without /proc. Then the kernel copies by process_vm_readv(2) and
//! process_vm_writev(2): a process needs no right for its own memory, but the copy obeys the
//! protection, so that a page of code can be written for the length of that one copy. It can be
//! run all the while, and each byte is stored in one go, as by the file.

use tiptoe_sys::raw::{call, getpid, membarrier, nr};
use tiptoe_uprobe::patcher::Text;

use crate::files::{File, Which};
use crate::memory::{PAGE, let_code_be_written};

/// An open /proc/self/mem, or none where it may not be opened. Only the agent's thread and the thread that is borrowed
/// for a beginning open one.
pub struct SelfMemory(Option<File>);

impl SelfMemory {
    /// Opens it.
    pub fn open() -> Self {
        SelfMemory(File::open(Which::Memory))
    }
}

impl Text for SelfMemory {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let to = bytes.as_mut_ptr() as usize;
        match &self.0 {
            // SAFETY: the buffer is ours for its whole length.
            Some(file) => unsafe { through(nr::PREAD64, file.fd(), address, to, bytes.len()) },
            // SAFETY: as above.
            None => unsafe { directly(nr::PROCESS_VM_READV, address, to, bytes.len()) },
        }
    }

    fn write(&self, address: u64, bytes: &[u8]) -> bool {
        let from = bytes.as_ptr() as usize;
        let Some(file) = &self.0 else {
            // A patch is shorter than a page, so it lies in two at most.
            let here = bytes.len().min(PAGE - address as usize % PAGE);
            let beyond = bytes.get(here..).unwrap_or(&[]);
            return write_in_page(address, bytes.get(..here).unwrap_or(&[]))
                && (beyond.is_empty() || write_in_page(address + here as u64, beyond));
        };
        // SAFETY: what is written is a patch that the planner proved harmless to
        // any thread at any instruction; see `tiptoe_uprobe::patcher`.
        unsafe { through(nr::PWRITE64, file.fd(), address, from, bytes.len()) }
    }

    fn sync(&self) {
        // Registered before the first patch, so this cannot fail.
        let _ = membarrier::sync_core();
    }
}

/// Reads where nothing may be mapped, and without a descriptor: any thread may.
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

/// The same of words.
pub fn read_words<const COUNT: usize>(address: u64) -> Option<[u64; COUNT]> {
    let mut words = [[0; 8]; COUNT];
    read_directly(address, words.as_flattened_mut()).then(|| words.map(u64::from_ne_bytes))
}

/// Writes where it may be written, as data may; else it is code, and is let be written.
fn write_in_page(address: u64, bytes: &[u8]) -> bool {
    let from = bytes.as_ptr() as usize;
    // SAFETY: as in `SelfMemory::write`.
    let put = || unsafe { directly(nr::PROCESS_VM_WRITEV, address, from, bytes.len()) };
    let page = address as usize & !(PAGE - 1);
    let opened = || {
        let_code_be_written(page, true).is_ok() && {
            let done = put();
            // The page was one mapping of its own just now: this needs no memory.
            let _ = let_code_be_written(page, false);
            done
        }
    };
    put() || opened()
}

/// Copies through the open file; true where all of it was copied.
///
/// # Safety
/// `ours` is a buffer of `len` bytes; what is written at `address` harms nobody.
unsafe fn through(number: usize, file: i32, address: u64, ours: usize, len: usize) -> bool {
    let args = [file as usize, ours, len, address as usize, 0, 0];
    // SAFETY: the caller's duty.
    unsafe { call(number, args) == Ok(len) }
}

/// Copies by the kernel within this process; true where all of it was copied.
///
/// # Safety
/// As [`through`].
unsafe fn directly(number: usize, address: u64, ours: usize, len: usize) -> bool {
    let (from, to) = ([ours, len], [address as usize, len]);
    let [from, to] = [&from, &to].map(|range| range.as_ptr() as usize);
    // SAFETY: the caller's duty; the ranges live through the call.
    unsafe { call(number, [getpid() as usize, from, 1, to, 1, 0]) == Ok(len) }
}
