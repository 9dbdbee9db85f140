//! Bounds tiptoe's memory to [`MOST`], whatever a target's files contain.
//!
//! Code that reads a file must first call [`has_room`], and on `false` do without the file. Data built from files has
//! its own limits. If all memory exceeds [`MOST`], the allocator ends tiptoe, whose code in the targets then restores
//! them.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The most bytes that tiptoe allocates.
pub const MOST: usize = 900 << 20;
/// The most bytes in use once a file has been read.
const MOST_WITH_FILES: u64 = 640 << 20;

/// The bytes in use. Relaxed: orders no data.
static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// Returns whether a file of this size may be read. Memory in use counts only if [`Bounded`] is the allocator.
pub fn has_room(bytes: u64) -> bool {
    (IN_USE.load(Relaxed) as u64).saturating_add(bytes) <= MOST_WITH_FILES
}

/// The system's allocator, bounded.
pub struct Bounded;

impl Bounded {
    fn take(bytes: usize) {
        if IN_USE.fetch_add(bytes, Relaxed).saturating_add(bytes) > MOST {
            end();
        }
    }
}

/// Must not allocate, because the allocator calls this function.
#[cold]
fn end() -> ! {
    const WHY: &[u8] =
        b"error: the target's files need more memory than the 900 MB that tiptoe allows itself\n\
        hint: the sizes that they declare may be forged; name other events or another process\n";
    // SAFETY: the calls write a constant's bytes, and end the process.
    unsafe {
        libc::write(libc::STDERR_FILENO, WHY.as_ptr().cast(), WHY.len());
        libc::_exit(2)
    }
}

// SAFETY: every call goes unchanged to the system's allocator.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Bounded::take(layout.size());
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Bounded::take(layout.size());
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match size.checked_sub(layout.size()) {
            Some(more) => Bounded::take(more),
            None => drop(IN_USE.fetch_sub(layout.size() - size, Relaxed)),
        }
        // SAFETY: the caller keeps the contract.
        unsafe { System.realloc(at, layout, size) }
    }
}
