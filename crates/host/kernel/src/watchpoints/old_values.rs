//! Tracks the old values of watched variables. The value at the last hit is the next hit's old value if no store was
//! missed in between.
//!
//! | known | the program's `last` | becomes |
//! |---|---|---|
//! | `GAP` | invalid: stores are missed | `FIRST` or `FOLLOWED`, by tiptoe |
//! | `FIRST` | invalid | `FOLLOWED`, by the next hit |
//! | `FOLLOWED` | the variable's value | `GAP`, by tiptoe |
//!
//! While events are stopped, values are as unknown as in `GAP`.

use std::fs::File;
use std::os::unix::fs::FileExt;

use aya::Ebpf;
use aya::maps::Array;
use tiptoe_sys::host::perf::{Access, Breakpoint};

use super::watch_program::{PASS, not_passed};
use crate::Error;
use crate::programs::typed_map_mut;

const GAP: u64 = 0;
const FIRST: u64 = 1;
const FOLLOWED: u64 = 2;

/// Sets variables to `GAP`, because their events are about to be enabled or moved.
pub(super) fn begin_gap(bpf: &mut Ebpf, variables: &[(usize, Breakpoint)]) -> Result<(), Error> {
    let mut known = words(bpf, "known")?;
    variables
        .iter()
        .try_for_each(|(index, _)| known.set(*index as u32, GAP, 0).map_err(not_passed))
}

/// Reads values after all events were enabled. A value is valid only if no hit raced with the read.
///
/// A store is in memory microseconds before its trap, or milliseconds if a virtual machine stops the CPU. So the read
/// may see a store that is not counted yet. `reach_cpus` must interrupt each CPU that has an event. An earlier
/// store's trap precedes this interrupt, so the store is counted by then.
pub(super) fn end_gap(
    bpf: &mut Ebpf,
    memory: &File,
    variables: &[(usize, Breakpoint)],
    reach_cpus: impl FnOnce() -> std::io::Result<()>,
) -> Result<(), Error> {
    let mut before = Vec::new();
    for (index, at) in variables {
        let index = *index as u32;
        let hits = hits(bpf, index)?;
        let value = value(memory, at);
        words(bpf, "last")?
            .set(index, value.unwrap_or(0), 0)
            .map_err(not_passed)?;
        before.push((index, value.map(|_| hits)));
    }
    let is_reached = reach_cpus().is_ok();
    for (index, before) in before {
        let is_so = is_reached && before == Some(hits(bpf, index)?);
        let known = if is_so { FOLLOWED } else { FIRST };
        words(bpf, "known")?
            .set(index, known, 0)
            .map_err(not_passed)?;
    }
    Ok(())
}

fn value(memory: &File, at: &Breakpoint) -> Option<u64> {
    let mut bytes = [0; 8];
    let part = bytes.get_mut(..usize::from(at.len))?;
    (at.access != Access::Execute).then_some(())?;
    memory.read_exact_at(part, at.address).ok()?;
    Some(u64::from_le_bytes(bytes))
}

fn hits(bpf: &mut Ebpf, index: u32) -> Result<u64, Error> {
    words(bpf, "seen")?.get(&index, 0).map_err(not_passed)
}

fn words<'b>(
    bpf: &'b mut Ebpf,
    name: &'static str,
) -> Result<Array<&'b mut aya::maps::MapData, u64>, Error> {
    typed_map_mut(bpf, name, PASS)
}
