//! Reads which thread waits for which lock now, and which thread holds the lock. Reads only files in /proc, and stops
//! no thread.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;

use tiptoe_attach::command_line;
use tiptoe_attach::resident::agent_code;
use tiptoe_futex::owner::{MUTEX_OWNER, PI_OWNER};
use tiptoe_futex::rwlock;
use tiptoe_session::{Deadlock, Now, Process as Target, Session, WaitingThread};
use tiptoe_stack::Frame;
use tiptoe_sys::host::procfs::Process;

use super::futex_sleeper::FutexSleeper;
use super::{LockKind, Names, Stacks, ThreadIds, refused};
use crate::error::Error;
use crate::module::{Cache, Module};
use crate::planner::{is_libc, is_runtime};

/// The most frames between a wait and the user's code.
const MOST: usize = 24;

/// Returns what the threads of a process wait for now.
pub fn now(pid: u32) -> Result<Session, Error> {
    let process = Process::new(pid)?;
    let mut names = Names::of(process, &mut Cache::default())?;
    names.stacks.look(process, &process.threads()?, &names.maps);
    let waits = WaitReader::new(process, &names)?.waits()?;
    let deadlocks = rings(&waits);
    let mut session = Session::new(command_line(process));
    session.targets = vec![Target {
        pid,
        comm: process.comm().unwrap_or_default(),
        address_space: None,
    }];
    session.now = Some(Now { waits, deadlocks });
    Ok(session)
}

/// Returns the threads that wait for each other in a cycle; none if the process may not be read.
pub fn deadlocks(process: Process, names: &Names) -> Vec<Deadlock> {
    let waits = WaitReader::new(process, names).and_then(|look| look.waits());
    let waits = waits.unwrap_or_default();
    let wait = |tid: &u32| waits.iter().find(|wait| wait.tid == *tid).cloned();
    let rings = rings(&waits).into_iter();
    rings
        .map(|ring| Deadlock {
            pid: process.pid(),
            waits: ring.iter().filter_map(wait).collect(),
        })
        .collect()
}

/// Returns which of these threads holds a mutex or a write-held rwlock. The lock contains the holder's id in the
/// process's PID namespace.
pub(super) fn owner(process: Process, lock: u64, threads: &[u32]) -> Option<u32> {
    let memory = File::open(format!("/proc/{}/mem", process.pid())).ok()?;
    let number = |offset: u64| {
        let mut bytes = [0; 4];
        memory.read_exact_at(&mut bytes, lock + offset).ok()?;
        Some(u32::from_le_bytes(bytes))
    };
    let mut numbers = [MUTEX_OWNER, rwlock::WRITER].into_iter();
    let ids = ThreadIds::of(process);
    numbers.find_map(|offset| {
        let holder = ids.outer(number(offset)?);
        holder.filter(|tid| threads.contains(tid))
    })
}

pub(super) struct WaitReader<'n> {
    process: Process,
    names: &'n Names,
    memory: File,
    ids: ThreadIds,
    /// The code of the agent (tiptoe's library), whose waits are not the program's.
    agent: [u64; 2],
}

