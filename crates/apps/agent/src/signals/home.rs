//! The owner of this memory. A child of vfork, or of a clone that shares the memory, runs here with
//! its own process id. A fork wipes the owner, so a forked child's signals have none.

use core::sync::atomic::Ordering;

use tiptoe_sys::raw::getpid;

use crate::shared;

/// Records that the calling process owns its signals.
pub(super) fn settle() {
    if let Some(shared) = shared::get() {
        shared.signals_owner.store(getpid(), Ordering::Relaxed); // Relaxed: one word, read by this process
    }
}

/// Returns whether the calling process runs in another one's memory.
pub(super) fn is_anothers() -> bool {
    let owner = shared::get().map_or(0, |shared| shared.signals_owner.load(Ordering::Relaxed)); // as in `settle`
    owner != 0 && owner != getpid()
}
