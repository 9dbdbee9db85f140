//! Loads the BPF programs that count for cgroups, and fills their arrays.

use aya::maps::{Array, HashMap, Queue};
use aya::programs::Program;
use aya::{Btf, Ebpf, EbpfLoader};
use tiptoe_sys::host::bpf::put_event;
use tiptoe_sys::raw::monotonic_ns;

use crate::programs::{array_fd, load_program, load_typed, no_part, typed_map_mut};
use crate::refusal::bpf_refusal;
use crate::{CounterSet, Error};

use super::cgroups_layout::{self, FIRST};
use super::flush::{ALL_TASKS, FLUSH};
use super::{CountingMode, LOAD, Tree};

pub(super) const AT_SWITCHES: &[u8] = aya::include_bytes_aligned!("../../bpf/cgroups.bpf.o");
pub(super) const BY_TASKS: &[u8] = aya::include_bytes_aligned!("../../bpf/cgroup_tasks.bpf.o");

pub(super) const CREATED: [&str; 3] = ["made", "cgroup", "cgroup_mkdir"];
pub(super) const REMOVED: [&str; 3] = ["gone", "cgroup", "cgroup_rmdir"];
pub(super) const ATTACHED: [&str; 3] = ["attached", "cgroup", "cgroup_attach_task"];
pub(super) const MIGRATED: [&str; 3] = ["migrated", "sched", "sched_migrate_task"];
pub(super) const SWITCHED: [&str; 3] = ["switched", "sched", "sched_switch"];
pub(crate) const BORN: [&str; 3] = ["born", "sched", "sched_process_fork"];
pub(crate) const ENDING: [&str; 3] = ["ending", "sched", "sched_process_exit"];
pub(crate) const ENDED: [&str; 3] = ["ended", "sched", "sched_process_free"];
pub(super) const SEEDED: &str = "seeded";

/// If memory allows, there are `SPARE` more slots (places for counts) than cgroups, and at least `GROWTH` times as
/// many.
const SPARE: usize = 1024;
const GROWTH: usize = 4;
const FEWEST_TASKS: u64 = 1 << 16;
const MOST_TASKS: u64 = 1 << 22;
const MOST_BYTES: usize = 256 << 20;

#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) cpus: u32,
    pub(super) slots: u32,
    pub(super) events: u32,
}

impl Shape {
    pub(super) fn of(how: CountingMode, cgroups: usize, events: usize) -> Result<Shape, Error> {
        let cpus = match how {
            CountingMode::ByTasks => 1,
            CountingMode::AtSwitches => all_cpus()?,
        };
        let bytes =
            cpus * (cgroups_layout::LINE + cgroups_layout::COUNTED * events) * size_of::<u64>();
        let wanted = (cgroups * GROWTH).max(cgroups + SPARE);
        let slots = wanted.min((MOST_BYTES / bytes).max(cgroups + cgroups / 4));
        Ok(Shape {
            cpus: cpus as u32,
            slots: slots as u32 + FIRST,
            events: events as u32,
        })
    }
}

/// Returns how many tasks the map `known` has room for. A free place costs 16 bytes, a recorded task more.
pub(crate) fn most_tasks() -> u32 {
    let there = tiptoe_sys::host::procfs::tasks_of_all().unwrap_or_default();
    (there * GROWTH as u64).clamp(FEWEST_TASKS, MOST_TASKS) as u32
}

pub(super) fn all_cpus() -> Result<usize, Error> {
    aya::util::nr_cpus().map_err(|(_, source)| Error::io("count the CPUs")(source))
}

pub(super) fn load(how: CountingMode, shape: Shape) -> Result<Ebpf, Error> {
    let btf = Btf::from_sys_fs().map_err(|_| Error::NoBtf)?;
    match how {
        CountingMode::ByTasks => load_by_tasks(shape, &btf),
        CountingMode::AtSwitches => load_at_switches(shape, &btf),
    }
}

