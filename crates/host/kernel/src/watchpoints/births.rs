//! Loads `bpf/births.bpf.c`. In an *opening*, all breakpoint events of one thread are opened. The programs record
//! from which opening a thread inherited events. They also record *spoilt* openings, during which the thread called
//! clone(2).

use std::collections::HashSet;

use aya::maps::{Array, HashMap, MapError};
use aya::{Ebpf, Pod};

use crate::Error;
use crate::programs::{self, Link, Ring, attach, load_program, typed_map, typed_map_mut};
use crate::refusal::bpf_refusal;

const BIRTHS: &[u8] = aya::include_bytes_aligned!("../../bpf/births.bpf.o");
const PROGRAMS: [[&str; 3]; 3] = [
    ["thread_ends", "sched", "sched_process_exit"],
    ["thread_born", "task", "task_newtask"],
    ["clone_begins", "raw_syscalls", "sys_enter"],
];
const UNDER_WAY: u64 = u64::MAX;
const BORN: u64 = 1 << 32;
/// Cells of the map `words`.
const ARE_DONE: u32 = 0;
const LOST: [u32; 2] = [1, 2];
const FOLLOW: &str = "follow the births of threads";

#[derive(Debug)]
pub(super) struct Births {
    bpf: Ebpf,
    changes: Ring,
    lost: LostChanges,
    /// In the order of `PROGRAMS`.
    links: Vec<Link>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadChange {
    /// The thread was born with its parent's events.
    Born(u32),
    /// The thread ended, with or without events.
    Ended(u32),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LostChanges {
    pub(super) births: u64,
    pub(super) ends: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inheritance {
    /// No birth was reported: the thread is older than the programs, or is being born.
    Unknown,
    NoEvents,
    Events(u32),
}

impl Births {
    pub(super) fn follow(pid: u32) -> Result<Births, Error> {
        let mut loader = programs::loader();
        let loaded = loader.override_global("process", &pid, true).load(BIRTHS);
        let mut bpf = loaded.map_err(|error| bpf_refusal(FOLLOW, &error))?;
        for [program, ..] in PROGRAMS {
            load_program(&mut bpf, program, FOLLOW)?;
        }
        let links = PROGRAMS.map(|program| attach(&mut bpf, program));
        let links = links.into_iter().collect::<Result<_, _>>()?;
        Ok(Births {
            changes: Ring::take(&mut bpf, "changes", FOLLOW)?,
            lost: LostChanges::default(),
            links,
            bpf,
        })
    }

    /// Stops watching for clones; all openings must be done. Returns the threads with events, whose births
    /// [`Births::changes`] may report again.
    pub(super) fn finish(&mut self) -> Result<HashSet<u32>, Error> {
        let mut words: Array<_, u64> = typed_map_mut(&mut self.bpf, "words", FOLLOW)?;
        words.set(ARE_DONE, 1, 0).map_err(failed)?;
        self.links.pop(); // `clone_begins`, which runs at each system call
        self.changes()?; // discarded, because `threads` has the result
        self.threads_with_events()
    }

    /// Returns the living threads with events, including those whose births were not read yet.
    pub(super) fn threads_with_events(&self) -> Result<HashSet<u32>, Error> {
        let threads: HashMap<_, u32, u32> = typed_map(&self.bpf, "threads", FOLLOW)?;
        let threads = threads.iter().flatten();
        let with_events = threads.filter(|(_, opening)| *opening != 0);
        Ok(with_events.map(|(tid, _)| tid).collect())
    }

    pub(super) fn changes(&mut self) -> Result<(Vec<ThreadChange>, LostChanges), Error> {
        let changes = self.changes.read(|record| {
            let word = u64::from_ne_bytes(record.try_into().ok()?);
            Some(match word & BORN {
                0 => ThreadChange::Ended(word as u32),
                _ => ThreadChange::Born(word as u32),
            })
        });
        let words: Array<_, u64> = typed_map(&self.bpf, "words", FOLLOW)?;
        let [births, ends] = LOST.map(|word| words.get(&word, 0).map_err(failed));
        let lost = LostChanges {
            births: births?,
            ends: ends?,
        };
        let before = std::mem::replace(&mut self.lost, lost);
        let since = LostChanges {
            births: lost.births.wrapping_sub(before.births),
            ends: lost.ends.wrapping_sub(before.ends),
        };
        Ok((changes, since))
    }

    pub(super) fn threads_without_events(&self) -> u32 {
        programs::first_word(&self.bpf)
    }

    pub(super) fn inheritance(&self, tid: u32) -> Result<Inheritance, Error> {
        let threads: HashMap<_, u32, u32> = typed_map(&self.bpf, "threads", FOLLOW)?;
        match threads.get(&tid, 0) {
            Ok(0) => Ok(Inheritance::NoEvents),
            Ok(opening) => Ok(Inheritance::Events(opening)),
            Err(MapError::KeyNotFound) => Ok(Inheritance::Unknown),
            Err(error) => Err(failed(error)),
        }
    }

    pub(super) fn begin(&mut self, opening: u32, tid: u32) -> Result<(), Error> {
        self.set("openings", opening, UNDER_WAY)?;
        self.set("threads", tid, opening)
    }

    pub(super) fn done(&mut self, opening: u32, now_ns: u64) -> Result<(), Error> {
        self.set("openings", opening, now_ns)
    }

    pub(super) fn give_up(&mut self, opening: u32, tid: u32) -> Result<(), Error> {
        self.remove::<u32>("threads", tid)?;
        self.forget(opening)
    }

    pub(super) fn forget(&mut self, opening: u32) -> Result<(), Error> {
        self.remove::<u64>("openings", opening)?;
        self.remove::<u32>("spoilt", opening)
    }

    pub(super) fn spoilt(&self) -> Result<Vec<u32>, Error> {
        let map: HashMap<_, u32, u32> = typed_map(&self.bpf, "spoilt", FOLLOW)?;
        map.keys().collect::<Result<_, _>>().map_err(failed)
    }

    pub(super) fn is_cloning_since(&self, before_ns: u64) -> Result<bool, Error> {
        let map: HashMap<_, u32, u64> = typed_map(&self.bpf, "cloning", FOLLOW)?;
        Ok(map.iter().flatten().any(|(_, began)| began <= before_ns))
    }

    fn set<V: Pod>(&mut self, name: &str, key: u32, value: V) -> Result<(), Error> {
        let mut map: HashMap<_, u32, V> = typed_map_mut(&mut self.bpf, name, FOLLOW)?;
        map.insert(key, value, 0).map_err(failed)
    }

    fn remove<V: Pod>(&mut self, name: &str, key: u32) -> Result<(), Error> {
        let mut map: HashMap<_, u32, V> = typed_map_mut(&mut self.bpf, name, FOLLOW)?;
        // The key is missing if the thread has ended, or if nothing was recorded.
        let _ = map.remove(&key);
        Ok(())
    }
}

fn failed(error: MapError) -> Error {
    bpf_refusal(FOLLOW, &error)
}
