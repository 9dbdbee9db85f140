//! Serves tiptoe's requests on the agent's thread.

use core::sync::atomic::Ordering;

use tiptoe_sys::raw;
use tiptoe_uprobe::patcher::{self, BATCH, OtherThreads, Outcome, Text};
use tiptoe_wire::calls::{MAX_THUNKS, THUNK_BYTES};
use tiptoe_wire::{AgentAddresses, Data, Hello, Plan, Request, Site};

use crate::calls;
use crate::clockwork::tiptoe_time_entry;
use crate::mask;
use crate::memory;
use crate::ports;
use crate::resolvers::Resolvers;
use crate::shared::Shared;
use crate::signals;
use crate::space;
use crate::stubs::{tiptoe_cold_entry, tiptoe_futex_entry, tiptoe_hook_entry, tiptoe_slow_entry};
use crate::text::SelfMemory;
use crate::tls;
use crate::watches;

mod leave;
pub mod library_patches;

use leave::take_out;
pub use leave::{detach, end, reblock, restore_attached, restore_forked, settle};

const EINVAL: u64 = 22;
const EIO: u64 = 5;

pub fn greet(shared: &Shared, data: &Data) {
    let (gate, thunks) = shared.words_of_trampolines();
    data.greet(&Hello {
        pid: shared.pid.load(Ordering::Relaxed), // constant within a session
        tls: tls::descriptor_offset(),
        addresses: AgentAddresses {
            cold_entry: tiptoe_cold_entry as *const () as u64,
            hook_entry: tiptoe_hook_entry as *const () as u64,
            slow_entry: tiptoe_slow_entry as *const () as u64,
            time_entry: tiptoe_time_entry as *const () as u64,
            futex_entry: tiptoe_futex_entry as *const () as u64,
            gate,
            thunks,
        },
    });
    let (at, len) = shared.lasting_range();
    data.set_kept(at, len);
    if let Some(owner) = data.owner() {
        raw::futex::wake(owner, u32::MAX);
    }
}

/// Returns whether the session has ended.
pub fn request(shared: &'static Shared, plan: &Plan, data: &Data, sequence: u64) -> bool {
    let Some((request, count)) = plan.request() else {
        answer(data, sequence, EINVAL);
        return false;
    };
    let outcome = match request {
        Request::Map => map(shared, plan, data, count),
        Request::Arm => arm(shared, plan, data, count),
        Request::ArmAgain => arm_again(shared, plan, data, count),
        Request::Recall => recall(shared, plan, data, count),
        Request::Toggle => toggle(shared, plan, data, count),
        Request::Disarm => disarm(shared, plan, data, count),
        Request::Resolve => resolve(plan, data, count),
        Request::Prepare => prepare(shared, data),
        Request::Settle => 0,
        Request::Thunks => thunks(shared, data, count),
        Request::Bury => bury(shared),
        Request::Unwinders => unwinders(shared, plan, count),
        Request::Described => {
            shared.described.set(count, |index| plan.address(index));
            0
        }
        Request::SplitMaps => {
            let ends = (0..count / 2).map(|pair| [2 * pair, 2 * pair + 1]);
            let ranges = ends.map(|ends| ends.map(|index| plan.address(index)));
            ranges.for_each(|[start, end]| memory::split_mapping(start as usize, end as usize));
            0
        }
        Request::ReadMaps => space::read(data),
        Request::Watch => library_patches::watch(shared, plan),
        Request::Libraries => library_patches::own(shared, plan, count),
        Request::Go => go(shared),
        Request::Observe => {
            signals::use_alternate_stacks();
            watches::observe(shared, plan, data, count)
        }
        Request::Turn => watches::turn(plan, data),
        Request::Ports => ports::open(shared, plan, data, count),
        Request::Detach => detach(shared),
    };
    answer(data, sequence, outcome);
    request == Request::Detach
}

pub fn answer(data: &Data, sequence: u64, outcome: u64) {
    data.answer(sequence, outcome);
    if let Some(word) = data.answered() {
        raw::futex::wake_low(word, u32::MAX);
    }
}

fn map(shared: &Shared, plan: &Plan, data: &Data, count: usize) -> u64 {
    for index in 0..count {
        let result = shared.arenas.map(&plan.map(index), shared.code());
        data.set_result(index, result.map_or_else(|errno| errno.0 as u64, |()| 0));
    }
    0
}

