//! Finds an agent (tiptoe's library) that has been in a process since an earlier session or a fork.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};
use tiptoe_sys::host::procfs::{Mapping, Process};
use tiptoe_wire::{SLOT_WORDS, Site};

use crate::error::AttachError;
use crate::inject::Resident;

const MAX_SITES: u64 = 1 << 18;

/// The most slots (counters) of earlier sessions' sites (patched places); 65,536 timed functions need fewer. A bound
/// is needed, because the program can write the table of sites, and the largest slot there decides how many words
/// each thread gets.
const MAX_SLOTS: u32 = 1 << 25;

/// The agent's symbols, as offsets from its load address.
pub struct AgentFile {
    /// The entry point.
    pub entry: u64,
    /// Two words: the address and length of the table of sites.
    pub sites: u64,
    /// A string: the agent's name in `/proc/PID/maps`.
    pub name: u64,
    /// The offset in the file of the key that [`tiptoe_wire::descriptors`] explains.
    pub key: usize,
    /// One word: non-zero once the loader has loaded the agent.
    loaded: u64,
}

impl AgentFile {
    /// Finds the symbols. Fails if one is missing.
    pub fn parse(bytes: &[u8]) -> Result<AgentFile, AttachError> {
        let broken = |what: &str| AttachError::IncompleteAgent {
            what: what.to_owned(),
        };
        let file = object::File::parse(bytes).map_err(|error| broken(&error.to_string()))?;
        let symbol = |name: &str| {
            let found = file.symbols().find(|symbol| symbol.name() == Ok(name));
            found
                .map(|symbol| symbol.address())
                .ok_or_else(|| broken(name))
        };
        Ok(AgentFile {
            entry: symbol("tiptoe_agent_entry")?,
            sites: symbol("TIPTOE_SITES")?,
            name: symbol("TIPTOE_NAME")?,
            key: in_file(&file, symbol("TIPTOE_KEY")?).ok_or_else(|| broken("TIPTOE_KEY"))?,
            loaded: symbol("TIPTOE_LOADED")?,
        })
    }

    /// Returns whether a process contains an agent.
    pub fn resident(&self, process: Process) -> Resident {
        let Some(base) = dormant_agent(process) else {
            return Resident::None;
        };
        let mut loaded = [0; 4];
        let memory = process.open_memory().ok();
        // If the word cannot be read, it stays 0.
        let _ = memory.map(|memory| memory.read_exact_at(&mut loaded, base + self.loaded));
        match loaded {
            [0, 0, 0, 0] => Resident::Loading,
            _ => Resident::Entry(base + self.entry),
        }
    }
}

fn in_file(file: &object::File<'_>, address: u64) -> Option<usize> {
    let of = |segment: object::Segment<'_, '_>| {
        let (offset, len) = segment.file_range();
        let within = address.checked_sub(segment.address())?;
        (within < len).then_some((offset + within) as usize)
    };
    file.segments().find_map(of)
}

/// Returns the load base of a process's agent.
pub fn dormant_agent(process: Process) -> Option<u64> {
    agent_in(&process.maps().ok()?)
}

/// Returns an agent's load base, from a process's mappings.
pub fn agent_in(maps: &[Mapping]) -> Option<u64> {
    maps.iter()
        .find(|m| m.offset == 0 && m.path.as_deref().is_some_and(is_agent))
        .map(|m| m.start)
}

/// Returns the start and end of an agent's code, from a process's mappings; zeroes if there is no agent.
pub fn agent_code(maps: &[Mapping]) -> [u64; 2] {
    let is_code = |m: &&Mapping| m.perms.exec && m.path.as_deref().is_some_and(is_agent);
    let code = maps.iter().find(is_code);
    code.map_or([0, 0], |mapping| [mapping.start, mapping.end])
}

/// Returns whether the process's agent is of another build than `agent`. In another build, the entry and the words
/// may be at other offsets.
pub fn is_another(process: Process, maps: &[Mapping], agent: &[u8]) -> bool {
    let Ok(memory) = File::open(format!("/proc/{}/mem", process.pid())) else {
        return false;
    };
    let is_code = |m: &&Mapping| m.perms.exec && m.path.as_deref().is_some_and(is_agent);
    maps.iter().filter(is_code).any(|mapping| {
        let ours = agent.get(mapping.offset as usize..).unwrap_or_default();
        let ours = &ours[..ours.len().min((mapping.end - mapping.start) as usize)];
        let mut theirs = vec![0; ours.len()];
        let read = memory.read_exact_at(&mut theirs, mapping.start);
        read.is_err() || ours.is_empty() || ours != theirs
    })
}

