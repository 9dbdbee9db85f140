//! What each cgroup costs, by one set of plain events of CPUs, whatever the number of cgroups.
//!
//! A BPF program at the switch between tasks charges what a CPU did to the cgroup whose task it ran
//! (`bpf/cgroups.bpf.c` says how): time, faults and switches from the task's own fields at each switch, and the
//! events that are read where the cgroup changes. System-wide counts are the same counters, which nothing
//! reschedules: the sum over all cgroups is the system's.
//!
//! - [`Cgroups::read`] has each CPU charge what it does at that moment, and reads what was charged where it lies.
//! - Each cgroup's own tasks are counted; sums over those within it are made by [`Tree::line`].
//! - Cgroups that are made later are counted from their first task on, and named; those that are removed stay
//!   readable until [`Cgroups::forget`].
//! - A task that moves itself is charged exactly; where others are moved while they run, all CPUs are flushed at
//!   once. [`Checks`] counts where that came too late.
//! - Nothing stays attached when this is dropped, or tiptoe dies.
//!
//! Cost: 40 to 60 ns a switch, some 55 to 60 more for each event that is read (`tiptoe bench cgroup`).

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use aya::maps::{Array, HashMap, Queue, RingBuf};
use aya::programs::Program;
use aya::{Btf, Ebpf, EbpfLoader};
use tiptoe_sys::host::bpf::{MappedArray, put_event};
use tiptoe_sys::raw::monotonic_ns;

use crate::programs::{
    self, Link, array_fd, attach, load_program, load_typed, map, map_mut, no_part,
};
use crate::refusal::bpf_refusal;
use crate::{CounterSet, Error};

mod follow;
mod layout;
mod names;

pub use layout::{Charged, Checks, SwitchTimes};
pub use names::{Node, Tree};

use follow::{Follower, flush_all};
use layout::{FIRST, IDLE, News, OTHERS};

/// The programs, as clang made them. The macro aligns them as their reader wants it.
const PROGRAMS: &[u8] = aya::include_bytes_aligned!("../bpf/cgroups.bpf.o");
const LOAD: &str = "load the BPF programs that count for cgroups";
const READ: &str = "read what cgroups did";

/// What is attached, in this order: what happens to a task is told of when its CPU knows what it runs.
const MADE: [&str; 3] = ["made", "cgroup", "cgroup_mkdir"];
const GONE: [&str; 3] = ["gone", "cgroup", "cgroup_rmdir"];
const ATTACHED: [&str; 3] = ["attached", "cgroup", "cgroup_attach_task"];
const MIGRATED: [&str; 3] = ["migrated", "sched", "sched_migrate_task"];
const SWITCHED: [&str; 3] = ["switched", "sched", "sched_switch"];
const FLUSH: &str = "flush";
const SEEDED: &str = "seeded";

/// How many events can be read.
pub const MOST_EVENTS: usize = 32;
/// So many cgroups more than there are have a slot, and at least so many times as there are.
const SPARE: usize = 1024;
const GROWTH: usize = 4;
/// What slots may take, but for those that there are cgroups for.
const MOST_BYTES: usize = 256 << 20;

/// Counts for all cgroups of version 2.
#[derive(Debug)]
pub struct Cgroups {
    bpf: Ebpf,
    shape: Shape,
    links: Vec<Link>,
    has_migrations: bool,
    spare: usize,
    lines: MappedArray,
    counted: MappedArray,
    owners: MappedArray,
    /// What slots had when their cgroup's count began, each CPU's, where that was something.
    before: BTreeMap<u32, Vec<Charged>>,
    /// Cgroups that are below no mount point of ours.
    elsewhere: BTreeSet<u64>,
    tree: Tree,
    root: PathBuf,
    follower: Option<Follower>,
}

/// How the arrays are laid out.
#[derive(Clone, Copy, Debug)]
struct Shape {
    cpus: u32,
    slots: u32,
    events: u32,
}

/// Whose tasks did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    /// This cgroup's own.
    Cgroup(u64),
    /// The idle tasks': nothing, as they have no time; but switches, and what interrupts did.
    Idle,
    /// Those of cgroups that there were no slots for.
    Others,
}

/// What tasks did so far.
#[derive(Clone, Debug)]
pub struct Did {
    /// Whose.
    pub whose: Whose,
    /// On each CPU, by its number.
    pub cpus: Vec<Charged>,
}

