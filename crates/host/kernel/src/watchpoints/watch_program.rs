//! Loads the BPF program of the breakpoints, with its settings.

use aya::Ebpf;
use aya::maps::MapError;

use super::opener::Opener;
use super::{MOST_CONDITIONS, WatchWanted, watch_layout};
use crate::Error;
use crate::programs::{self, load_program, program_fd};
use crate::refusal::bpf_refusal;

const WATCH: &[u8] = aya::include_bytes_aligned!("../../bpf/watch.bpf.o");
const PROGRAM: &str = "accessed";

pub(super) const EXEC: [&str; 3] = ["program_exec", "sched", "sched_process_exec"];

pub(super) const SINGLE_HITS: &str = "accesses";
/// The ring's size if single hits are not requested. The kernel refuses an empty ring.
const LEAST_RING: u32 = 4096;

const LOAD: &str = "load the BPF program that counts accesses";

pub(super) fn load(wanted: &WatchWanted) -> Result<Ebpf, Error> {
    let mut conditions = [0u64; 4 * MOST_CONDITIONS];
    let cells = conditions.chunks_exact_mut(4).zip(&wanted.conditions);
    for (cell, condition) in cells {
        let (left, _) = watch_layout::operand(condition.left);
        let (right, constant) = watch_layout::operand(condition.right);
        cell.copy_from_slice(&[left, condition.operator as u64, right, constant]);
    }
    let count = wanted.conditions.len().min(MOST_CONDITIONS) as u32;
    let flags = [wanted.by_thread, wanted.only_changed, wanted.one_by_one];
    let [by_thread, only_changed, one_by_one] = flags.map(u32::from);
    let mut loader = programs::loader();
    if !wanted.one_by_one {
        loader.map_max_entries(SINGLE_HITS, LEAST_RING);
    }
    loader
        .override_global("process", &wanted.pid, true)
        .override_global("by_thread", &by_thread, true)
        .override_global("only_changed", &only_changed, true)
        .override_global("one_by_one", &one_by_one, true)
        .override_global("conditions", &count, true)
        .override_global("condition", &conditions[..], true);
    let mut bpf = loader
        .load(WATCH)
        .map_err(|error| bpf_refusal(LOAD, &error))?;
    for program in [PROGRAM, EXEC[0]] {
        load_program(&mut bpf, program, LOAD)?;
    }
    Ok(bpf)
}

pub(super) fn opener(bpf: &Ebpf, in_kernel: bool) -> Result<Opener<'_>, Error> {
    let program = program_fd(bpf, PROGRAM, LOAD)?;
    Ok(Opener { program, in_kernel })
}

pub(super) const READ: &str = "read the accesses";
pub(super) const PASS: &str = "pass the program's code to the BPF program";

pub(super) fn failed(error: MapError) -> Error {
    bpf_refusal(READ, &error)
}

pub(super) fn not_passed(error: MapError) -> Error {
    bpf_refusal(PASS, &error)
}
