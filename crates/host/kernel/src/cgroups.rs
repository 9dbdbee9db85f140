//! Counts for any number of cgroups with one set of per-CPU events.
//!
//! - **By tasks** (`bpf/cgroup_tasks.bpf.c`): BPF programs *charge* a task's cgroup: they add what the kernel counts
//!   in the task to the cgroup's counts. If events or [`ExtraCounts`] need more, or too many tasks begin and end,
//!   counting is at switches.
//! - **At switches** (`bpf/cgroups.bpf.c`): at each switch, a BPF program charges the previous task's cgroup for the
//!   CPU's work. The cgroups' counts add up to the system's, because each CPU's events count all the time.
//!
//! For both:
//!
//! - [`Cgroups::read`] makes the programs charge for all running tasks, then reads shared memory, where each cgroup
//!   has an index (*slot*).
//! - A cgroup's counts exclude its descendants', which the caller must add ([`Tree::line`]).
//! - New cgroups count from their first task on; removed cgroups stay readable until [`Cgroups::forget`].
//! - When a running task is moved, the programs charge for all running tasks; [`CountFaults`] counts charges that
//!   came too late.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use aya::Ebpf;
use aya::maps::{Array, HashMap, Queue};
use tiptoe_sys::host::bpf::MappedArray;
use tiptoe_sys::host::capabilities::in_first_pid_namespace;
use tiptoe_sys::host::procfs::switches_of_all;
use tiptoe_sys::raw::monotonic_ns;

use crate::programs::{self, Link, Ring, array_fd, attach, program_fd, typed_map, typed_map_mut};
use crate::refusal::bpf_refusal;
use crate::{CounterRefusal, CounterSet, Error};

mod cgroups_layout;
mod flush;
mod follow;
mod lives;
mod load;
mod names;

pub use cgroups_layout::{CountFaults, CpuCounts, SwitchTimes, TaskLine, Times};
pub use names::{Node, Tree};

use cgroups_layout::{CgroupChange, FIRST, IDLE, OTHERS};
use flush::over_tasks;
use follow::Follower;
use lives::LivesMeter;
use load::{
    ATTACHED, CREATED, MIGRATED, REMOVED, SEEDED, SWITCHED, Shape, all_cpus, give_slots, load,
    put_events,
};

pub(crate) use cgroups_layout::{LINE, ROUND};
pub(crate) use flush::{ALL_TASKS, Flush};
pub(crate) use load::{BORN, ENDED, ENDING, load_iterator, most_tasks};

const LOAD: &str = "load the BPF programs that count for cgroups";
const READ: &str = "read the counts of cgroups";

/// The most events.
pub const MOST_EVENTS: usize = 32;

/// What to count besides time, faults and switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtraCounts {
    /// Whether to count tasks' moves between CPUs.
    pub has_migrations: bool,
    /// Whether to count switches to another cgroup.
    pub has_cgroup_switches: bool,
    /// Whether each count is per CPU.
    pub per_cpu: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CountingMode {
    ByTasks,
    AtSwitches,
}

/// Counts for all version 2 cgroups.
#[derive(Debug)]
pub struct Cgroups {
    bpf: Ebpf,
    how: CountingMode,
    cpus: usize,
    shape: Shape,
    links: Vec<Link>,
    ending: Option<Link>,
    wanted: ExtraCounts,
    flush: Arc<Flush>,
    spare: usize,
    lines: MappedArray,
    counted: Option<MappedArray>,
    owners: MappedArray,
    /// Each slot's nonzero sums when its cgroup's count started.
    before: BTreeMap<u32, Vec<CpuCounts>>,
    /// Ids of cgroups outside `root`.
    elsewhere: BTreeSet<u64>,
    tree: Tree,
    root: PathBuf,
    follower: Option<Follower>,
    /// The system's switches before and after the start, to check counts by tasks.
    begun: Option<[u64; 2]>,
    unended: u64,
    off: [u64; 2],
}