impl Cgroups {
    /// Makes ready to count these events besides what tasks' own fields tell. Nothing is attached yet.
    ///
    /// `events` counts whole CPUs, and may be empty; `has_migrations` has moves between CPUs counted, too. The tree is
    /// that below the mount point `root`.
    pub fn load(
        events: &CounterSet,
        has_migrations: bool,
        tree: &Tree,
        root: &Path,
    ) -> Result<Cgroups, Error> {
        let count = events.everywhere().iter().flatten().count();
        if count > MOST_EVENTS {
            return Err(Error::Counter {
                what: format!("{count} events to read at each switch between cgroups"),
                hint: format!("{MOST_EVENTS} at most"),
            });
        }
        let shape = Shape::of(tree.len(), count)?;
        let mut bpf = load(shape)?;
        put_events(&bpf, events)?;
        give_slots(&mut bpf, shape, tree)?;
        let mapped = |name: &str, words: usize| {
            let mapped = MappedArray::new(array_fd(&bpf, name)?, words);
            mapped.map_err(|source| Error::Io {
                what: format!("map the BPF array `{name}`"),
                source,
            })
        };
        let lines = shape.cpus as usize * shape.slots as usize;
        Ok(Cgroups {
            lines: mapped("lines", lines * layout::LINE)?,
            counted: mapped("counted", lines * count * layout::COUNTED)?,
            owners: mapped("owners", shape.slots as usize)?,
            bpf,
            shape,
            links: Vec::new(),
            has_migrations,
            spare: shape.slots as usize - FIRST as usize - tree.len(),
            before: BTreeMap::new(),
            elsewhere: BTreeSet::new(),
            tree: tree.clone(),
            root: root.to_owned(),
            follower: None,
        })
    }

    /// Counts from now on.
    pub fn start(&mut self) -> Result<(), Error> {
        let ring = self.bpf.take_map("news").ok_or_else(|| no_part("news"))?;
        let ring = RingBuf::try_from(ring).map_err(|error| bpf_refusal(LOAD, &error))?;
        let flush = self.flush()?.try_clone_to_owned();
        let flush = flush.map_err(|source| Error::Io {
            what: "keep a BPF program".into(),
            source,
        })?;
        self.follower = Some(Follower::start(ring, flush)?);
        let migrated = self.has_migrations.then_some(MIGRATED);
        for place in [MADE, GONE].into_iter().chain(migrated) {
            self.links.push(attach(&mut self.bpf, place)?);
        }
        // What was made or removed until now nobody told.
        self.tree.visit_again(&self.root);
        self.links.push(attach(&mut self.bpf, SWITCHED)?);
        self.seed()?;
        // Each CPU knows now what it runs.
        flush_all(self.flush()?)?;
        self.links.push(attach(&mut self.bpf, ATTACHED)?);
        flush_all(self.flush()?)?;
        for slot in 0..self.shape.slots {
            if slot < FIRST || self.owners.word(slot as usize) != 0 {
                self.begin(slot);
            }
        }
        Ok(())
    }

    /// A slot's count begins with what is there; that is told.
    fn begin(&mut self, slot: u32) -> Vec<Charged> {
        let now = self.slot(slot);
        let none = Charged {
            events: vec![Default::default(); self.shape.events as usize],
            ..Charged::default()
        };
        match now.iter().all(|charged| *charged == none) {
            true => self.before.remove(&slot),
            false => self.before.insert(slot, now.clone()),
        };
        now
    }

    /// Ends counting; what was counted until now stays readable.
    pub fn stop(&mut self) -> Result<(), Error> {
        flush_all(self.flush()?)?;
        while self.links.pop().is_some() {}
        if let Some(follower) = self.follower.take() {
            self.note(follower.end());
        }
        Ok(())
    }

    /// What everybody did since the start, until now.
    pub fn read(&mut self) -> Result<Vec<Did>, Error> {
        if !self.links.is_empty() {
            flush_all(self.flush()?)?;
        }
        let mut did = vec![(Whose::Idle, IDLE), (Whose::Others, OTHERS)];
        for slot in FIRST..self.shape.slots {
            match self.owners.word(slot as usize) {
                0 => {}
                id => did.push((Whose::Cgroup(id), slot)),
            }
        }
        self.hear();
        let unknown = did.iter().filter_map(|(whose, _)| match whose {
            Whose::Cgroup(id) if self.tree.get(*id).is_none() => Some(*id),
            _ => None,
        });
        let unknown: BTreeSet<u64> = unknown.collect();
        if !unknown.is_subset(&self.elsewhere) {
            self.tree.visit_again(&self.root);
            self.elsewhere = unknown;
        }
        let did = did.into_iter().map(|(whose, slot)| Did {
            whose,
            cpus: self.since_start(slot),
        });
        Ok(did.collect())
    }

