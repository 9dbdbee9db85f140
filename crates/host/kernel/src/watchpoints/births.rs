//! Follows which threads inherited events; the Rust side of `bpf/births.bpf.c`.
//!
//! A thread has all events of one *opening*, its own or an ancestor's. If a clone(2) overlaps an opening, it is spoilt,
//! because the new thread may have inherited only some.

use aya::maps::{HashMap, MapError};
use aya::{Ebpf, Pod};

use crate::Error;
use crate::programs::{self, Link, attach, load_program, map, map_mut};
use crate::refusal::bpf_refusal;

const BIRTHS: &[u8] = aya::include_bytes_aligned!("../../bpf/births.bpf.o");
const PROGRAMS: [[&str; 3]; 3] = [
    ["thread_ends", "sched", "sched_process_exit"],
    ["thread_born", "task", "task_newtask"],
    ["clone_begins", "raw_syscalls", "sys_enter"],
];
const UNDER_WAY: u64 = u64::MAX;
const FOLLOW: &str = "follow the births of threads";

#[derive(Debug)]
pub(super) struct Births {
    bpf: Ebpf,
    _links: Vec<Link>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inheritance {
    /// It existed before, or is being born.
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
        Ok(Births {
            _links: links.into_iter().collect::<Result<_, _>>()?,
            bpf,
        })
    }

    pub(super) fn threads_without_events(&self) -> u32 {
        programs::first_word(&self.bpf)
    }

    pub(super) fn inheritance(&self, tid: u32) -> Result<Inheritance, Error> {
        Ok(match self.get::<u32>("threads", tid)? {
            None => Inheritance::Unknown,
            Some(0) => Inheritance::NoEvents,
            Some(opening) => Inheritance::Events(opening),
        })
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
        let map = map(&self.bpf, "spoilt")?;
        let map = HashMap::<_, u32, u32>::try_from(map).map_err(failed)?;
        map.keys().collect::<Result<_, _>>().map_err(failed)
    }

    pub(super) fn is_cloning_since(&self, before_ns: u64) -> Result<bool, Error> {
        let map = map(&self.bpf, "cloning")?;
        let map = HashMap::<_, u32, u64>::try_from(map).map_err(failed)?;
        Ok(map.iter().flatten().any(|(_, began)| began <= before_ns))
    }

    fn get<V: Pod>(&self, name: &str, key: u32) -> Result<Option<V>, Error> {
        let map = map(&self.bpf, name)?;
        let map = HashMap::<_, u32, V>::try_from(map).map_err(failed)?;
        match map.get(&key, 0) {
            Ok(value) => Ok(Some(value)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    fn set<V: Pod>(&mut self, name: &str, key: u32, value: V) -> Result<(), Error> {
        let map = map_mut(&mut self.bpf, name)?;
        let mut map = HashMap::<_, u32, V>::try_from(map).map_err(failed)?;
        map.insert(key, value, 0).map_err(failed)
    }

    fn remove<V: Pod>(&mut self, name: &str, key: u32) -> Result<(), Error> {
        let map = map_mut(&mut self.bpf, name)?;
        let mut map = HashMap::<_, u32, V>::try_from(map).map_err(failed)?;
        // Missing if the thread has ended, or nothing was recorded.
        let _ = map.remove(&key);
        Ok(())
    }
}

fn failed(error: MapError) -> Error {
    bpf_refusal(FOLLOW, &error)
}