/// The tasks that counts belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CountOwner {
    /// A cgroup's own tasks.
    Cgroup(u64),
    /// Idle tasks. Their switches and the events of interrupts are counted, but not their time.
    Idle,
    /// Cgroups that found no free slot.
    Others,
}

/// The counts of one [`CountOwner`].
#[derive(Clone, Debug)]
pub struct TaskCounts {
    /// The owner.
    pub whose: CountOwner,
    /// The counts by CPU. Counting by tasks puts all into the first entry, because a task's fields do not name the
    /// CPU.
    pub cpus: Vec<CpuCounts>,
}

impl Cgroups {
    /// Prepares to count `events`, which count whole CPUs and may be empty. `root` is the tree's mount point.
    pub fn load(
        events: &CounterSet,
        wanted: ExtraCounts,
        tree: &Tree,
        root: &Path,
    ) -> Result<Cgroups, Error> {
        let count = events.everywhere().iter().flatten().count();
        if count > MOST_EVENTS {
            let most = MOST_EVENTS;
            return Err(CounterRefusal::ManyEvents { count, most }.into());
        }
        // In a container's PID namespace, a run over all tasks misses some.
        let has_all_by_tasks = count == 0 && !wanted.has_cgroup_switches && !wanted.per_cpu;
        let by_tasks = has_all_by_tasks && in_first_pid_namespace();
        let at_switches = || Cgroups::load_as(CountingMode::AtSwitches, events, wanted, tree, root);
        let meter = LivesMeter::start();
        let loaded =
            by_tasks.then(|| Cgroups::load_as(CountingMode::ByTasks, events, wanted, tree, root));
        match loaded {
            // Loading takes tens of milliseconds, long enough to measure births.
            Some(Ok(cgroups)) if meter.are_many() => Ok(at_switches().unwrap_or(cgroups)),
            Some(Ok(cgroups)) => Ok(cgroups),
            // Loading fails if the kernel's `task_struct` lacks a field.
            Some(Err(_)) | None => at_switches(),
        }
    }

    fn load_as(
        how: CountingMode,
        events: &CounterSet,
        wanted: ExtraCounts,
        tree: &Tree,
        root: &Path,
    ) -> Result<Cgroups, Error> {
        let count = events.everywhere().iter().flatten().count();
        let shape = Shape::of(how, tree.len(), count)?;
        let mut bpf = load(how, shape)?;
        put_events(&bpf, events)?;
        give_slots(&mut bpf, shape, tree)?;
        let mapped = |name: &str, words: usize| {
            let mapped = MappedArray::new(array_fd(&bpf, name)?, words);
            mapped.map_err(Error::io(format!("map the BPF array `{name}`")))
        };
        let lines = shape.cpus as usize * shape.slots as usize;
        let counted = || mapped("counted", lines * count * cgroups_layout::COUNTED);
        Ok(Cgroups {
            lines: mapped("lines", lines * cgroups_layout::LINE)?,
            counted: (how == CountingMode::AtSwitches)
                .then(counted)
                .transpose()?,
            owners: mapped("owners", shape.slots as usize)?,
            flush: Arc::new(Flush::of(&bpf)?),
            bpf,
            how,
            cpus: all_cpus()?,
            shape,
            links: Vec::new(),
            ending: None,
            wanted,
            spare: shape.slots as usize - FIRST as usize - tree.len(),
            before: BTreeMap::new(),
            elsewhere: BTreeSet::new(),
            tree: tree.clone(),
            root: root.to_owned(),
            follower: None,
            begun: None,
            unended: 0,
            off: [0; 2],
        })
    }

    /// Starts counting.
    pub fn start(&mut self) -> Result<(), Error> {
        let ring = Ring::take(&mut self.bpf, "news", LOAD)?;
        self.follower = Some(Follower::start(ring, self.flush.clone())?);
        for place in [CREATED, REMOVED] {
            self.links.push(attach(&mut self.bpf, place)?);
        }
        // Finds changes before the programs were attached.
        self.tree.visit_again(&self.root);
        let before = switches_of_all().ok();
        match self.how {
            CountingMode::ByTasks => self.start_by_tasks()?,
            CountingMode::AtSwitches => self.start_at_switches()?,
        }
        for slot in 0..self.shape.slots {
            if slot < FIRST || self.owners.word(slot as usize) != 0 {
                self.begin(slot);
            }
        }
        let after = switches_of_all().ok();
        self.begun = before.zip(after).map(<[u64; 2]>::from);
        Ok(())
    }