    /// The tree, as it was at the last reading.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// How many cgroups there is room for besides those that there were at the start.
    pub fn spare(&self) -> usize {
        self.spare
    }

    /// Gives away the slots of cgroups that were removed, and forgets these; what their own tasks did since the start.
    pub fn forget(&mut self, ids: &[u64]) -> Result<Vec<(u64, Vec<Charged>)>, Error> {
        let failed = |error| bpf_refusal(READ, &error);
        let mut did = Vec::new();
        for id in ids {
            let slots = HashMap::<_, u64, u32>::try_from(map(&self.bpf, "slot_of")?);
            let slot = slots.map_err(failed)?.get(id, 0).ok();
            self.tree.forget(*id);
            let Some(slot) = slot else { continue };
            let before = self.before.remove(&slot);
            // The next one's count begins where this one's ends.
            did.push((*id, since(self.begin(slot), before.as_deref())));
            let map = map_mut(&mut self.bpf, "slot_of")?;
            let mut slots = HashMap::<_, u64, u32>::try_from(map).map_err(failed)?;
            slots.remove(id).map_err(failed)?;
            let owners = Array::<_, u64>::try_from(map_mut(&mut self.bpf, "owners")?);
            let mut owners = owners.map_err(failed)?;
            owners.set(slot, 0, 0).map_err(failed)?;
            let free = Queue::<_, u32>::try_from(map_mut(&mut self.bpf, "free_slots")?);
            free.map_err(failed)?.push(slot, 0).map_err(failed)?;
        }
        Ok(did)
    }

    /// What went wrong so far, and what the programs took.
    pub fn checks(&self) -> Result<(Checks, SwitchTimes), Error> {
        let failed = |error| bpf_refusal(READ, &error);
        let states = Array::<_, [u64; layout::CPU]>::try_from(map(&self.bpf, "states")?);
        let states = states.map_err(failed)?;
        let (mut checks, mut times) = Default::default();
        for cpu in 0..self.shape.cpus {
            let state = states.get(&cpu, 0).map_err(failed)?;
            layout::add_cpu(&state, &mut checks, &mut times);
        }
        checks.untold = u64::from(programs::first_word(&self.bpf));
        checks.missed = programs::all(&self.bpf).map(programs::missed).sum();
        Ok((checks, times))
    }

    /// Notes what each task has that is there.
    fn seed(&mut self) -> Result<(), Error> {
        let failed = |error| bpf_refusal(LOAD, &error);
        let Some(Program::Iter(program)) = self.bpf.program_mut(SEEDED) else {
            return Err(no_part(SEEDED));
        };
        let id = program.attach().map_err(failed)?;
        let link = program.take_link(id).map_err(failed)?;
        let file = link.into_file();
        let mut file = file.map_err(|error| bpf_refusal(LOAD, &error))?;
        std::io::copy(&mut file, &mut std::io::sink()).map_err(|source| Error::Io {
            what: "list all tasks".into(),
            source,
        })?;
        Ok(())
    }

    /// Takes in which cgroups were made and removed since the last reading.
    pub fn hear(&mut self) {
        let Some(follower) = &self.follower else {
            return;
        };
        let news: Vec<(Instant, News)> = follower.news().collect();
        self.note(news);
    }

    fn note(&mut self, news: Vec<(Instant, News)>) {
        for (at, news) in news {
            match news {
                // Elsewhere than at the system's root, paths are found below our own.
                News::Made(..) if !self.tree.is_whole() => {}
                News::Made(id, path) => self.tree.add_since(id, &path, at),
                News::Gone(id) => self.tree.remove(id),
                News::Moved => {}
            }
        }
    }

    fn flush(&self) -> Result<std::os::fd::BorrowedFd<'_>, Error> {
        match self.bpf.program(FLUSH) {
            Some(Program::RawTracePoint(program)) => {
                let fd = program.fd().map_err(|error| bpf_refusal(LOAD, &error))?;
                Ok(fd.as_fd())
            }
            _ => Err(no_part(FLUSH)),
        }
    }

    fn since_start(&self, slot: u32) -> Vec<Charged> {
        since(self.slot(slot), self.before.get(&slot).map(Vec::as_slice))
    }

    /// What each CPU's line of a slot says.
    fn slot(&self, slot: u32) -> Vec<Charged> {
        let (slots, events) = (self.shape.slots as usize, self.shape.events as usize);
        let cpus = 0..self.shape.cpus as usize;
        cpus.map(|cpu| {
            let line = cpu * slots + slot as usize;
            Charged::read(
                |at| self.lines.word(line * layout::LINE + at),
                |at| {
                    let first = line * events * layout::COUNTED;
                    self.counted.word(first + at)
                },
                events,
            )
        })
        .collect()
    }
}

