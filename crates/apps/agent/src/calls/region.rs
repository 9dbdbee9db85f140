//! The memory of a thread's frames (records of calls whose returns count, too).

use core::mem::size_of;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tiptoe_uprobe::frames::Frames;
use tiptoe_wire::Data;

use super::{CallSession, FRAME};
use crate::clockwork;
use crate::forbidden;
use crate::forced_records::Records;
use crate::memory::{self, PAGE};
use crate::shared::Shared;
use crate::tls;

/// The bytes of a thread's region, for 131,000 nested calls.
const REGION: usize = 4 << 20;

/// A thread's memory for frames, aligned to its own length.
///
/// The first frame is unused, except that its word 1 is the [height](Region::height). The last page has records of
/// forced unwinding instead of frames.
#[derive(Clone, Copy)]
pub struct Region {
    base: u64,
    end: u64,
}

impl Region {
    pub fn of_caller() -> Option<Region> {
        let end = tls::frames()?;
        // The end may be the first address after the region.
        let base = (end - 1) & !(REGION as u64 - 1);
        Some(Region { base, end })
    }

    pub fn of(shared: &Shared, index: usize) -> Option<Region> {
        Region::at(shared.region(index)?.load(Relaxed)) // Relaxed as in `give`
    }

    pub fn at(base: u64) -> Option<Region> {
        (base != 0).then_some(Region { base, end: base })
    }

    /// Gives the calling thread the region of the dead thread that had its slab (block of counters), or a new one.
    pub fn give(here: &CallSession, index: usize) -> Option<Region> {
        let word = here.shared.region(index)?;
        // Relaxed, here and below: only the slab's owner changes the region's address. Other threads find zeroes or
        // frames there, and both are valid.
        let region = match Region::at(word.load(Relaxed)) {
            Some(region) => {
                region.bury(here);
                region
            }
            None => {
                let base = memory::aligned(REGION).ok()? as u64;
                word.store(base, Relaxed);
                Region::at(base)?
            }
        };
        tls::set_frames(region.base + FRAME);
        forbidden::look();
        Region::of_caller()
    }

    pub fn bury(&self, here: &CallSession) {
        // If the dead thread was not in this session, each frame's `part` (index of a value) is of an earlier session.
        if here.data.slab_owner(here.slab).is_none() {
            self.frames().forget_parts(self.height());
        }
        self.frames().bury(self.height(), |frame| here.left(frame));
        self.forced().clear();
    }

    fn words(&self) -> &'static [AtomicU64] {
        let count = REGION / size_of::<AtomicU64>();
        // SAFETY: `give` mapped REGION bytes at `base`, writable and for ever, and they are used only as atomics.
        unsafe { core::slice::from_raw_parts(self.base as *const AtomicU64, count) }
    }

    fn parts(&self) -> (&'static [AtomicU64], &'static [AtomicU64]) {
        const FRAMES: usize = (REGION - PAGE) / size_of::<AtomicU64>();
        self.words().split_at(FRAMES)
    }

    pub fn frames(&self) -> Frames<'static> {
        Frames::new(self.parts().0)
    }

    pub fn forced(&self) -> Records<'static> {
        Records::new(self.parts().1)
    }

    pub fn position(&self) -> usize {
        ((self.end - self.base) / FRAME) as usize
    }

    pub fn set_position(&self, position: usize) {
        tls::set_frames(self.base + position as u64 * FRAME);
    }

    /// Returns the first position that no frame ever reached.
    pub fn height(&self) -> usize {
        let height = self.words().get(1);
        height.map_or(0, |word| word.load(Relaxed) as usize)
    }

    /// Moves the end up. The height is rounded up to a page, because trampolines (generated code) fill the page by
    /// themselves.
    pub fn rise(&self, end: usize) {
        let page = PAGE / FRAME as usize;
        let height = end.next_multiple_of(page) + 1;
        if height > self.height()
            && let Some(word) = self.words().get(1)
        {
            word.store(height as u64, Relaxed);
        }
        self.set_position(end);
    }
}

/// Prepares the calling thread for a session. Its frames may have an earlier session's `part`, and the thread may have
/// lost the right to read the time stamp counter.
pub fn enter_session() {
    let region = Region::of_caller();
    if let Some(region) = region {
        region.frames().forget_parts(region.position());
    }
    if region.is_some() || clockwork::is_on() {
        forbidden::look();
    }
}

pub fn forced() -> Option<Records<'static>> {
    Some(Region::of_caller()?.forced())
}

/// Takes over a dead thread's slab, and counts that thread's open calls as left (ended without a return).
pub fn take_over(shared: &'static Shared, data: &Data<'static>, index: usize) {
    if let Some(region) = Region::of(shared, index) {
        region.bury(&CallSession::of(shared, data, index));
    }
    data.set_outside(index as u32 + 1);
}
