//! Clears a dead thread's records in a slab (block of counters) that another thread takes over.

use tiptoe_futex::calls::Thread as WaitThread;
use tiptoe_futex::gaps::Gaps;
use tiptoe_label::switch::Thread as ScopeThread;
use tiptoe_wire::futex::{activity, head};
use tiptoe_wire::{Data, Geometry, futex, scopes};

use crate::shared::Shared;

/// Counts the unfinished futex waits of the slab's ended thread as abandoned.
pub fn clear_waits(state: &Shared, data: &Data, slab: u32, tid: u32) {
    let slot = state.lock_slot();
    let Some(words) = slot.and_then(|slot| data.slab_words(slab, slot, futex::WIDTH)) else {
        return;
    };
    WaitThread::new(words, words).leaves_all();
    for index in 0..activity::DEPTH {
        words.store((head::SPS + index) as usize, 0);
    }
    words.store(head::THREAD as usize, tid.into());
    words.store(head::EPISODE as usize, 0);
    words.store(head::MEASURED_HOLD as usize, 0);
    Gaps::new(words).forget();
}

pub fn clear_scopes(state: &Shared, data: &Data, slab: u32) {
    let slot = state.scope_slot();
    let words = slot
        .and_then(|slot| data.slab_words(slab, slot, scopes::WIDTH))
        .zip(data.slab_words(slab, 0, Geometry::FIRST_SLOT));
    if let Some((own, head)) = words {
        ScopeThread::new(head, own, own).forget();
    }
}
