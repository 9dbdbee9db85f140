//! Whose memory this is: a child of vfork, or of a clone that shares the memory, runs
//! here with a process id of its own. In a forked child's memory nobody has taken the signals over.

use core::sync::atomic::Ordering;

use tiptoe_sys::raw::getpid;

use crate::shared;

/// The calling process takes its signals over.
pub(super) fn settle() {
    if let Some(shared) = shared::get() {
        shared.signals_owner.store(getpid(), Ordering::Relaxed); // read by this process, whole
    }
}

/// Whether the calling process runs in another one's memory.
pub(super) fn is_anothers() -> bool {
    let owner = shared::get().map_or(0, |shared| shared.signals_owner.load(Ordering::Relaxed)); // as in `settle`
    owner != 0 && owner != getpid()
}
