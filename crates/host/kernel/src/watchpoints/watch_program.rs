//! Loads the program at the breakpoints with its settings.

use std::os::fd::AsFd;

use aya::Ebpf;
use aya::maps::MapError;
use aya::programs::Program;

use super::opener::Opener;
use super::{MOST_CONDITIONS, WatchWanted, single_hits, watch_layout};
use crate::Error;
use crate::programs::{self, load_program, no_part};
use crate::refusal::bpf_refusal;

const WATCH: &[u8] = aya::include_bytes_aligned!("../../bpf/watch.bpf.o");
const PROGRAM: &str = "accessed";

pub(super) const EXEC: [&str; 3] = ["program_exec", "sched", "sched_process_exec"];

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
        loader.map_max_entries(single_hits::MAP, single_hits::LEAST);
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
    let program = match bpf.program_mut(PROGRAM) {
        Some(Program::PerfEvent(program)) => program,
        _ => return Err(no_part(PROGRAM)),
    };
    let loaded = program.load();
    loaded.map_err(|error| bpf_refusal(LOAD, &error))?;
    load_program(&mut bpf, EXEC[0], LOAD)?;
    Ok(bpf)
}

pub(super) fn opener(bpf: &Ebpf, in_kernel: bool) -> Result<Opener<'_>, Error> {
    let program = match bpf.program(PROGRAM) {
        Some(Program::PerfEvent(program)) => program.fd(),
        _ => return Err(no_part(PROGRAM)),
    };
    let program = program.map_err(|error| bpf_refusal(LOAD, &error))?.as_fd();
    Ok(Opener { program, in_kernel })
}

pub(super) fn failed(error: MapError) -> Error {
    bpf_refusal("read the accesses", &error)
}

pub(super) fn not_passed(error: MapError) -> Error {
    bpf_refusal("pass the program's code to the BPF program", &error)
}
