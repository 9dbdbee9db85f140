//! Putting the program back: probes, then hooks, and the guards last.

use core::sync::atomic::Ordering;

use tiptoe_sys::raw::futex;
use tiptoe_uprobe::patcher::{self, BATCH, Manner, Outcome};
use tiptoe_wire::{Data, Plan, Site, SiteFlags, State};

use super::{EIO, by_batch, manner, still_stands};
use crate::ports;
use crate::shared::Shared;
use crate::signals;
use crate::tasks;
use crate::text::SelfMemory;
use crate::thread::is_owned;
use crate::watches;

/// Puts every probe back and shuts the gates; the hooks are [`settle`]'s. Whatever
/// cannot be put back finds no slab from here on, for the session's will go.
pub fn detach(shared: &Shared) -> u64 {
    watches::close();
    ports::close();
    let text = SelfMemory::open();
    let probes = |site: &Site| !site.flags.has(SiteFlags::HOOK);
    let whole = restore(shared, &text, Manner::Running, probes);
    shared.claims.end();
    shared.arenas.set_gates(false);
    // What needs still threads is left for `settle`.
    if whole || is_quiet(shared) { 0 } else { EIO }
}

/// Whether no trap byte may be written.
fn is_quiet(shared: &Shared) -> bool {
    !shared.plan().is_some_and(|plan| plan.allows_trap_bytes())
}

/// Puts back the armed sites that `which` names, a batch at a time; true where none of
/// them stands any more.
fn restore(
    shared: &Shared,
    text: &SelfMemory,
    manner: Manner,
    which: impl Fn(&Site) -> bool,
) -> bool {
    let mut whole = true;
    by_batch(
        armed(shared).filter(|(_, site)| which(site)),
        |indices, sites| {
            let outcomes = match manner {
                Manner::Still => patcher::disarm(text, sites, manner),
                Manner::Running => take_out(shared, text, sites),
            };
            for ((index, site), outcome) in indices.iter().zip(sites).zip(outcomes) {
                let stands = still_stands(text, site, outcome);
                shared.set_armed(*index, stands);
                whole &= !stands;
            }
        },
    );
    whole
}

/// Puts sites back while threads run. Where no trap byte may be written, those that need one are left, as if
/// their memory could not be written.
pub(super) fn take_out(shared: &Shared, text: &SelfMemory, sites: &[Site]) -> [Outcome; BATCH] {
    if !is_quiet(shared) {
        return patcher::disarm(text, sites, Manner::Running);
    }
    let mut outcomes = [Outcome::Unmapped; BATCH];
    for (site, outcome) in sites.iter().zip(&mut outcomes) {
        if site.fits_word() {
            let [one, ..] = patcher::disarm(text, core::slice::from_ref(site), Manner::Running);
            *outcome = one;
        }
    }
    outcomes
}

/// Puts back the hooks that may need trap bytes; true where none of them stands any more.
fn restore_trapping(shared: &Shared, text: &SelfMemory) -> bool {
    restore(shared, text, Manner::Running, |site| {
        site.flags.has(SiteFlags::HOOK) && !site.flags.has(SiteFlags::STAYS) && !site.is_guard()
    })
}

/// Puts back the guards that need no still threads. Others stay where threads run: without an
/// owner of the signals they only pass calls on, and the next session takes them over.
fn restore_guards(shared: &Shared, text: &SelfMemory) {
    restore(shared, text, Manner::Running, |site| {
        site.is_guard() && site.fits_word()
    });
}

/// The armed sites with their places in the table.
fn armed(shared: &Shared) -> impl Iterator<Item = (usize, Site)> {
    (0..shared.table.len())
        .filter(|index| shared.is_armed(*index) && shared.is_live(*index))
        .filter_map(|index| Some((index, shared.table.site(index)?)))
}

/// After the last probe is gone: takes the hooks out and gives the signals back. The guards
/// are last: no trap byte may stand without them, and no thread be on its way into our signal
/// handler. Before that `reblock` has tiptoe block for each thread what it believes to block; it
/// returns whether the threads stand still until `answer`.
pub fn settle(shared: &Shared, reblock: impl FnOnce() -> Manner, answer: impl FnOnce()) {
    signals::wait_until_none_pending();
    let text = SelfMemory::open();
    let whole = restore_trapping(shared, &text);
    // Trap bytes that could not be taken out still need their handler.
    let is_left = |site: &Site| !site.flags.has(SiteFlags::STAYS) && !site.is_guard();
    let left = armed(shared).any(|(_, site)| is_left(&site));
    if !is_quiet(shared) && (left || !whole) || signals::has_signalfd() {
        return end(shared);
    }
    signals::wait_until_none_pending();
    let manner = reblock();
    signals::disown();
    if manner == Manner::Still {
        restore(shared, &text, manner, |site| {
            is_left(site) || site.is_guard() && !site.fits_word()
        });
    }
    answer();
    restore_guards(shared, &text);
    // A signal may have come while the threads stood still.
    signals::wait_until_none_pending();
    signals::send_held_process();
    signals::send_held_threads();
    end(shared);
}

/// Ends the session.
pub fn end(shared: &Shared) {
    shared.unmap_unused_arenas();
    if let Some(data) = shared.data() {
        data.set_state(State::Dormant);
    }
    shared.close_session();
}

/// Reports to tiptoe that no trap byte is left and waits for [`Request::Settle`], as long as tiptoe lives but no longer
/// than 12 s: tiptoe tries for less to stop all threads. Returns whether tiptoe holds the threads still.
pub fn reblock(plan: &Plan, data: &Data, done: u64) -> Manner {
    data.set_state(State::Unhooked);
    for _ in 0..12_000 {
        if plan.sequence() != done {
            return manner(plan);
        }
        let Some(owner) = data.owner() else { break };
        let word = owner.load(Ordering::Acquire); // the kernel writes it when tiptoe dies
        if !is_owned(word) {
            break;
        }
        // Woken for the request: every thread of the program stands still until it is answered.
        let _ = futex::wait(owner, word, Some(1_000_000));
    }
    Manner::Running
}

/// Puts back all that a forked child inherited and gives its signals back, where it has one thread: no code of ours runs
/// there afterwards, but the return thunks of calls that it is in. With more threads, which may be in any patch, what needs trap
/// bytes stays.
pub fn forsake(shared: &Shared) {
    shared.forget_session();
    shared.claims.end();
    let text = SelfMemory::open();
    let manner = match tasks::is_only_one() {
        true => Manner::Still,
        false => Manner::Running,
    };
    let is_left = |site: &Site| !site.flags.has(SiteFlags::STAYS);
    if restore(shared, &text, manner, is_left) {
        signals::disown();
    }
}

/// A forked child that is attached for itself: what it inherited is put back
/// before anything else. Runs on the borrowed thread.
pub fn disown(shared: &Shared) {
    let text = SelfMemory::open();
    restore(shared, &text, Manner::Running, |site| {
        !site.flags.has(SiteFlags::STAYS) && !site.is_guard()
    });
    restore_guards(shared, &text);
    shared.claims.end();
}