impl<'n> WaitReader<'n> {
    pub(super) fn new(process: Process, names: &'n Names) -> Result<WaitReader<'n>, Error> {
        let pid = process.pid();
        let memory = File::open(format!("/proc/{pid}/mem"));
        Ok(WaitReader {
            process,
            names,
            memory: memory.map_err(|error| Error::UnreadableWaits { pid, error })?,
            ids: ThreadIds::of(process),
            agent: agent_code(&names.maps),
        })
    }

    pub(super) fn asleep(&self, tid: u32) -> Result<Option<FutexSleeper>, Error> {
        let asleep = FutexSleeper::read(self.process, tid)?;
        let is_agents = |pc| (self.agent[0]..self.agent[1]).contains(&pc);
        Ok(asleep.filter(|asleep| !is_agents(asleep.pc)))
    }

    fn waits(&self) -> Result<Vec<WaitingThread>, Error> {
        let mut asleep = Vec::new();
        for tid in self.process.threads()? {
            asleep.extend(self.asleep(tid)?.map(|asleep| (tid, asleep)));
        }
        let waits = asleep
            .iter()
            .filter_map(|(tid, asleep)| self.waiting(*tid, asleep));
        let mut waits: Vec<WaitingThread> = waits.collect();
        waits.sort_by_key(|wait| wait.tid);
        refused::find_holders(&mut waits);
        Ok(waits)
    }

    fn waiting(&self, tid: u32, asleep: &FutexSleeper) -> Option<WaitingThread> {
        let slept = self.process.thread_asleep(tid).ok()?;
        let (site, via, user_sp) = self.walk(asleep);
        let kind = self
            .names
            .kind(via | asleep.operation_bits(), via == asleep.pc);
        let holder = self.holder(asleep, &kind);
        let comm = |tid| self.process.thread_comm(tid).ok();
        let wait = WaitingThread {
            tid,
            comm: self.process.thread_comm(tid).unwrap_or_default(),
            lock: self
                .names
                .awaited(asleep.address, site, &kind, &Stacks::default()),
            kind: kind.name.to_owned(),
            mode: kind.mode.map(str::to_owned),
            idle: kind.is_idle,
            callsite: self.names.code(site),
            asleep_ns: slept.and_then(|time| time.as_nanos().try_into().ok()),
            readers: self.readers(asleep, &kind),
            holder,
            holder_comm: holder.and_then(comm),
        };
        Some(match refused::is_refused(asleep, &kind, user_sp) {
            true => refused::without_word(wait),
            false => wait,
        })
    }

    /// Walks up to the user's code. Returns the user's call site, the outermost address in libc, and the last stack
    /// pointer. The walk ends at a frame that needs %rbp, which the kernel does not report.
    pub(super) fn walk(&self, asleep: &FutexSleeper) -> (u64, u64, u64) {
        let (pc, sp, bp) = (asleep.pc, asleep.sp, 0);
        let (mut at, mut looked_at, mut via) = (Frame { pc, sp, bp }, pc, 0);
        let mut in_libc = true;
        let mut innermost = None;
        for _ in 0..MOST {
            let Some((module, is_libc)) = self.runtime(looked_at) else {
                return (at.pc, via, at.sp);
            };
            if !is_runtime(module) {
                innermost.get_or_insert(at.pc);
            }
            in_libc &= is_libc;
            if in_libc {
                via = at.pc;
            }
            let linked = looked_at.wrapping_sub(module.bias);
            let rule = module.object.unwind_table().rule(linked);
            let Some(next) = rule.step(&at, |at| self.word(at)) else {
                break;
            };
            (at, looked_at) = (next, next.pc.wrapping_sub(1));
        }
        (innermost.unwrap_or(at.pc), via, at.sp)
    }

    /// Returns the module at an address, and whether it is the C library. `None` for the user's code, which is in no
    /// runtime's module and no compiled-in standard library.
    fn runtime(&self, pc: u64) -> Option<(&Module, bool)> {
        let mut modules = self.names.modules.iter();
        let module = modules.find(|module| module.text.iter().any(|text| text.contains(&pc)))?;
        let compiled_in = || {
            let function = self.names.function(pc);
            function.is_some_and(|(_, function)| function.is_of_standard_library())
        };
        (is_runtime(module) || compiled_in()).then(|| (module, is_libc(module)))
    }

    fn word(&self, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, at).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// Returns the id in /proc of a lock's holder.
    fn holder(&self, asleep: &FutexSleeper, kind: &LockKind) -> Option<u32> {
        let number = |at: u64| Some(self.word(at & !7)? >> (8 * (at & 7)));
        let owner_at = asleep.address.wrapping_add(MUTEX_OWNER);
        let owner = match (kind.name, asleep.operation & 0x7f) {
            ("mutex", 6 | 13) => number(asleep.address)? as u32 & PI_OWNER,
            ("mutex", _) => number(owner_at)? as u32,
            ("rwlock", _) => number(rwlock::start_of(asleep.address) + rwlock::WRITER)? as u32,
            // The id of the joined thread, which the kernel clears when that thread ends.
            ("join", _) => number(asleep.address)? as u32,
            _ => 0,
        };
        self.ids.outer(owner).filter(|_| owner != 0)
    }

    fn readers(&self, asleep: &FutexSleeper, kind: &LockKind) -> Option<u32> {
        let word = || self.word(rwlock::start_of(asleep.address));
        let readers = (kind.name == "rwlock").then(word)??;
        Some(rwlock::readers(readers as u32)).filter(|readers| *readers != 0)
    }
}

/// Returns the cycles of threads: each thread waits for the next thread's lock or end.
fn rings(waits: &[WaitingThread]) -> Vec<Vec<u32>> {
    let held = waits
        .iter()
        .filter(|wait| !wait.idle || wait.kind == "join");
    let next: BTreeMap<u32, u32> = held
        .filter_map(|wait| Some((wait.tid, wait.holder?)))
        .collect();
    let mut found: Vec<Vec<u32>> = Vec::new();
    let mut seen = BTreeSet::new();
    for &start in next.keys() {
        let mut way = Vec::new();
        let mut at = Some(start);
        while let Some(tid) = at.filter(|tid| seen.insert(*tid)) {
            way.push(tid);
            at = next.get(&tid).copied();
        }
        // If the walk came back to one of its threads, a cycle begins there.
        let ring = at.and_then(|tid| way.iter().position(|on| *on == tid));
        found.extend(ring.map(|first| way.split_off(first)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_found_once() {
        let wait = |tid, holder| WaitingThread {
            tid,
            holder,
            ..WaitingThread::default()
        };
        let waits = [
            wait(1, Some(2)),
            wait(2, Some(3)),
            wait(3, Some(2)),
            wait(4, Some(9)),
            wait(5, Some(5)),
            wait(6, None),
        ];
        assert_eq!(rings(&waits), [vec![2, 3], vec![5]]);
        assert_eq!(rings(&[wait(1, Some(1))]), [[1]]);
        assert!(rings(&waits[3..4]).is_empty());
    }
}
