//! Whose memory this is: a child of vfork, or of a clone that shares the memory, runs
//! here with a process id of its own.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use tiptoe_sys::raw::getpid;

use crate::memory::{self, PAGE};

/// A word that a fork wipes: the process that took the signals over.
static HOME: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());

fn home() -> Option<&'static AtomicU32> {
    // Acquire: pairs with the store in `settle`. SAFETY: never unmapped.
    unsafe { HOME.load(Ordering::Acquire).as_ref() }
}

/// The calling process takes its signals over.
pub(super) fn settle() {
    if home().is_none()
        && let Ok(page) = memory::private(PAGE)
        && memory::wipe_on_fork(page, PAGE).is_ok()
    {
        HOME.store(page as *mut AtomicU32, Ordering::Release); // pairs with `home`
    }
    if let Some(home) = home() {
        home.store(getpid(), Ordering::Relaxed); // read by this process, whole
    }
}

/// Whether the calling process runs in another one's memory.
pub(super) fn is_anothers() -> bool {
    let owner = home().map_or(0, |home| home.load(Ordering::Relaxed)); // as in `settle`
    owner != 0 && owner != getpid()
}