    fn start_by_tasks(&mut self) -> Result<(), Error> {
        for place in [BORN, ENDED, ATTACHED] {
            self.links.push(attach(&mut self.bpf, place)?);
        }
        self.ending = Some(attach(&mut self.bpf, ENDING)?);
        let mut begun: Array<_, u64> = typed_map_mut(&mut self.bpf, "begun", LOAD)?;
        let set = begun.set(0, monotonic_ns(), 0);
        set.map_err(|error| bpf_refusal(LOAD, &error))?;
        self.flush.now()
    }

    fn start_at_switches(&mut self) -> Result<(), Error> {
        if self.wanted.has_migrations {
            self.links.push(attach(&mut self.bpf, MIGRATED)?);
        }
        self.links.push(attach(&mut self.bpf, SWITCHED)?);
        over_tasks(program_fd(&self.bpf, SEEDED, LOAD)?)?;
        self.flush.now()?;
        self.links.push(attach(&mut self.bpf, ATTACHED)?);
        self.flush.now()
    }

    /// Records and returns a slot's present sums, from which its cgroup's count starts.
    fn begin(&mut self, slot: u32) -> Vec<CpuCounts> {
        let now = self.slot(slot);
        let none = CpuCounts {
            line: TaskLine::default(),
            events: vec![Default::default(); self.shape.events as usize],
        };
        match now.iter().all(|charged| *charged == none) {
            true => self.before.remove(&slot),
            false => self.before.insert(slot, now.clone()),
        };
        now
    }

    /// Ends counting; counts stay readable.
    pub fn stop(&mut self) -> Result<(), Error> {
        let before = switches_of_all().ok();
        // `last` must not wait for tasks that end from now on.
        self.ending = None;
        self.unended = self.flush.last()?;
        if self.how == CountingMode::ByTasks {
            self.check(before);
        }
        while self.links.pop().is_some() {}
        if let Some(follower) = self.follower.take() {
            self.note(follower.end());
        }
        Ok(())
    }

    /// Compares the tasks' switches with the system's, which numbered `before` when the last reading began.
    fn check(&mut self, before: Option<u64>) {
        let all = (0..self.shape.slots).flat_map(|slot| self.since_start(slot));
        let counted = all.fold(0_u64, |sum, did| sum.wrapping_add(did.line.switches));
        let (Some([first, begun]), Some(before), Some(now)) =
            (self.begun, before, switches_of_all().ok())
        else {
            return;
        };
        let (least, most) = (before.saturating_sub(begun), now.saturating_sub(first));
        self.off = [least.saturating_sub(counted), counted.saturating_sub(most)];
    }

    /// Returns all counts since the start.
    pub fn read(&mut self) -> Result<Vec<TaskCounts>, Error> {
        if !self.links.is_empty() {
            self.flush.now()?;
        }
        let mut did = vec![(CountOwner::Idle, IDLE), (CountOwner::Others, OTHERS)];
        for slot in FIRST..self.shape.slots {
            match self.owners.word(slot as usize) {
                0 => {}
                id => did.push((CountOwner::Cgroup(id), slot)),
            }
        }
        self.hear();
        let unknown = did.iter().filter_map(|(whose, _)| match whose {
            CountOwner::Cgroup(id) if self.tree.get(*id).is_none() => Some(*id),
            _ => None,
        });
        let unknown: BTreeSet<u64> = unknown.collect();
        if !unknown.is_subset(&self.elsewhere) {
            self.tree.visit_again(&self.root);
            self.elsewhere = unknown;
        }
        let did = did.into_iter().map(|(whose, slot)| {
            let mut cpus = self.since_start(slot);
            cpus.resize(self.cpus, CpuCounts::default());
            TaskCounts { whose, cpus }
        });
        Ok(did.collect())
    }

