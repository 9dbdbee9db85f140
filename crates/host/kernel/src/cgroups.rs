//! What each cgroup costs, by one set of plain events of CPUs, whatever the number of cgroups.
//!
//! There are two ways, by what is wanted ([`Wanted`]):
//!
//! - **By tasks**: the kernel counts in each task how long it ran, its faults, its switches and its moves between
//!   CPUs. Where no more is wanted nothing runs at switches: tasks are charged with what they did since the last time
//!   when somebody reads, where one is moved to another cgroup, and when it has ended (`bpf/cgroup_tasks.bpf.c`).
//! - **At switches**: for events that must be read, and to tell CPUs apart, a BPF program at the switch between tasks
//!   charges what a CPU did to the cgroup whose task it ran (`bpf/cgroups.bpf.c`): time, faults and switches at each
//!   switch, and the events where the cgroup changes. System-wide counts are the same counters, which nothing
//!   reschedules: the sum over all cgroups is the system's.
//!
//! Of both:
//!
//! - [`Cgroups::read`] has everybody charged with what they did until then, and reads what was charged where it lies.
//! - Each cgroup's own tasks are counted; sums over those within it are made by [`Tree::line`].
//! - Cgroups that are made later are counted from their first task on, and named; those that are removed stay
//!   readable until [`Cgroups::forget`].
//! - A task that moves itself is charged exactly; where others are moved while they run, all are charged at once.
//!   [`Checks`] counts where that came too late.
//! - Nothing stays attached when this is dropped, or tiptoe dies.
//!
//! Cost: by tasks nothing at a switch, and some 0.2 us for each task when somebody reads; at switches 40 to 60 ns a
//! switch, some 55 to 60 more for each event that is read (`tiptoe bench cgroup`).

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use aya::Ebpf;
use aya::maps::{Array, HashMap, Queue, RingBuf};
use aya::programs::Program;
use tiptoe_sys::host::bpf::MappedArray;
use tiptoe_sys::host::capabilities::in_first_pid_namespace;
use tiptoe_sys::host::procfs::switches_of_all;
use tiptoe_sys::raw::monotonic_ns;

use crate::programs::{self, Link, array_fd, attach, map, map_mut, no_part};
use crate::refusal::bpf_refusal;
use crate::{CounterSet, Error};

mod follow;
mod layout;
mod load;
mod names;
mod settle;

pub use layout::{Charged, Checks, SwitchTimes, Times};
pub use names::{Node, Tree};

use follow::Follower;
use layout::{FIRST, IDLE, News, OTHERS};
use load::{
    ATTACHED, BORN, ENDED, ENDING, GONE, MADE, MIGRATED, SEEDED, SWITCHED, Shape, all_cpus,
    give_slots, load, put_events,
};
use settle::{Settle, over_tasks};

/// What a failure is said to have been about.
const LOAD: &str = "load the BPF programs that count for cgroups";
const READ: &str = "read what cgroups did";

/// How many events can be read.
pub const MOST_EVENTS: usize = 32;

/// What is wanted besides time, faults and switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// How often tasks were sent to another CPU.
    pub migrations: bool,
    /// Which switches were to another cgroup.
    pub cgroup_switches: bool,
    /// On which CPU it was.
    pub per_cpu: bool,
}

/// How it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    ByTasks,
    AtSwitches,
}

/// Counts for all cgroups of version 2.
#[derive(Debug)]
pub struct Cgroups {
    bpf: Ebpf,
    how: How,
    cpus: usize,
    shape: Shape,
    links: Vec<Link>,
    /// What notes whose end begins.
    ending: Option<Link>,
    wanted: Wanted,
    settle: Arc<Settle>,
    spare: usize,
    lines: MappedArray,
    counted: Option<MappedArray>,
    owners: MappedArray,
    /// What slots had when their cgroup's count began, each CPU's, where that was something.
    before: BTreeMap<u32, Vec<Charged>>,
    /// Cgroups that are below no mount point of ours.
    elsewhere: BTreeSet<u64>,
    tree: Tree,
    root: PathBuf,
    follower: Option<Follower>,
    /// The system's switches, just before and behind the start, where tasks are asked; then how many none told of, and
    /// how many more they told of than there were.
    begun: Option<[u64; 2]>,
    /// Tasks whose ends were not told in time.
    unended: u64,
    off: [u64; 2],
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
    /// On each CPU, by its number; all of it on the first where tasks tell it, which do not know where it was.
    pub cpus: Vec<Charged>,
}

impl Cgroups {
    /// Makes ready to count these events besides what tasks' own fields tell. Nothing is attached yet.
    ///
    /// `events` counts whole CPUs, and may be empty. The tree is that below the mount point `root`.
    pub fn load(
        events: &CounterSet,
        wanted: Wanted,
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
        // From within another namespace of pids not all tasks are seen.
        let by_tasks = count == 0 && wanted.is_told_by_tasks() && in_first_pid_namespace();
        if by_tasks && let Ok(cgroups) = Cgroups::load_as(How::ByTasks, events, wanted, tree, root)
        {
            return Ok(cgroups);
        }
        // So it is on a kernel whose tasks lack a field, too.
        Cgroups::load_as(How::AtSwitches, events, wanted, tree, root)
    }

