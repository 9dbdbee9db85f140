//! Writes trampolines (generated code), and arms sites (the patches that lead to trampolines).
//!
//! A program may block the signals of traps by system calls that are not hooked. In such a program, only sites that
//! need no trap byte are patched. If a site needs several writes, all threads are stopped for these writes.

use tiptoe_attach::inject::MaskFailure;
use tiptoe_attach::link::Link;
use tiptoe_wire::Site;

use crate::error::{Error, Reason};
use crate::planner::PlannedSite;
use crate::tracee::TrapFreeProcess;

/// Returns for each site why it is not armed.
pub fn install(
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

/// Returns the indexes of sites that can be armed, ordered by address.
pub fn write_trampolines(
    link: &Link,
    planned: &[&PlannedSite],
    lost: &[u64],
) -> Result<Vec<usize>, Error> {
    let mut order: Vec<usize> = (0..planned.len())
        .filter(|i| planned[*i].has_room(lost))
        .collect();
    order.sort_by_key(|index| planned[*index].site.address);
    let writes: Vec<(u64, &[u8])> = order
        .iter()
        .flat_map(|index| &planned[*index].writes)
        .map(|(address, bytes)| (*address, bytes.as_slice()))
        .collect();
    link.write_code(&writes)?;
    Ok(order)
}

/// The trampolines of the sites in `order` must have been written.
pub fn patch(
    link: &Link,
    planned: &[&PlannedSite],
    order: &[usize],
) -> Result<Vec<Option<Reason>>, Error> {
    let (again, fresh): (Vec<usize>, Vec<usize>) =
        order.iter().partition(|index| planned[**index].is_in_table);
    let sites: Vec<Site> = fresh.iter().map(|index| planned[*index].site).collect();
    let known: Vec<u64> = again
        .iter()
        .map(|index| planned[*index].site.address)
        .collect();
    let mut recalled: Vec<u64> = again
        .iter()
        .filter(|index| planned[**index].has_others)
        .map(|index| planned[*index].site.trampoline)
        .collect();
    recalled.sort_unstable();
    link.recall(&recalled)?;
    let mut reasons = vec![Some(Reason::NoTrampoline); planned.len()];
    let outcomes = link.arm(&sites)?.into_iter().chain(link.arm_again(&known)?);
    for (index, outcome) in fresh.into_iter().chain(again).zip(outcomes) {
        reasons[index] = reason(outcome);
    }
    Ok(reasons)
}

pub fn addresses_of<'a>(
    planned: &'a [&PlannedSite],
    outcomes: Vec<Option<Reason>>,
) -> impl Iterator<Item = u64> + 'a {
    let armed = planned
        .iter()
        .zip(outcomes)
        .filter(|(_, why)| why.is_none());
    armed.map(|(planned, _)| planned.site.address)
}

fn reason(outcome: u64) -> Option<Reason> {
    match outcome {
        0 => None,
        1 => Some(Reason::CodeDiffers),
        _ => Some(Reason::CodeUnwritable),
    }
}

pub fn cannot_stop(why: MaskFailure) -> Error {
    match why {
        MaskFailure::NotStopped => Error::NotStopped,
        MaskFailure::ForeignBlock => Error::ForeignBlock,
    }
}
