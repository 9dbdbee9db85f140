//! A forked child that nobody traces: it holds our patches, and counts nowhere.
//!
//! What runs there makes no system call of ours: whether it is such a child a thread reads from a word that the fork wiped
//! (`Shared::is_home`). A trap byte cannot be met without one, as a signal handler returns by a call, and whoever traces
//! the child sees the signal. So all patches are taken out before the child puts itself under a filter (prctl, seccomp), and before
//! it asks its parent to trace it (ptrace). A child that shares its parent's memory (vfork) holds the
//! parent's code, which stays.

use crate::serve;
use crate::shared;
use crate::signals;
use crate::thread::set_mask;

/// Takes all patches out of a forked child; elsewhere nothing.
pub fn put_back() {
    let Some(shared) = shared::get().filter(|shared| !shared.is_here()) else {
        return;
    };
    // What runs on top of this could ask, or change, too.
    let mask = set_mask(!signals::OURS);
    serve::forsake(shared);
    set_mask(mask);
    if !signals::owned() {
        signals::block_as_believed();
    }
}