    /// Returns the cgroups as of the last reading.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns the number of free slots.
    pub fn spare(&self) -> usize {
        self.spare
    }

    /// Forgets removed cgroups and frees their slots. Returns their counts.
    pub fn forget(&mut self, ids: &[u64]) -> Result<Vec<(u64, Vec<CpuCounts>)>, Error> {
        let failed = |error| bpf_refusal(READ, &error);
        let mut did = Vec::new();
        for id in ids {
            let slots: HashMap<_, u64, u32> = typed_map(&self.bpf, "slot_of", READ)?;
            let slot = slots.get(id, 0).ok();
            self.tree.forget(*id);
            let Some(slot) = slot else { continue };
            let before = self.before.remove(&slot);
            did.push((*id, since(self.begin(slot), before.as_deref())));
            let mut slots: HashMap<_, u64, u32> = typed_map_mut(&mut self.bpf, "slot_of", READ)?;
            slots.remove(id).map_err(failed)?;
            let mut owners: Array<_, u64> = typed_map_mut(&mut self.bpf, "owners", READ)?;
            owners.set(slot, 0, 0).map_err(failed)?;
            let mut free: Queue<_, u32> = typed_map_mut(&mut self.bpf, "free_slots", READ)?;
            free.push(slot, 0).map_err(failed)?;
        }
        Ok(did)
    }

    /// Returns what may be wrong with the counts, and the programs' time.
    pub fn checks(&self) -> Result<(CountFaults, Times), Error> {
        let (mut checks, mut times) = Default::default();
        if !self.flush.add(&mut checks, &mut times) {
            let states: Array<_, [u64; cgroups_layout::CPU]> =
                typed_map(&self.bpf, "states", READ)?;
            for cpu in 0..self.shape.cpus {
                let state = states.get(&cpu, 0);
                let state = state.map_err(|error| bpf_refusal(READ, &error))?;
                cgroups_layout::add_cpu(state, &mut checks, &mut times.switches);
            }
        }
        [checks.hidden, checks.surplus] = self.off;
        checks.unended = self.unended;
        checks.lost_reports = u64::from(programs::first_word(&self.bpf));
        checks.missed = programs::all(&self.bpf).map(programs::missed).sum();
        Ok((checks, times))
    }

    /// Records the cgroups created and removed since the last reading.
    pub fn hear(&mut self) {
        let Some(follower) = &self.follower else {
            return;
        };
        let changes: Vec<(Instant, CgroupChange)> = follower.changes().collect();
        self.note(changes);
    }

    fn note(&mut self, changes: Vec<(Instant, CgroupChange)>) {
        for (at, change) in changes {
            match change {
                // Reported paths start at the system's root. A tree with another root is walked.
                CgroupChange::Created(..) if !self.tree.is_whole() => {}
                CgroupChange::Created(id, path) => self.tree.add_since(id, &path, at),
                CgroupChange::Removed(id) => self.tree.remove(id),
                CgroupChange::Moved => {}
            }
        }
    }

    fn since_start(&self, slot: u32) -> Vec<CpuCounts> {
        since(self.slot(slot), self.before.get(&slot).map(Vec::as_slice))
    }

    fn slot(&self, slot: u32) -> Vec<CpuCounts> {
        let (slots, events) = (self.shape.slots as usize, self.shape.events as usize);
        let cpus = 0..self.shape.cpus as usize;
        cpus.map(|cpu| {
            let line = cpu * slots + slot as usize;
            let counted = self.counted.iter().flat_map(|counted| {
                let first = line * events;
                (first..first + events).map(|at| counted.words(at * cgroups_layout::COUNTED))
            });
            CpuCounts::read(self.lines.words(line * cgroups_layout::LINE), counted)
        })
        .collect()
    }
}

fn since(now: Vec<CpuCounts>, before: Option<&[CpuCounts]>) -> Vec<CpuCounts> {
    match before {
        Some(before) => {
            let both = now.into_iter().zip(before);
            both.map(|(now, before)| now.since(before)).collect()
        }
        None => now,
    }
}
