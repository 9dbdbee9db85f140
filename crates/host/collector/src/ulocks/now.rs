//! Who waits for which lock at this moment, and who holds it: read from outside. Nothing is
//! patched and nobody stopped, so a process that hangs can be asked, too.
//!
//! The kernel tells of each thread that sleeps in a system call which one it is, with what
//! arguments, and where its stack is; a mutex and a write-held rwlock have their holder's
//! number in them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;

use tiptoe_futex::operation::Kind as Does;
use tiptoe_futex::rwlock;
use tiptoe_session::{Now, Process as Target, Session, Waiting};
use tiptoe_stack::Frame;
use tiptoe_sys::host::procfs::Process;
use tiptoe_wire::futex::OPERATION_SHIFT;

use super::{Kind, Names, Stacks};
use crate::module::{Cache, Module};
use crate::planner::{is_libc, is_runtime};
use crate::request::Error;

/// The number of futex calls.
const FUTEX: u64 = 202;
/// So many functions stand between a wait and the user, at most.
const MOST: usize = 24;
/// Where a mutex has its holder.
const MUTEX_OWNER: u64 = 8;
/// The bits of a priority inheriting mutex's word that are its holder.
const PI_OWNER: u32 = 0x3fff_ffff;

/// What the threads of a process wait for now.
pub fn now(pid: u32) -> Result<Session, Error> {
    let process = Process::new(pid)?;
    let maps = process.maps()?;
    let modules = Cache::default().modules(process, &maps)?;
    let memory = File::open(format!("/proc/{pid}/mem")).map_err(|error| denied(pid, &error))?;
    let threads = process.threads()?;
    let mut stacks = Stacks::default();
    stacks.look(process, &threads, &maps);
    let look = Look {
        process,
        names: Names {
            modules,
            maps,
            sites: Vec::new(),
            jumps: RefCell::default(),
            stacks,
        },
        memory,
    };
    let mut asleep = Vec::new();
    for tid in threads {
        asleep.extend(look.asleep(tid)?.map(|asleep| (tid, asleep)));
    }
    let told = asleep
        .iter()
        .filter_map(|(tid, asleep)| look.tell(*tid, asleep));
    let mut waits: Vec<Waiting> = told.collect();
    waits.sort_by_key(|wait| wait.tid);
    let deadlocks = rings(&waits);
    let words = process.command_line().unwrap_or_default().into_iter();
    let command = words.map(|word| word.to_string_lossy().into_owned());
    let mut session = Session::new(command.collect());
    session.targets = vec![Target {
        pid,
        comm: process.comm().unwrap_or_default(),
        address_space: None,
    }];
    session.now = Some(Now { waits, deadlocks });
    Ok(session)
}

fn denied(pid: u32, error: &std::io::Error) -> Error {
    Error::new(format!("process {pid} may not be looked at: {error}"))
        .with_hint("be root or its user; /proc/sys/kernel/yama/ptrace_scope may forbid more")
}

struct Look {
    process: Process,
    names: Names,
    memory: File,
}

/// A thread that sleeps in a futex call.
struct Asleep {
    address: u64,
    operation: u32,
    sp: u64,
    pc: u64,
}

impl Asleep {
    /// From /proc/PID/task/TID/syscall: number, six arguments, stack pointer, where.
    fn parse(text: &str) -> Option<Asleep> {
        let mut words = text.split_whitespace();
        let number: u64 = words.next()?.parse().ok()?;
        let rest: Vec<u64> = words
            .filter_map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok())
            .collect();
        let [address, operation, _, _, _, _, sp, pc] = rest[..] else {
            return None;
        };
        let operation = operation as u32;
        let waits = number == FUTEX && Does::of(operation) == Does::Wait;
        waits.then_some(Asleep {
            address,
            operation,
            sp,
            pc,
        })
    }
}

