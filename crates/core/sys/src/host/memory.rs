//! How much memory tiptoe takes: never more than [`MOST`], whatever the files of a target say.
//!
//! Who reads a file asks [`has_room`] first and does without it where there is none. What is made of what was read
//! (functions, units, tables) is bounded by its own limits. The allocator is the last resort, for what these add up
//! to: it ends tiptoe, whose agents then restore their targets by themselves.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// tiptoe ends before it has more.
pub const MOST: usize = 900 << 20;
/// Nothing of a file is read that would lead beyond this.
const MOST_WITH_FILES: u64 = 640 << 20;

/// What is allocated now. Relaxed: nothing is ordered by it.
static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// Whether that many bytes of a file may be read into memory. True where [`Bounded`] is not the allocator.
pub fn has_room(bytes: u64) -> bool {
    (IN_USE.load(Relaxed) as u64).saturating_add(bytes) <= MOST_WITH_FILES
}

/// The system's allocator up to [`MOST`]; for `#[global_allocator]`.
pub struct Bounded;

impl Bounded {
    fn take(bytes: usize) {
        if IN_USE.fetch_add(bytes, Relaxed).saturating_add(bytes) > MOST {
            end();
        }
    }
}

/// Ends the process without an allocation.
#[cold]
fn end() -> ! {
    const WHY: &[u8] = b"error: the files of the target need more memory than the 900 MB that tiptoe takes\n\
        hint: what they say of themselves is out of all proportion; name other events or another process\n";
    // SAFETY: a constant's bytes go out, and the process ends.
    unsafe {
        libc::write(libc::STDERR_FILENO, WHY.as_ptr().cast(), WHY.len());
        libc::_exit(2)
    }
}

// SAFETY: each call is handed on to the system's allocator, and only numbers are kept of it.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Bounded::take(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Bounded::take(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match size.checked_sub(layout.size()) {
            Some(more) => Bounded::take(more),
            None => drop(IN_USE.fetch_sub(layout.size() - size, Relaxed)),
        }
        // SAFETY: as the caller promises.
        unsafe { System.realloc(at, layout, size) }
    }
}