/// Returns whether a mapping's path is tiptoe's: the agent, or trampolines (generated code).
pub fn is_ours(path: &Path) -> bool {
    path.to_string_lossy().starts_with("/memfd:tiptoe-")
}

/// Returns whether a mapping's path is the agent's.
pub fn is_agent(path: &Path) -> bool {
    path.to_string_lossy().starts_with("/memfd:tiptoe-agent")
}

/// Returns the sites in an agent's own table, oldest first. A site whose patch was computed twice is listed twice.
/// The earlier entry's address, slot and number remain in use, because threads may still be inside that entry's
/// trampoline, or return through it. Fails if a slot is above `MAX_SLOTS`.
pub fn known_sites(
    process: Process,
    base: u64,
    agent: &AgentFile,
) -> Result<Vec<Site>, AttachError> {
    let read = || -> std::io::Result<Vec<Site>> {
        let memory = File::open(format!("/proc/{}/mem", process.pid()))?;
        let mut head = [[0; 8]; 2];
        memory.read_exact_at(head.as_flattened_mut(), base.wrapping_add(agent.sites))?;
        let [address, count] = head.map(u64::from_le_bytes);
        let mut slots = vec![[[0; 8]; SLOT_WORDS]; count.min(MAX_SITES) as usize];
        let bytes = slots.as_flattened_mut().as_flattened_mut();
        memory.read_exact_at(bytes, address)?;
        let slots = slots.into_iter();
        Ok(slots
            .filter_map(|slot| Site::decode(slot.first_chunk()?.map(u64::from_le_bytes)))
            .collect())
    };
    let sites = read().unwrap_or_default();
    let is_believable = |site: &Site| site.slot.saturating_add(site.width()) <= MAX_SLOTS;
    match sites.iter().all(is_believable) {
        true => Ok(sites),
        false => Err(AttachError::ForgedSites),
    }
}

/// Converts the agent's thread id to tiptoe's pid namespace.
pub fn agent_thread(process: Process, tid: u32) -> Option<u32> {
    let own = |candidate: &u32| {
        process
            .thread_status(*candidate)
            .is_ok_and(|status| status.ns_pids.last() == Some(&tid))
    };
    let same = Some(tid).filter(own);
    same.or_else(|| process.threads().ok()?.into_iter().find(own))
}

/// If a process's agent serves another tiptoe, returns the agent's thread, which sleeps in the agent's code.
pub fn agent_thread_of_another(process: Process) -> Option<u32> {
    // One list is not enough: the thread may be running, and the kernel may omit threads while others start and
    // end.
    const LISTS: usize = 20;
    let maps = process.maps().ok()?;
    let [start, end] = agent_code(&maps);
    let is_there = |tid: &u32| {
        let at = process.thread_instruction_pointer(*tid);
        at.is_ok_and(|at| at.is_some_and(|at| (start..end).contains(&at)))
    };
    let find = |_| process.threads().ok()?.into_iter().find(is_there);
    (0..LISTS).take_while(|_| start != end).find_map(find)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiptoe_wire::SITE_WORDS;

    /// Regression: a hostile slot caused an allocation of 34 GB, because tiptoe checked one copy of the table and
    /// used a second.
    #[test]
    fn a_table_that_asks_for_more_slots_than_there_are_is_not_believed() {
        let is_read = |slot| {
            let site = Site {
                slot,
                len: 1,
                head_count: 1,
                ..Site::default()
            };
            let mut words = [0; SLOT_WORDS];
            words[..SITE_WORDS].copy_from_slice(&site.encode());
            let head = [words.as_ptr() as u64, 1];
            let agent = AgentFile {
                entry: 0,
                sites: 0,
                name: 0,
                key: 0,
                loaded: 0,
            };
            let read = known_sites(Process::current(), head.as_ptr() as u64, &agent);
            read.map(|sites| sites == [site]).ok()
        };
        assert_eq!([1, MAX_SLOTS - 64].map(is_read), [Some(true); 2]);
        assert_eq!([MAX_SLOTS + 1, u32::MAX].map(is_read), [None; 2]);
    }
}
