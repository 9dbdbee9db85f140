//! Installs the guards: hooks that keep threads from blocking SIGTRAP and SIGILL. They must be in
//! place before the first trap byte, because a trap kills a process whose thread blocks its signal.
//!
//! A program may block the signals by system calls that no hook sees. Then no trap byte may ever be
//! written: only sites that need none are patched. If one write does not suffice, all threads are
//! stopped.

use tiptoe_attach::inject::{HookedCall, MaskFailure, Masks};
use tiptoe_attach::link::Link;

use super::arm::{addresses_of, patch, write_trampolines};
use crate::error::{Error, Reason};
use crate::planner::{HookLocation, PatchPlan, PlannedSite};

/// A process in which no trap byte may be written.
#[derive(Clone, Debug)]
pub(super) struct TrapFreeProcess {
    pub(super) masks: Masks,
    pub(super) why: Reason,
}

/// Writes trampolines and arms sites. Returns for each site why it is not armed.
pub(super) fn install(
    link: &Link,
    planned: &[&PlannedSite],
    lost: &[u64],
    quiet: Option<&TrapFreeProcess>,
) -> Result<Vec<Option<Reason>>, Error> {
    let order = write_trampolines(link, planned, lost)?;
    let Some(TrapFreeProcess { masks, why }) = quiet else {
        return patch(link, planned, &order);
    };
    let (quiet, loud): (Vec<usize>, Vec<usize>) = order
        .into_iter()
        .partition(|at| planned[*at].site.is_quiet());
    let (words, others): (Vec<usize>, Vec<usize>) = quiet
        .into_iter()
        .partition(|at| planned[*at].site.fits_word());
    let mut reasons = patch(link, planned, &words)?;
    if !others.is_empty() {
        let still = masks.hold(|| link.while_still(|| patch(link, planned, &others)));
        let more = still.map_err(cannot_stop)??;
        others
            .iter()
            .for_each(|at| reasons[*at].clone_from(&more[*at]));
    }
    for at in loud {
        reasons[at] = Some(Reason::NeedsTrapByte(Box::new(why.clone())));
    }
    Ok(reasons)
}

/// Arms the guards, and unblocks the signals in all threads. Returns the guards' addresses. Fails
/// if threads cannot be stopped; then no trap byte may be written.
pub(super) fn put_on(
    link: &Link,
    masks: &Masks,
    plan: &PatchPlan,
    lost: &[u64],
) -> Result<Vec<u64>, Error> {
    if let Some(name) = &plan.unhooked {
        return Err(Error::ReplacesBlock(name.clone()));
    }
    let guards = plan.hooks.iter().filter(|hook| hook.site.is_guard());
    let is_needed = |hook: &&PlannedSite| hook.location != HookLocation::Elsewhere;
    if guards
        .clone()
        .filter(is_needed)
        .any(|hook| !hook.has_room(lost))
    {
        return Err(Error::NoRoomForHooks);
    }
    let guards = guards.filter(|hook| hook.has_room(lost));
    let (words, others): (Vec<&PlannedSite>, Vec<&PlannedSite>) =
        guards.partition(|hook| hook.site.fits_word());
    let outcomes = install(link, &words, lost, None)?;
    let mut armed: Vec<u64> = addresses_of(&words, outcomes).collect();
    let order = write_trampolines(link, &others, lost)?;
    let hooks = words.iter().chain(&others);
    let ways: Vec<HookedCall> = hooks
        .map(|hook| (hook.site.address, hook.after_syscall))
        .collect();
    masks.own_pages(order.iter().map(|at| {
        let site = others[*at].site;
        site.address + u64::from(site.len) - 1
    }));
    let outcomes = masks.free_all(&ways, plan.restorer, || {
        link.while_still(|| patch(link, &others, &order))
    });
    armed.extend(addresses_of(&others, outcomes.map_err(cannot_stop)??));
    let mut storage = plan
        .hooks
        .iter()
        .filter(|hook| hook.location == HookLocation::Storage);
    match storage.find(|hook| !armed.contains(&hook.site.address)) {
        Some(hook) => {
            let code = format!("code at {:#x}", hook.site.address);
            Err(Error::ReplacesBlock(code))
        }
        None => Ok(armed),
    }
}

fn cannot_stop(why: MaskFailure) -> Error {
    match why {
        MaskFailure::NotStopped => Error::NotStopped,
        MaskFailure::ForeignBlock => Error::ForeignBlock,
    }
}
