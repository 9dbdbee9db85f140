use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;

use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use tiptoe_wire::Words;

/// A mapped memfd, shared with the target as atomic words.
pub struct Segment {
    pub(super) file: File,
    base: *mut u8,
    pub(super) len: usize,
}

// SAFETY: threads share the mapping only as atomics; no other thread accesses the bytes that `write` copies.
unsafe impl Send for Segment {}
// SAFETY: as for `Send`.
unsafe impl Sync for Segment {}

impl Segment {
    /// Maps `len` bytes of a memfd, which must be sealed against shrinking below `len`.
    pub fn map(fd: OwnedFd, len: u64) -> io::Result<Segment> {
        let len = NonZeroUsize::new(len as usize).ok_or(io::ErrorKind::InvalidInput)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_NORESERVE;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe { mmap(None, len, protection, flags, &fd, 0) }?;
        Ok(Segment {
            file: File::from(fd),
            base: base.as_ptr().cast(),
            len: len.get(),
        })
    }

    pub(super) fn words(&self) -> Words<'_> {
        // SAFETY: mapped for the life of `self` and page-aligned; the seals keep the target from shrinking it.
        unsafe { Words::from_raw(self.base, self.len) }
    }

    /// Writes bytes inside the memfd.
    ///
    /// # Safety
    ///
    /// No thread may access these bytes concurrently.
    pub(super) unsafe fn write(&self, at: usize, bytes: &[u8]) {
        let end = at.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= self.len), "inside the memfd");
        // SAFETY: within the mapping; by contract no other thread accesses the bytes.
        unsafe {
            self.base
                .add(at)
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    /// Returns the memfd, which can be read without touching the mapping.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; no view outlives `self`.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}
