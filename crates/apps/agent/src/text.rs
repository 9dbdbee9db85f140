//! The program's code, read and written through /proc/self/mem, which needs no
//! change of protection and fails softly where nothing is mapped.

use tiptoe_sys::raw::{Errno, call, close, membarrier, nr, open};
use tiptoe_uprobe::patcher::Text;

const O_RDWR_CLOEXEC: i32 = 2 | 0o2000000;

/// An open /proc/self/mem. Only the agent's thread opens one: its descriptor
/// table is its own, so the program never sees the number.
pub struct SelfMemory(i32);

impl SelfMemory {
    /// Opens it.
    pub fn open() -> Result<Self, Errno> {
        open(c"/proc/self/mem", O_RDWR_CLOEXEC).map(SelfMemory)
    }
}

impl Drop for SelfMemory {
    fn drop(&mut self) {
        close(self.0);
    }
}

impl Text for SelfMemory {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let to = bytes.as_mut_ptr() as usize;
        // SAFETY: the buffer is ours for its whole length.
        let got = unsafe {
            call(
                nr::PREAD64,
                [self.0 as usize, to, bytes.len(), address as usize, 0, 0],
            )
        };
        got == Ok(bytes.len())
    }

    fn write(&self, address: u64, bytes: &[u8]) -> bool {
        let from = bytes.as_ptr() as usize;
        // SAFETY: what is written is a patch that the planner proved harmless to
        // any thread at any instruction; see `tiptoe_uprobe::patcher`.
        let put = unsafe {
            call(
                nr::PWRITE64,
                [self.0 as usize, from, bytes.len(), address as usize, 0, 0],
            )
        };
        put == Ok(bytes.len())
    }

    fn sync(&self) {
        // Registered before the first patch, so this cannot fail.
        let _ = membarrier::sync_core();
    }
}
