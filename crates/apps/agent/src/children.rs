//! A forked child that is not traced: it has our patches, but must not count.
//!
//! Our code makes no system call there: it reads from a word that the fork wiped whether this is such a child
//! (`Shared::is_home`). A trap byte is different, because a signal handler returns by a system call and the child's
//! tracer sees the signal. So all patches must be removed before the child installs a filter (prctl, seccomp) and
//! before it asks its parent to trace it (ptrace). A child that shares its parent's memory (vfork) keeps the patches,
//! because the code is its parent's.

use crate::serve;
use crate::shared;
use crate::signals;
use crate::thread::set_mask;

/// Removes all patches from a forked child; does nothing elsewhere.
pub fn put_back() {
    let Some(shared) = shared::get().filter(|shared| !shared.is_here()) else {
        return;
    };
    // A signal handler must not run here, because it could enter this code, too, or change what is being restored.
    let mask = set_mask(!signals::OURS);
    serve::forsake(shared);
    set_mask(mask);
    if !signals::owned() {
        signals::block_as_believed();
    }
}
