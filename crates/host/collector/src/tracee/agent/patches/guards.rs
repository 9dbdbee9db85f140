//! Installs the guards: hooks that keep threads from blocking SIGTRAP and SIGILL. The guards must be in place before
//! the first trap byte, because a trap in a thread that blocks the trap's signal kills the process.

use tiptoe_attach::inject::{HookedCall, Masks};
use tiptoe_attach::link::Link;

use super::site_writes::{addresses_of, cannot_stop, install, patch, write_trampolines};
use crate::error::Error;
use crate::planner::{HookLocation, PatchPlan, PlannedSite};

/// Patches the code for the guards, and unblocks the signals in all threads. Fails if threads cannot be stopped; no
/// trap byte may then be written.
pub fn put_on(
    link: &Link,
    masks: &Masks,
    plan: &PatchPlan,
    lost: &[u64],
) -> Result<Vec<u64>, Error> {
    if let Some(name) = &plan.unhooked {
        return Err(Error::ReplacesBlock(name.clone()));
    }
    let guards = plan.hooks.iter().filter(|hook| hook.site.is_guard());
    let (guards, roomless): (Vec<&PlannedSite>, Vec<&PlannedSite>) =
        guards.partition(|hook| hook.has_room(lost));
    let is_needed = |hook: &&PlannedSite| hook.location != HookLocation::Elsewhere;
    if roomless.iter().any(is_needed) {
        return Err(Error::NoRoomForHooks);
    }
    let (words, others): (Vec<&PlannedSite>, Vec<&PlannedSite>) =
        guards.into_iter().partition(|hook| hook.site.fits_word());
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
