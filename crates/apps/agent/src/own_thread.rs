//! The calling thread's slab (block of counters) and name.

use core::sync::atomic::Ordering::Relaxed;

use tiptoe_sys::raw::{call, gettid, nr};

use crate::shared;
use crate::tls;

const PR_GET_NAME: usize = 16;

/// Hides the slab from the thread's trampolines (generated code) until the next hit of a probe.
pub(crate) fn take_slab_away() {
    if let Some(shared) = shared::get().filter(|shared| shared.is_here())
        && let Some(index) = shared.descriptor_index(tls::descriptor())
        && let Some(descriptor) = shared.claims.descriptor(index)
        && descriptor.owner() == gettid()
    {
        // Relaxed: only trampolines in this thread and its child read the word.
        descriptor.slab.store(0, Relaxed);
    }
}

pub fn comm() -> [u64; 2] {
    let mut name = [0u64; 2];
    let at = name.as_mut_ptr() as usize;
    // SAFETY: the kernel writes 16 bytes, the size of `name`.
    let _ = unsafe { call(nr::PRCTL, [PR_GET_NAME, at, 0, 0, 0, 0]) };
    name
}