impl Look {
    /// How a thread waits; nothing where it does not, or is no more.
    fn asleep(&self, tid: u32) -> Result<Option<Asleep>, Error> {
        let pid = self.process.pid();
        let text = match std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                return Err(denied(pid, &error));
            }
            Err(_) => return Ok(None),
        };
        Ok(Asleep::parse(&text))
    }

    /// What a thread waits for; nothing where it is no more.
    fn tell(&self, tid: u32, asleep: &Asleep) -> Option<Waiting> {
        let slept = self.process.thread_asleep(tid).ok()?;
        let (site, via) = self.walk(asleep);
        let operation = u64::from(asleep.operation & 0x7f) << OPERATION_SHIFT;
        let kind = self.names.kind(via | operation, via == asleep.pc);
        Some(Waiting {
            tid,
            comm: self.process.thread_comm(tid).unwrap_or_default(),
            lock: self
                .names
                .atomic(asleep.address, site)
                .unwrap_or_else(|| self.names.lock(asleep.address, &kind, &Stacks::default())),
            kind: kind.name.to_owned(),
            mode: kind.mode.map(str::to_owned),
            idle: kind.idle,
            callsite: self.names.code(site),
            asleep_ns: slept.and_then(|time| time.as_nanos().try_into().ok()),
            readers: self.readers(asleep, &kind),
            holder: self.holder(asleep, &kind),
        })
    }

    /// The user's call site, and the last place in libc. The kernel does not tell %rbp: where
    /// a function goes by it the walk ends.
    fn walk(&self, asleep: &Asleep) -> (u64, u64) {
        let (pc, sp, bp) = (asleep.pc, asleep.sp, 0);
        let (mut at, mut looked_at, mut via) = (Frame { pc, sp, bp }, pc, 0);
        let mut in_libc = true;
        let mut innermost = None;
        for _ in 0..MOST {
            let Some((module, is_libc)) = self.runtime(looked_at) else {
                return (at.pc, via);
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
        (innermost.unwrap_or(at.pc), via)
    }

    /// The module of the runtime in which an address is, or the one into which such a function was compiled; and whether
    /// it is the C library.
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

    fn holder(&self, asleep: &Asleep, kind: &Kind) -> Option<u32> {
        let number = |at: u64| Some(self.word(at & !7)? >> (8 * (at & 7)));
        let owner = match (kind.name, asleep.operation & 0x7f) {
            ("mutex", 6 | 13) => number(asleep.address)? as u32 & PI_OWNER,
            ("mutex", _) => number(asleep.address + MUTEX_OWNER)? as u32,
            ("rwlock", _) => number(rwlock::beginning(asleep.address) + rwlock::WRITER)? as u32,
            _ => 0,
        };
        (owner != 0).then_some(owner)
    }

    /// Of a rwlock.
    fn readers(&self, asleep: &Asleep, kind: &Kind) -> Option<u32> {
        let word = || self.word(rwlock::beginning(asleep.address));
        let readers = (kind.name == "rwlock").then(word)??;
        Some(rwlock::readers(readers as u32)).filter(|readers| *readers != 0)
    }
}

/// Rings of threads of which each waits for what the next one holds.
fn rings(waits: &[Waiting]) -> Vec<Vec<u32>> {
    let held = waits.iter().filter(|wait| !wait.idle);
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
        // Back where this way has been: from there on it is a ring.
        let ring = at.and_then(|tid| way.iter().position(|on| *on == tid));
        found.extend(ring.map(|first| way.split_off(first)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_of_a_thread() {
        let text = "202 0x5580 0x80 0x2 0x0 0x0 0x0 0x7ffd10 0x7f0012\n";
        let asleep = Asleep::parse(text).expect("it waits");
        let found = (asleep.address, asleep.operation, asleep.sp, asleep.pc);
        assert_eq!(found, (0x5580, 0x80, 0x7ffd10, 0x7f0012));
        for other in [
            "running",
            "-1 0x7ffd 0x7f",
            "0 0x1 0x2 0x3 0x0 0x0 0x0 0x7 0x8",
        ] {
            assert!(Asleep::parse(other).is_none(), "{other}");
        }
        assert!(
            Asleep::parse(&text.replace("0x80", "0x81")).is_none(),
            "a wake"
        );
    }

    #[test]
    fn rings_are_found_once() {
        let wait = |tid, holder| Waiting {
            tid,
            holder,
            ..Waiting::default()
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
