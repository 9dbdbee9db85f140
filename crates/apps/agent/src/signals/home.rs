//! Records which process took the signals over. A child that shares this memory (vfork, clone) is recognised by its
//! process id. A fork wipes the record.

use core::sync::atomic::Ordering;

use tiptoe_sys::raw::getpid;

use crate::shared;

pub(super) fn settle() {
    if let Some(shared) = shared::get() {
        shared.signals_owner.store(getpid(), Ordering::Relaxed); // Relaxed: one word, read by this process
    }
}

pub(super) fn is_anothers() -> bool {
    let owner = shared::get().map_or(0, |shared| shared.signals_owner.load(Ordering::Relaxed)); // as in `settle`
    owner != 0 && owner != getpid()
}
