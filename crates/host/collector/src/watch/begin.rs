//! The process whose variables are watched: its memory, and the files mapped there.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use tiptoe_attach::{Attached, command_line};
use tiptoe_kernel::watchpoints::Snapshot;
use tiptoe_stack::Frame;
use tiptoe_symbol::Class;
use tiptoe_sys::host::Process;
use tiptoe_sys::host::procfs::Mapping;

use crate::clock::RunClock;
use crate::error::Error;
use crate::module::{Cache, Module};
use crate::request::{Request, RequestTarget};
use crate::ulocks::Names;

const SELDOM: Duration = Duration::from_millis(5);
/// The indexes of %rsp and %rbp in the saved registers.
const SP: usize = 4;
const BP: usize = 5;
const DEEPEST: usize = 16;

pub(super) struct Target {
    pub(super) process: Process,
    /// The command line after the exec. A script's command line begins with the interpreter.
    pub(super) command: Vec<String>,
    /// Whether the process was a command that had not begun.
    pub(super) is_new: bool,
    pub(super) names: Names,
    cache: Cache,
    strange: HashSet<u64>,
    looked: RunClock,
    memory: File,
}

/// A command is held after its exec, before its code runs.
pub(super) fn begin(request: &Request<'_>) -> Result<Attached, Error> {
    match &request.target {
        RequestTarget::Pids(pids) => Attached::to(one(pids)?).map_err(Error::AttachByThread),
        RequestTarget::Command(command) => {
            let mut started = request.start_alone(command)?;
            started.hold_at_exec()?;
            Ok(started)
        }
        RequestTarget::System => Err(Error::NothingCounted),
    }
}

impl Target {
    pub(super) fn of(attached: &Attached, mut cache: Cache) -> Result<Target, Error> {
        let process = attached.process;
        let pid = process.pid();
        let memory = File::open(format!("/proc/{pid}/mem"))
            .map_err(|error| Error::UnreadableMemory { pid, error })?;
        Ok(Target {
            process,
            command: command_line(process),
            is_new: attached.is_held(),
            looked: RunClock::start(),
            names: Names::of(process, &mut cache)?,
            cache,
            strange: HashSet::new(),
            memory,
        })
    }

    /// Reads the maps again if no known code is at an address, because a library may have been loaded.
    pub(super) fn know(&mut self, address: u64) {
        let is_soon = self.looked.elapsed() < SELDOM;
        if !is_soon && self.module(address).is_none() && self.strange.insert(address) {
            self.look_again();
        }
    }

    /// Reads the maps again if more code is mapped, because a command may end right after a hit in that code.
    pub(super) fn follow(&mut self) {
        let code = |maps: &[Mapping]| maps.iter().filter(|m| m.perms.exec).count();
        let maps = self.process.maps().unwrap_or_default();
        if code(&maps) > code(&self.names.maps) {
            self.look_again();
        }
    }

    /// Reads the maps, but keeps the old maps if the process has ended or runs another program.
    fn look_again(&mut self) {
        let maps = self.process.maps().unwrap_or_default();
        let is_same = |mapping: &Mapping| {
            self.names
                .maps
                .iter()
                .any(|known| known.start == mapping.start)
        };
        if maps.first().is_some_and(is_same) {
            self.looked = RunClock::start();
            if let Ok(names) = Names::of(self.process, &mut self.cache) {
                self.names = names;
            }
        }
    }

    pub(super) fn read(&self, at: u64, bytes: &mut [u8]) -> bool {
        self.memory.read_exact_at(bytes, at).is_ok()
    }

    /// Returns whether the kernel has freed the opened memory, because the process is ending or runs another program.
    /// The kernel reports an end or an exec only some time later.
    pub(super) fn has_given_up_memory(&self) -> bool {
        // A read of freed memory returns no bytes, but a read of an unmapped address fails (mem_rw in fs/proc/base.c).
        self.memory
            .read_at(&mut [0], 0)
            .is_ok_and(|length| length == 0)
    }

    pub(super) fn module(&self, address: u64) -> Option<&Module> {
        let mut modules = self.names.modules.iter();
        let module = modules.find(|m| m.text.iter().any(|text| text.contains(&address)))?;
        (module.object.image.header().class == Class::Elf64).then_some(module)
    }

    /// Returns whether an address is outside the files' data and the zeroed memory after a file's data. An allocator
    /// keeps its own state in such memory, so its writes there do not prove that an object was freed.
    pub(super) fn is_object(&self, address: u64) -> bool {
        let maps = self.process.maps().unwrap_or_default();
        let Some(at) = maps.iter().position(|map| map.contains(address)) else {
            return false;
        };
        let is_files = |at: usize| maps.get(at).is_some_and(|map| map.inode != 0);
        let is_right_after_file = at > 0 && is_files(at - 1) && maps[at - 1].end == maps[at].start;
        !is_files(at) && !is_right_after_file
    }

    /// Returns the return addresses in the part of the stack that a hit saved.
    pub(super) fn unwind(&self, ip: u64, first: &Snapshot) -> Vec<u64> {
        let sp = first.registers[SP];
        let word = |at: u64| {
            let index = at.checked_sub(sp)? / 8;
            first.stack.get(usize::try_from(index).ok()?).copied()
        };
        let mut frame = Frame {
            pc: ip,
            sp,
            bp: first.registers[BP],
        };
        let mut callers = Vec::new();
        let mut at = ip;
        while callers.len() < DEEPEST {
            let Some(module) = self.module(at) else { break };
            let rule = module
                .object
                .unwind_table()
                .rule(at.wrapping_sub(module.bias));
            let Some(caller) = rule.step(&frame, word) else {
                break;
            };
            frame = caller;
            at = frame.pc.wrapping_sub(1);
            callers.push(frame.pc);
        }
        callers
    }
}

pub(super) fn one(pids: &[u32]) -> Result<u32, Error> {
    match pids {
        [pid] => Ok(*pid),
        _ => Err(Error::ManyProcesses(pids.to_vec())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_several_processes_must_be_named() {
        let pid = std::process::id();
        assert_eq!(one(&[pid]).unwrap(), pid);
        let hint = one(&[pid; 10]).unwrap_err().hint().unwrap();
        assert!(
            hint.starts_with(&format!("choose one with -p PID: {pid} ")),
            "{hint}"
        );
        assert!(hint.ends_with(" and 2 more"), "{hint}");
    }
}
