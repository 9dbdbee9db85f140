//! Records and patches the sites (places to patch) of loaded libraries, on the agent's thread.

use core::sync::atomic::Ordering::Relaxed;

use tiptoe_uprobe::patcher::{self, OtherThreads, Outcome};
use tiptoe_wire::{Data, Plan};

use super::{by_batch, patched};
use crate::libraries::{Library, answered};
use crate::shared::{NOWHERE, Shared};
use crate::text::SelfMemory;

/// Forgets an earlier session's libraries. Only the sites of closed libraries stay marked as not mapped.
pub fn begin(shared: &Shared) {
    let tagged = (0..shared.table.len()).filter(|index| shared.library_of(*index).is_some());
    for index in tagged {
        let live = shared.is_live(index);
        shared.set_library(index, (!live).then_some(NOWHERE));
        shared.set_armed(index, live && shared.is_armed(index));
    }
    shared.libraries.forget();
}

pub fn watch(shared: &Shared, plan: &Plan) -> u64 {
    shared.libraries.watch(plan.address(0));
    0
}

/// Records each site's library. An empty range means that the library was closed before tiptoe read its file.
pub fn own(shared: &Shared, plan: &Plan, count: usize) -> u64 {
    for index in 0..count {
        let here = plan.library(index);
        let number = shared
            .libraries
            .at(here.base)
            .filter(|_| here.start < here.end);
        let mut sites = 0;
        for index in shared.table.between(here.start, here.end) {
            shared.set_library(index, Some(number.unwrap_or(NOWHERE)));
            sites += 1;
        }
        match number.and_then(|number| shared.libraries.get(number)) {
            Some(library) => {
                // Relaxed: the loading thread reads these words after the answer.
                library.start.store(here.start, Relaxed);
                library.end.store(here.end, Relaxed);
                library.sites.store(sites, Relaxed);
            }
            None => shared.libraries.report_again(here.base),
        }
    }
    0
}

pub fn patch(shared: &Shared, data: &Data) {
    let text = SelfMemory::open();
    for (number, library) in shared.libraries.tasks() {
        let whole = patch_one(shared, &text, number, library);
        shared.libraries.end_task(library, whole);
    }
    answered(data);
}

/// Returns `false` if another library's sites were recorded at these addresses meanwhile.
fn patch_one(shared: &Shared, text: &SelfMemory, number: usize, library: &Library) -> bool {
    let [start, end, count] =
        [&library.start, &library.end, &library.sites].map(|word| word.load(Relaxed)); // Relaxed: our words
    let own = |index: &usize| shared.library_of(*index) == Some(number);
    let indices = || shared.table.between(start, end).filter(own);
    if indices().count() as u64 != count {
        return false;
    }
    let sites = indices().filter(|index| shared.is_armed(*index));
    let sites = sites.filter_map(|index| Some((index, shared.table.site(index)?)));
    by_batch(sites, |indices, sites| {
        let outcomes = patched(shared, OtherThreads::Running, || {
            patcher::arm(text, sites, OtherThreads::Running)
        });
        for (index, outcome) in indices.iter().zip(outcomes) {
            shared.set_armed(*index, outcome == Outcome::Done);
        }
    });
    true
}
