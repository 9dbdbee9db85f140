//! Maps the memory of trampolines.

use std::ops::Range;

use tiptoe_attach::link::Link;
use tiptoe_sys::host::limits::address_space;
use tiptoe_sys::host::procfs::Process;
use tiptoe_wire::arena;

use crate::error::Error;
use crate::planner::PatchPlan;

/// Maps arenas and callers' arenas; returns the bases of those that could not be mapped.
pub fn map(process: Process, link: &Link, plan: &PatchPlan) -> Result<Vec<u64>, Error> {
    // The gaps between arenas would use up a limited address space.
    let outcomes = match address_space(process) {
        Some(_) => vec![false; plan.ranges.len()],
        None => link.map_code(&plan.ranges)?,
    };
    let failed = plan.ranges.iter().zip(outcomes).filter(|(_, done)| !done);
    let failed: Vec<&Range<u64>> = failed.map(|(range, _)| range).collect();
    // The program may have mapped something between two arenas.
    let alone = plan.arenas.iter().map(|arena| arena.base);
    let alone = alone.filter(|base| failed.iter().any(|range| range.contains(base)));
    let alone: Vec<u64> = alone.collect();
    let ranges: Vec<Range<u64>> = alone.iter().map(|base| *base..base + arena::LEN).collect();
    let outcomes = link.map_code(&ranges)?;
    let code = alone.into_iter().zip(outcomes);
    let outcomes = link.map_callers(&plan.new_callers)?;
    let callers = plan.new_callers.iter().copied().zip(outcomes);
    let lost = code.chain(callers).filter(|(_, done)| !done);
    let lost: Vec<u64> = lost.map(|(base, _)| base).collect();
    let mapped = plan
        .arenas
        .iter()
        .filter(|arena| !lost.contains(&arena.base));
    let prologues = mapped.map(|arena| (arena::prologue(arena.base), arena.prologue.as_slice()));
    link.write_code(&prologues.collect::<Vec<_>>())?;
    Ok(lost)
}