    fn load_as(
        how: How,
        events: &CounterSet,
        wanted: Wanted,
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
            mapped.map_err(|source| Error::Io {
                what: format!("map the BPF array `{name}`"),
                source,
            })
        };
        let lines = shape.cpus as usize * shape.slots as usize;
        let counted = || mapped("counted", lines * count * layout::COUNTED);
        Ok(Cgroups {
            lines: mapped("lines", lines * layout::LINE)?,
            counted: (how == How::AtSwitches).then(counted).transpose()?,
            owners: mapped("owners", shape.slots as usize)?,
            settle: Arc::new(Settle::of(&bpf)?),
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

    /// Counts from now on.
    pub fn start(&mut self) -> Result<(), Error> {
        let ring = self.bpf.take_map("news").ok_or_else(|| no_part("news"))?;
        let ring = RingBuf::try_from(ring).map_err(|error| bpf_refusal(LOAD, &error))?;
        self.follower = Some(Follower::start(ring, self.settle.clone())?);
        for place in [MADE, GONE] {
            self.links.push(attach(&mut self.bpf, place)?);
        }
        // What was made or removed until now nobody told.
        self.tree.visit_again(&self.root);
        let before = system_switches();
        match self.how {
            How::ByTasks => self.start_by_tasks()?,
            How::AtSwitches => self.start_at_switches()?,
        }
        for slot in 0..self.shape.slots {
            if slot < FIRST || self.owners.word(slot as usize) != 0 {
                self.begin(slot);
            }
        }
        self.begun = before.zip(system_switches()).map(<[u64; 2]>::from);
        Ok(())
    }

    /// All who are there are known from now on, with what they have, and whoever is born later with nothing.
    fn start_by_tasks(&mut self) -> Result<(), Error> {
        for place in [BORN, ENDED, ATTACHED] {
            self.links.push(attach(&mut self.bpf, place)?);
        }
        self.ending = Some(attach(&mut self.bpf, ENDING)?);
        let begun = Array::<_, u64>::try_from(map_mut(&mut self.bpf, "begun")?);
        let set = begun.and_then(|mut begun| begun.set(0, monotonic_ns(), 0));
        set.map_err(|error| bpf_refusal(LOAD, &error))?;
        self.settle.now()
    }

    /// Each CPU knows from now on what it runs.
    fn start_at_switches(&mut self) -> Result<(), Error> {
        if self.wanted.migrations {
            self.links.push(attach(&mut self.bpf, MIGRATED)?);
        }
        self.links.push(attach(&mut self.bpf, SWITCHED)?);
        match self.bpf.program(SEEDED) {
            Some(Program::Iter(program)) => {
                let fd = program.fd().map_err(|error| bpf_refusal(LOAD, &error))?;
                over_tasks(fd.as_fd())?;
            }
            _ => return Err(no_part(SEEDED)),
        }
        self.settle.now()?;
        self.links.push(attach(&mut self.bpf, ATTACHED)?);
        self.settle.now()
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
        let before = system_switches();
        // Those who begin to end from here on are not waited for.
        self.ending = None;
        self.unended = self.settle.last()?;
        if self.how == How::ByTasks {
            self.check(before);
        }
        while self.links.pop().is_some() {}
        if let Some(follower) = self.follower.take() {
            self.note(follower.end());
        }
        Ok(())
    }

    /// Compares all tasks' switches with those of the system, of which `before` were counted before tasks were asked for
    /// the last time.
    fn check(&mut self, before: Option<u64>) {
        let all = (0..self.shape.slots).flat_map(|slot| self.since_start(slot));
        let told = all.fold(0_u64, |sum, did| sum.wrapping_add(did.switches));
        let (Some([first, begun]), Some(before), Some(now)) =
            (self.begun, before, system_switches())
        else {
            return;
        };
        let (least, most) = (before.saturating_sub(begun), now.saturating_sub(first));
        self.off = [least.saturating_sub(told), told.saturating_sub(most)];
    }

    /// What everybody did since the start, until now.
    pub fn read(&mut self) -> Result<Vec<Did>, Error> {
        if !self.links.is_empty() {
            self.settle.now()?;
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
            cpus: self.of_each_cpu(slot),
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
    pub fn checks(&self) -> Result<(Checks, Times), Error> {
        let (mut checks, mut times) = Default::default();
        if !self.settle.add(&mut checks, &mut times) {
            let failed = |error| bpf_refusal(READ, &error);
            let states = Array::<_, [u64; layout::CPU]>::try_from(map(&self.bpf, "states")?);
            let states = states.map_err(failed)?;
            for cpu in 0..self.shape.cpus {
                let state = states.get(&cpu, 0).map_err(failed)?;
                layout::add_cpu(&state, &mut checks, &mut times.switches);
            }
        }
        [checks.hidden, checks.surplus] = self.off;
        checks.unended = self.unended;
        checks.untold = u64::from(programs::first_word(&self.bpf));
        checks.missed = programs::all(&self.bpf).map(programs::missed).sum();
        Ok((checks, times))
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

    fn of_each_cpu(&self, slot: u32) -> Vec<Charged> {
        let mut did = self.since_start(slot);
        did.resize(self.cpus, Charged::default());
        did
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
                    self.counted
                        .as_ref()
                        .map_or(0, |counted| counted.word(first + at))
                },
                events,
            )
        })
        .collect()
    }
}

/// So often a CPU went from one task to another since the machine began; the idle tasks are some, too.
fn system_switches() -> Option<u64> {
    switches_of_all().ok()
}

impl Wanted {
    /// Whether tasks' own fields tell it.
    fn is_told_by_tasks(self) -> bool {
        !self.cgroup_switches && !self.per_cpu
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
