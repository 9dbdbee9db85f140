//! Removes first the probes, then the *hooks* (intercepted calls), and last the *guards*, the hooks that keep SIGTRAP
//! and SIGILL unblocked ([`signals`]).

use core::sync::atomic::Ordering;

use tiptoe_sys::raw::futex;
use tiptoe_uprobe::patcher::{self, BATCH, OtherThreads, Outcome};
use tiptoe_wire::{Data, Plan, Site, SiteFlags, State};

use super::{EIO, by_batch, is_still_patched, other_threads, patched};
use crate::owner::is_owned;
use crate::ports;
use crate::session;
use crate::shared::Shared;
use crate::signals;
use crate::tasks;
use crate::text::SelfMemory;
use crate::watches;

/// Removes every probe. Takes all threads' slabs (blocks of counters) away and lets none claim another, so that a probe
/// that cannot be removed counts nowhere.
pub fn detach(shared: &Shared) -> u64 {
    watches::close();
    ports::close();
    let text = SelfMemory::open();
    let probes = |site: &Site| !site.flags.has(SiteFlags::HOOK);
    let whole = restore(shared, &text, OtherThreads::Running, probes);
    shared.claims.end();
    shared.set_gate(false);
    // If trap bytes (one-byte patches) are not allowed, `settle` restores the remaining sites with the threads stopped.
    if whole || is_quiet(shared) { 0 } else { EIO }
}

fn is_quiet(shared: &Shared) -> bool {
    !shared.plan().is_some_and(|plan| plan.allows_trap_bytes())
}

/// Restores the armed sites (patched places) that `which` selects. Returns whether all are restored.
fn restore(
    shared: &Shared,
    text: &SelfMemory,
    other_threads: OtherThreads,
    which: impl Fn(&Site) -> bool,
) -> bool {
    let mut whole = true;
    by_batch(
        armed(shared).filter(|(_, site)| which(site)),
        |indices, sites| {
            let outcomes = match other_threads {
                OtherThreads::Stopped => patcher::disarm(text, sites, other_threads),
                OtherThreads::Running => take_out(shared, text, sites),
            };
            for ((index, site), outcome) in indices.iter().zip(sites).zip(outcomes) {
                let is_patched = is_still_patched(text, site, outcome);
                shared.set_armed(*index, is_patched);
                whole &= !is_patched;
            }
        },
    );
    whole
}

/// Restores sites while threads run. If trap bytes are not allowed, a site whose removal needs a trap byte stays, and
/// is reported as if its memory could not be written.
pub(super) fn take_out(shared: &Shared, text: &SelfMemory, sites: &[Site]) -> [Outcome; BATCH] {
    const OTHERS: OtherThreads = OtherThreads::Running;
    let disarm = |sites| patched(shared, OTHERS, || patcher::disarm(text, sites, OTHERS));
    if !is_quiet(shared) {
        return disarm(sites);
    }
    let mut outcomes = [Outcome::Unmapped; BATCH];
    for (site, outcome) in sites.iter().zip(&mut outcomes) {
        if site.fits_word() {
            [*outcome, ..] = disarm(core::slice::from_ref(site));
        }
    }
    outcomes
}

/// Restores the guards whose removal needs no stopped threads. The next session takes over the rest.
fn restore_guards(shared: &Shared, text: &SelfMemory) {
    restore(shared, text, OtherThreads::Running, |site| {
        site.is_guard() && site.fits_word()
    });
}

fn armed(shared: &Shared) -> impl Iterator<Item = (usize, Site)> {
    (0..shared.table.len())
        .filter(|index| shared.is_armed(*index) && shared.is_live(*index))
        .filter_map(|index| Some((index, shared.table.site(index)?)))
}

/// Removes the hooks and gives the signals back, after the last probe was removed. The guards must be last
/// ([`signals`], steps 5 to 7). `reblock` makes tiptoe stop all threads and block the signals in the kernel's masks,
/// and returns whether the threads stay stopped until `answer`.
pub fn settle(shared: &Shared, reblock: impl FnOnce() -> OtherThreads, answer: impl FnOnce()) {
    signals::wait_until_none_pending();
    let text = SelfMemory::open();
    let is_left = |site: &Site| !site.flags.has(SiteFlags::STAYS) && !site.is_guard();
    let whole = restore(shared, &text, OtherThreads::Running, |site| {
        site.flags.has(SiteFlags::HOOK) && is_left(site)
    });
    let left = armed(shared).any(|(_, site)| is_left(&site));
    if !is_quiet(shared) && (left || !whole) || signals::has_signalfd() {
        return end(shared);
    }
    signals::wait_for_late();
    signals::wait_until_none_pending();
    let other_threads = reblock();
    signals::disown();
    if other_threads == OtherThreads::Stopped {
        restore(shared, &text, other_threads, |site| {
            is_left(site) || site.is_guard() && !site.fits_word()
        });
    }
    answer();
    restore_guards(shared, &text);
    // A signal may have arrived while the threads were stopped.
    signals::wait_until_none_pending();
    signals::send_held_process();
    signals::send_held_threads();
    end(shared);
}

pub fn end(shared: &Shared) {
    shared.arenas.unmap_unused();
    if let Some(data) = shared.data() {
        data.set_state(State::Dormant);
    }
    session::end(shared);
}

/// Reports to tiptoe that no trap byte is left, and waits for [`tiptoe_wire::Request::Settle`], at most 12 s. tiptoe
/// sends that request once it has stopped all threads, or has tried to for about 5 s. Returns whether tiptoe keeps the
/// threads stopped.
pub fn reblock(plan: &Plan, data: &Data, done: u64) -> OtherThreads {
    data.set_state(State::Unhooked);
    for _ in 0..12_000 {
        if plan.sequence() != done {
            return other_threads(plan);
        }
        let Some(owner) = data.owner() else { break };
        let word = owner.load(Ordering::Acquire); // Acquire: the kernel writes it when tiptoe dies
        if !is_owned(word) {
            break;
        }
        // This sleep is short, because tiptoe may keep all other threads stopped until the answer.
        let _ = futex::wait(owner, word, Some(1_000_000));
    }
    OtherThreads::Running
}

/// Removes the patches that a forked child inherited, and gives its signals back. Afterwards the child runs none of our
/// code, except open calls' return stubs and the sites that stay patched between sessions. If the child has several
/// threads, one may be inside a patch, so sites whose removal needs trap bytes stay, too.
pub fn restore_forked(shared: &Shared) {
    session::forget(shared);
    shared.claims.end();
    let text = SelfMemory::open();
    let other_threads = match tasks::count() {
        1 => OtherThreads::Stopped,
        _ => OtherThreads::Running,
    };
    let is_left = |site: &Site| !site.flags.has(SiteFlags::STAYS);
    if restore(shared, &text, other_threads, is_left) {
        signals::disown();
    }
}

/// Removes the patches that a forked child inherited, when tiptoe attaches to that child.
pub fn restore_attached(shared: &Shared) {
    let text = SelfMemory::open();
    restore(shared, &text, OtherThreads::Running, |site| {
        !site.flags.has(SiteFlags::STAYS) && !site.is_guard()
    });
    restore_guards(shared, &text);
    shared.arenas.unmap_unused();
    shared.claims.end();
}
