//! Handles patched code that the program moves, or maps a second time elsewhere. A patch works only at its own address,
//! because its jump is relative, and the trap handler looks patches up by address. So code that mremap(2) moves gets
//! its original bytes back before the call returns. tiptoe is notified that hits of probes there are not counted.
//!
//! So that malloc's calls of mremap stay cheap, ranges without a site (a place to patch) are excluded first. Sites that
//! are not patched now are ignored: after dlclose(3) the program's data may be at a library's former sites.

use core::ops::Range;

use tiptoe_sys::raw::nr;
use tiptoe_uprobe::feed::call::Call;
use tiptoe_uprobe::patcher::{self, OtherThreads, Text};
use tiptoe_wire::Site;

use crate::memory;
use crate::program_call::{self, Frame};
use crate::shared::{self, Shared};
use crate::text::SelfMemory;

fn patches(shared: &Shared, code: &Range<u64>) -> impl Iterator<Item = (usize, Site)> {
    let is_inside =
        |site: &Site| site.address < code.end && code.start < site.address + u64::from(site.len);
    let is_patched = |index: usize| shared.is_armed(index) && shared.is_live(index);
    let met = shared.table.meets(code).then(|| shared.table.all());
    let sites = met.into_iter().flatten();
    sites.filter_map(move |(index, site)| {
        (is_inside(&site) && is_patched(index)).then_some((index, site))
    })
}

pub fn is_patched(code: &Range<u64>) -> bool {
    shared::get().is_some_and(|shared| patches(shared, code).next().is_some())
}

/// Returns the range that a call is about to move, if it has patches.
pub fn moved_by(call: &Call) -> Option<Range<u64>> {
    let Call::Move { from, len, .. } = call else {
        return None;
    };
    let old_len = from.end - from.start;
    // An old length of 0 maps the range once more. A smaller new length unmaps the rest of the old range.
    let len = if old_len == 0 {
        *len
    } else {
        old_len.min(*len)
    };
    let code = from.start..from.start.checked_add(len)?;
    is_patched(&code).then_some(code)
}

#[cold]
#[inline(never)] // so that the callers' other paths need no stack for the patcher's buffers
pub fn make_move(frame: &Frame, code: &Range<u64>) -> i64 {
    // Linux before 6.17 moves a range only if it is one mapping, but tiptoe gave each patched page a flag that makes it a
    // mapping of its own. If the whole range has this flag, it is one mapping again.
    memory::split_mapping(code.start as usize, code.end as usize);
    let result = program_call::perform(nr::MREMAP, frame);
    if let Ok(at) = u64::try_from(result)
        && at != code.start
    {
        restore_at(at, code, frame.rsi != 0);
        note(code.clone());
    }
    result
}

/// Code that no thread runs yet. `sync` does nothing, because one sync after all sites suffices.
struct UnusedCode<'a>(&'a SelfMemory);

impl Text for UnusedCode<'_> {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.0.read(address, bytes)
    }

    fn write(&self, address: u64, bytes: &[u8]) -> bool {
        self.0.write(address, bytes)
    }

    fn sync(&self) {}
}

/// Restores the sites of `code` at its new address `at`. `is_gone` means that the old address no longer has the code.
fn restore_at(at: u64, code: &Range<u64>, is_gone: bool) {
    let Some(shared) = shared::get() else { return };
    let memory = SelfMemory::open();
    let text = UnusedCode(&memory);
    for (index, site) in patches(shared, code) {
        let end = site.address + u64::from(site.len);
        let moved = |address: u64| address - code.start + at;
        if site.address >= code.start && end <= code.end {
            let site = Site {
                address: moved(site.address),
                ..site
            };
            patcher::disarm(&text, &[site], OtherThreads::Stopped);
            // The program may later map its data at the old address.
            if is_gone {
                shared.set_armed(index, false);
            }
            continue;
        }
        // Only a part of the patch was moved.
        let bytes = site.original.iter().zip(site.patched);
        for (address, (original, patched)) in (site.address..end).zip(bytes) {
            let mut now = [0];
            if code.contains(&address) && text.read(moved(address), &mut now) && now == [patched] {
                text.write(moved(address), &[*original]);
            }
        }
    }
    memory.sync();
}

/// Reports to tiptoe a range of patched code that was moved, mapped at a second address, or replaced by a new mapping of
/// its file.
pub fn note(code: Range<u64>) {
    if let Some(data) = shared::at_home().and_then(Shared::data) {
        data.put_unpatched(code);
    }
}
