//! Patched code that the program maps at another address, too, or moves there. A patch works at its own address
//! only: its jump is relative, and the trap handler finds no other address. So code that mremap(2) moves must get
//! its original bytes back before any thread can call it. Hits at the new address are not counted, and tiptoe is
//! notified of that code.

use core::ops::Range;

use tiptoe_sys::raw::nr;
use tiptoe_uprobe::feed::call::Call;
use tiptoe_uprobe::patcher::{self, OtherThreads};
use tiptoe_wire::Site;

use crate::memory;
use crate::program_call::{self, Frame};
use crate::shared;
use crate::text::SelfMemory;

/// Returns the range that a call is about to move, if it has patches.
pub fn moved_by(call: &Call) -> Option<Range<u64>> {
    let Call::Move { from, len, .. } = call else {
        return None;
    };
    // If the old length is 0, the call copies as much as the new length says.
    let end = from.end.max(from.start.saturating_add(*len));
    let code = from.start..end;
    shared::get()?.table.meets(&code).then_some(code)
}

#[cold]
#[inline(never)] // because the patcher's buffers must not be on the stack of other calls' hooks
pub fn make_move(frame: &Frame, code: &Range<u64>) -> i64 {
    // Patched pages were split off into mappings of their own. Before Linux 6.17, only one mapping can be moved.
    memory::split_mapping(code.start as usize, code.end as usize);
    let result = program_call::perform(nr::MREMAP, frame);
    if let Ok(at) = u64::try_from(result)
        && at != code.start
    {
        restore_at(at, code);
        note_copy(code.clone());
    }
    result
}

fn restore_at(at: u64, code: &Range<u64>) {
    let Some(shared) = shared::get() else { return };
    let text = SelfMemory::open();
    for site in shared
        .table
        .all()
        .filter(|site| code.contains(&site.address))
    {
        let moved = Site {
            address: site.address - code.start + at,
            ..site
        };
        patcher::disarm(&text, &[moved], OtherThreads::Stopped);
    }
}

pub fn note_copy(code: Range<u64>) {
    if let Some(shared) = shared::at_home()
        && shared.table.meets(&code)
        && let Some(data) = shared.data()
    {
        data.put_unpatched(code);
    }
}