fn prepare(shared: &Shared, data: &Data) -> u64 {
    library_patches::begin(shared);
    shared.claims.begin();
    shared.set_gate(true);
    let outcome = signals::own(mask::TRAP) | signals::own(mask::ILL);
    data.set_result(0, tls::generation().into());
    let beginnings = tls::beginnings().into_iter().enumerate();
    beginnings.for_each(|(index, word)| data.set_result(1 + index, word));
    outcome
}

/// Maps the code, which tiptoe wrote, of `count` return thunks, to which some probed calls return. For 0, reports how
/// many are in use and how many exist.
fn thunks(shared: &Shared, data: &Data, count: usize) -> u64 {
    let (code, made) = (shared.thunk_code(), shared.thunks.made().1 as usize);
    if count == 0 {
        data.set_result(0, shared.thunks.used() as u64);
        data.set_result(1, made as u64);
        return 0;
    }
    let count = count.min(MAX_THUNKS);
    if count <= made {
        return 0;
    }
    shared.write_unwind_info();
    let from = shared.code().start + Plan::THUNKS as usize;
    let bytes = (count * THUNK_BYTES).next_multiple_of(memory::PAGE);
    if memory::replace_by_code(from, code, bytes).is_err() {
        return EIO;
    }
    SelfMemory::open().sync();
    shared.thunks.make(code as u64, count as u32);
    0
}

fn bury(shared: &'static Shared) -> u64 {
    calls::bury_dead(shared);
    0
}

fn unwinders(shared: &Shared, plan: &Plan, count: usize) -> u64 {
    (0..count).for_each(|number| shared.set_unwinder(number, plan.address(number)));
    0
}

fn go(shared: &Shared) -> u64 {
    shared.go.store(1, Ordering::Release); // pairs with the Acquire in `entry`
    raw::futex::wake(&shared.go, u32::MAX);
    0
}

/// Changes code while the loader maps nothing. If the other threads are stopped, no lock is needed. A forked child must
/// not wait for the lock, because a thread of the parent may have held the lock at the fork.
fn patched<R>(shared: &Shared, other_threads: OtherThreads, change: impl FnOnce() -> R) -> R {
    match other_threads {
        OtherThreads::Running if shared.is_home() => shared.libraries.while_mapped(change),
        OtherThreads::Running | OtherThreads::Stopped => change(),
    }
}

fn other_threads(plan: &Plan) -> OtherThreads {
    match plan.is_still() {
        true => OtherThreads::Stopped,
        false => OtherThreads::Running,
    }
}

/// Patches sites (places in the code), which must be in ascending order of address.
fn arm(shared: &Shared, plan: &Plan, data: &Data, count: usize) -> u64 {
    let text = SelfMemory::open();
    // tiptoe has just written the trampolines (the patches' code), which every CPU must fetch afresh.
    text.sync();
    let mut sites = (0..count).filter_map(|index| plan.site(index));
    if !sites.all(|site| shared.arenas.add(site.trampoline)) {
        return EINVAL;
    }
    let Ok(first) = shared.table.insert(count, |index| plan.site(index)) else {
        return EINVAL;
    };
    shared.publish_sites();
    space::add_sites(shared, data, count, |index| {
        Some((first + index, plan.site(index)?))
    });
    let sites = (0..count).map_while(|index| Some((index, plan.site(index)?)));
    by_batch(sites, |indices, sites| {
        // Read for each batch, because tiptoe lets stopped threads continue after a time-out.
        let others = other_threads(plan);
        let outcomes = patched(shared, others, || patcher::arm(&text, sites, others));
        for (index, outcome) in indices.iter().zip(outcomes) {
            data.set_result(*index, outcome as u64);
            shared.set_armed(first + index, outcome == Outcome::Done);
        }
    });
    signals::reinstall_handlers();
    0
}

/// Returns the sites at the first `count` addresses of tiptoe's plan, with their indices there.
fn listed(shared: &Shared, plan: &Plan, count: usize) -> impl Iterator<Item = (usize, Site)> {
    (0..count).map_while(|index| {
        let found = shared.table.find(plan.address(index))?;
        Some((index, found.site))
    })
}

