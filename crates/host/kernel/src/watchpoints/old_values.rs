//! Tracks a variable's old value: that of the last hit, if no store was missed since.
//!
//! | known | the program's `last` | becomes |
//! |---|---|---|
//! | `GAP` | invalid: stores are missed | `FIRST` or `FOLLOWED`, by tiptoe |
//! | `FIRST` | invalid | `FOLLOWED`, by the next hit |
//! | `FOLLOWED` | the variable's value | `GAP`, by tiptoe |
//!
//! While events are stopped, values are as in `GAP`.

use std::fs::File;
use std::os::unix::fs::FileExt;

use aya::Ebpf;
use aya::maps::Array;
use tiptoe_sys::host::Process;
use tiptoe_sys::host::perf::{Access, Breakpoint};

use super::watch_program::not_passed;
use crate::Error;
use crate::programs::map_mut;

const GAP: u64 = 0;
const FIRST: u64 = 1;
const FOLLOWED: u64 = 2;

#[derive(Debug)]
pub(super) struct Memory(File);

impl Memory {
    pub(super) fn open(process: Process) -> Result<Memory, Error> {
        Ok(Memory(process.open_memory()?))
    }

    /// Returns a variable's value; `None` if it is unreadable, or code.
    fn value(&self, at: &Breakpoint) -> Option<u64> {
        let mut bytes = [0; 8];
        let part = bytes.get_mut(..usize::from(at.len))?;
        (at.access != Access::Execute).then_some(())?;
        self.0.read_exact_at(part, at.address).ok()?;
        Some(u64::from_le_bytes(bytes))
    }
}

/// Sets variables to `GAP`, because their events are about to be enabled or moved.
pub(super) fn begin_gap(bpf: &mut Ebpf, variables: &[u32]) -> Result<(), Error> {
    let mut known = words(bpf, "known")?;
    variables
        .iter()
        .try_for_each(|index| known.set(*index, GAP, 0).map_err(not_passed))
}

/// Reads values after all events were enabled. A value is valid only if no hit raced with the read.
///
/// Memory shows a store microseconds before its trap, or milliseconds if a virtual machine stops the CPU. So
/// `reach_cpus` must interrupt each CPU that has an event: an earlier store's trap precedes the interrupt.
pub(super) fn end_gap(
    bpf: &mut Ebpf,
    memory: &Memory,
    variables: &[(u32, Breakpoint)],
    reach_cpus: impl FnOnce() -> std::io::Result<()>,
) -> Result<(), Error> {
    let mut before = Vec::new();
    for (index, at) in variables {
        let hits = hits(bpf, *index)?;
        let value = memory.value(at);
        words(bpf, "last")?
            .set(*index, value.unwrap_or(0), 0)
            .map_err(not_passed)?;
        before.push((*index, value.map(|_| hits)));
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

fn hits(bpf: &mut Ebpf, index: u32) -> Result<u64, Error> {
    words(bpf, "seen")?.get(&index, 0).map_err(not_passed)
}

fn words<'b>(
    bpf: &'b mut Ebpf,
    name: &'static str,
) -> Result<Array<&'b mut aya::maps::MapData, u64>, Error> {
    Array::try_from(map_mut(bpf, name)?).map_err(not_passed)
}