fn loader(btf: &Btf, slots: u32) -> EbpfLoader<'_> {
    let mut loader = EbpfLoader::new();
    loader
        .btf(Some(btf))
        .map_max_entries("owners", slots)
        .map_max_entries("slot_of", slots)
        .map_max_entries("free_slots", slots);
    loader
}

fn load_by_tasks(shape: Shape, btf: &Btf) -> Result<Ebpf, Error> {
    let mut bpf = loader(btf, shape.slots)
        .map_max_entries("lines", shape.slots)
        .map_max_entries("idle_switches", all_cpus()? as u32)
        .map_max_entries("known", most_tasks())
        .load(BY_TASKS)
        .map_err(|error| bpf_refusal(LOAD, &error))?;
    load_iterator(&mut bpf, ALL_TASKS, btf)?;
    for place in [CREATED, REMOVED, ATTACHED, BORN, ENDING, ENDED] {
        load_typed(&mut bpf, place, btf, LOAD)?;
    }
    Ok(bpf)
}

fn load_at_switches(shape: Shape, btf: &Btf) -> Result<Ebpf, Error> {
    let Shape {
        cpus,
        slots,
        events,
    } = shape;
    let lines = cpus * slots;
    let all_events = (cpus * events).max(1);
    let mut bpf = loader(btf, slots)
        .map_max_entries("states", cpus)
        .map_max_entries("lines", lines)
        .map_max_entries("counted", (lines * events).max(1))
        .map_max_entries("last", all_events)
        .override_global("cpus", &cpus, true)
        .override_global("slots", &slots, true)
        .override_global("events", &events, true)
        .override_global("began_ns", &monotonic_ns(), true)
        .load(AT_SWITCHES)
        .map_err(|error| bpf_refusal(LOAD, &error))?;
    load_program(&mut bpf, FLUSH, LOAD)?;
    load_iterator(&mut bpf, SEEDED, btf)?;
    for place in [CREATED, REMOVED, ATTACHED, MIGRATED, SWITCHED] {
        load_typed(&mut bpf, place, btf, LOAD)?;
    }
    Ok(bpf)
}

pub(crate) fn load_iterator(bpf: &mut Ebpf, name: &str, btf: &Btf) -> Result<(), Error> {
    match bpf.program_mut(name) {
        Some(Program::Iter(program)) => {
            let loaded = program.load("task", btf);
            loaded.map_err(|error| bpf_refusal(LOAD, &error))
        }
        _ => Err(no_part(name)),
    }
}

pub(super) fn put_events(bpf: &Ebpf, events: &CounterSet) -> Result<(), Error> {
    for (event, cpu, opened) in events.on_cpus() {
        let map = array_fd(bpf, &format!("event_{event}"))?;
        let put = put_event(map, cpu, opened);
        put.map_err(Error::io("have a BPF program read an event"))?;
    }
    Ok(())
}

pub(super) fn give_slots(bpf: &mut Ebpf, shape: Shape, tree: &Tree) -> Result<(), Error> {
    let failed = |error| bpf_refusal(LOAD, &error);
    let given: Vec<(u32, u64)> = (FIRST..).zip(tree.iter().map(|(id, _)| id)).collect();
    let mut slots: HashMap<_, u64, u32> = typed_map_mut(bpf, "slot_of", LOAD)?;
    for (slot, id) in &given {
        slots.insert(id, slot, 0).map_err(failed)?;
    }
    let mut owners: Array<_, u64> = typed_map_mut(bpf, "owners", LOAD)?;
    for (slot, id) in &given {
        owners.set(*slot, id, 0).map_err(failed)?;
    }
    let mut free: Queue<_, u32> = typed_map_mut(bpf, "free_slots", LOAD)?;
    for slot in FIRST + given.len() as u32..shape.slots {
        free.push(slot, 0).map_err(failed)?;
    }
    Ok(())
}