/// If a site has several records, makes the table find the one whose trampoline the plan lists (in ascending order),
/// not the newest.
fn recall(shared: &Shared, plan: &Plan, data: &Data, count: usize) -> u64 {
    let is_listed = |site: &Site| {
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low.midpoint(high);
            match plan.address(middle) < site.trampoline {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low < count && plan.address(low) == site.trampoline
    };
    shared.table.recall(is_listed);
    space::add_sites(shared, data, shared.table.len(), |index| {
        Some((index, shared.table.site(index).filter(is_listed)?))
    });
    0
}

fn arm_again(shared: &Shared, plan: &Plan, data: &Data, count: usize) -> u64 {
    let text = SelfMemory::open();
    by_batch(listed(shared, plan, count), |indices, sites| {
        let others = other_threads(plan); // as in `arm`
        let outcomes = patched(shared, others, || patcher::arm(&text, sites, others));
        for (index, outcome) in indices.iter().zip(outcomes) {
            let found = shared.table.find(plan.address(*index));
            // The patch may be there already, because an earlier session could not remove it.
            let is_patched = found
                .as_ref()
                .is_some_and(|found| shared.is_armed(found.index));
            let done = is_patched || outcome == Outcome::Done;
            data.set_result(*index, if done { 0 } else { outcome as u64 });
            if let Some(found) = found {
                shared.set_library(found.index, None);
                shared.set_armed(found.index, done);
            }
        }
    });
    signals::reinstall_handlers();
    0
}

/// Restores the sites at the plan's addresses. The table must contain these sites, because the trap handler searches
/// the table.
fn disarm(shared: &Shared, plan: &Plan, data: &Data, count: usize) -> u64 {
    let text = SelfMemory::open();
    by_batch(listed(shared, plan, count), |indices, sites| {
        let outcomes = take_out(shared, &text, sites);
        for (index, outcome) in indices.iter().zip(outcomes) {
            data.set_result(*index, outcome as u64);
            if let Some(found) = shared.table.find(plan.address(*index)) {
                let is_patched = is_still_patched(&text, &found.site, outcome);
                shared.set_armed(found.index, is_patched);
            }
        }
    });
    0
}

/// Returns whether a patch remains because its memory, though mapped, could not be written.
fn is_still_patched(text: &SelfMemory, site: &Site, outcome: Outcome) -> bool {
    outcome == Outcome::Unmapped && text.read(site.address, &mut [0])
}

/// Restores sites and patches them again, `plan.times()` times. Skips a site while another tracer's patch covers it.
fn toggle(shared: &Shared, plan: &Plan, data: &Data, count: usize) -> u64 {
    let there = |index| data.result(index) != Outcome::Unmapped as u64;
    let well = |outcome: u64| outcome == 0 && (0..count).all(there);
    let one =
        || well(disarm(shared, plan, data, count)) && well(arm_again(shared, plan, data, count));
    if (0..plan.times()).all(|_| one()) {
        0
    } else {
        EIO
    }
}

/// Calls indirect functions' resolvers, which have no side effects. The result for any other address is 0.
fn resolve(plan: &Plan, data: &Data, count: usize) -> u64 {
    let text = SelfMemory::open();
    let mut resolvers = Resolvers::new(&text);
    for index in 0..count {
        let address = plan.address(index);
        let chosen = resolvers.contain(address).then(|| {
            // SAFETY: a resolver takes no arguments and returns a code address; the loader calls it in the same way.
            let resolver: extern "C" fn() -> u64 =
                unsafe { core::mem::transmute(address as usize) };
            resolver()
        });
        data.set_result(index, chosen.unwrap_or(0));
    }
    0
}

/// Patches again the sites whose first byte another tracer has overwritten.
pub fn rearm(shared: &Shared) {
    let text = SelfMemory::open();
    for index in 0..shared.table.len() {
        if shared.is_armed(index)
            && shared.is_live(index)
            && let Some(site) = shared.table.site(index)
            && patched(shared, OtherThreads::Running, || {
                patcher::rearm(&text, &site)
            })
            && let Some(data) = shared.data()
        {
            data.set_rearmed();
        }
    }
}

/// Calls `act` for at most [`BATCH`] sites at a time. Not inlined, because several calls' arrays would add up in one
/// stack frame.
#[inline(never)]
fn by_batch(all: impl Iterator<Item = (usize, Site)>, mut act: impl FnMut(&[usize], &[Site])) {
    let mut all = all.fuse();
    loop {
        let (mut indices, mut sites) = ([0; BATCH], [Site::default(); BATCH]);
        let mut len = 0;
        for ((index, site), next) in indices.iter_mut().zip(&mut sites).zip(&mut all) {
            (*index, *site) = next;
            len += 1;
        }
        match (indices.get(..len), sites.get(..len)) {
            (Some(indices), Some(sites)) if len > 0 => act(indices, sites),
            _ => return,
        }
    }
}