/// What came behind an earlier state.
fn since(now: Vec<Charged>, before: Option<&[Charged]>) -> Vec<Charged> {
    match before {
        Some(before) => {
            let both = now.into_iter().zip(before);
            both.map(|(now, before)| now.since(before)).collect()
        }
        None => now,
    }
}

impl Shape {
    fn of(cgroups: usize, events: usize) -> Result<Shape, Error> {
        let cpus = aya::util::nr_cpus().map_err(|(_, source)| Error::Io {
            what: "count the CPUs".into(),
            source,
        })?;
        let bytes = cpus * (layout::LINE + layout::COUNTED * events) * size_of::<u64>();
        let wanted = (cgroups * GROWTH).max(cgroups + SPARE);
        let slots = wanted.min((MOST_BYTES / bytes).max(cgroups + cgroups / 4));
        Ok(Shape {
            cpus: cpus as u32,
            slots: slots as u32 + FIRST,
            events: events as u32,
        })
    }
}

fn load(shape: Shape) -> Result<Ebpf, Error> {
    let failed = |error: &(dyn std::error::Error + 'static)| bpf_refusal(LOAD, error);
    let btf = Btf::from_sys_fs().map_err(|_| Error::NoBtf)?;
    let Shape {
        cpus,
        slots,
        events,
    } = shape;
    let lines = cpus * slots;
    let all_events = (cpus * events).max(1);
    let mut bpf = EbpfLoader::new()
        .btf(Some(&btf))
        .map_max_entries("states", cpus)
        .map_max_entries("lines", lines)
        .map_max_entries("counted", (lines * events).max(1))
        .map_max_entries("last", all_events)
        .map_max_entries("owners", slots)
        .map_max_entries("slot_of", slots)
        .map_max_entries("free_slots", slots)
        .override_global("cpus", &cpus, true)
        .override_global("slots", &slots, true)
        .override_global("events", &events, true)
        .override_global("began_ns", &monotonic_ns(), true)
        .load(PROGRAMS)
        .map_err(|error| failed(&error))?;
    load_program(&mut bpf, FLUSH, LOAD)?;
    match bpf.program_mut(SEEDED) {
        Some(Program::Iter(program)) => program.load("task", &btf).map_err(|e| failed(&e))?,
        _ => return Err(no_part(SEEDED)),
    }
    for place in [MADE, GONE, ATTACHED, MIGRATED, SWITCHED] {
        load_typed(&mut bpf, place, &btf, LOAD)?;
    }
    Ok(bpf)
}

/// Puts each event of each CPU where the programs read it.
fn put_events(bpf: &Ebpf, events: &CounterSet) -> Result<(), Error> {
    for (event, cpu, opened) in events.on_cpus() {
        let map = array_fd(bpf, &format!("event_{event}"))?;
        put_event(map, cpu, opened).map_err(|source| Error::Io {
            what: "have a BPF program read an event".into(),
            source,
        })?;
    }
    Ok(())
}

/// A slot for each cgroup that there is; the others are free.
fn give_slots(bpf: &mut Ebpf, shape: Shape, tree: &Tree) -> Result<(), Error> {
    let failed = |error| bpf_refusal(LOAD, &error);
    let given: Vec<(u32, u64)> = (FIRST..).zip(tree.iter().map(|(id, _)| id)).collect();
    let mut slots = HashMap::<_, u64, u32>::try_from(map_mut(bpf, "slot_of")?).map_err(failed)?;
    for (slot, id) in &given {
        slots.insert(id, slot, 0).map_err(failed)?;
    }
    let mut owners = Array::<_, u64>::try_from(map_mut(bpf, "owners")?).map_err(failed)?;
    for (slot, id) in &given {
        owners.set(*slot, id, 0).map_err(failed)?;
    }
    let mut free = Queue::<_, u32>::try_from(map_mut(bpf, "free_slots")?).map_err(failed)?;
    for slot in FIRST + given.len() as u32..shape.slots {
        free.push(slot, 0).map_err(failed)?;
    }
    Ok(())
}
