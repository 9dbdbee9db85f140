//! Finds the thread whose thread-local variables are watched.

use std::time::Duration;

use tiptoe_symbol::variable::{Thread, VariableError};

use tiptoe_attach::inject::thread_pointer;
use tiptoe_sys::host::Process;

use super::begin::Target;
use crate::error::Error;
use crate::module::Module;

#[derive(Clone, Debug)]
pub(super) struct OfThread {
    pub(super) owner: Owner,
    pub(super) label: String,
    pointer: u64,
}

/// A thread, identified by its id and start time, because the id may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) tid: u32,
    started: Duration,
}

impl Owner {
    fn of(process: Process, tid: u32) -> Result<Owner, Error> {
        let started = process.thread_start_time(tid)?;
        Ok(Owner { tid, started })
    }

    /// A process's first thread exists as long as the process.
    pub(super) fn has_ended(&self, process: Process) -> bool {
        Owner::of(process, self.tid).ok() != Some(*self)
    }
}

impl OfThread {
    pub(super) fn find(wanted: &str, target: &Target) -> Result<OfThread, Error> {
        let process = target.process;
        let named = |tid: u32| Some((tid, process.thread_comm(tid).ok()?));
        let all: Vec<(u32, String)> = process.threads()?.into_iter().filter_map(named).collect();
        let is_meant = |(tid, name): &&(u32, String)| match wanted.parse::<u32>() {
            Ok(number) => *tid == number,
            Err(_) => name == wanted,
        };
        let found: Vec<&(u32, String)> = all.iter().filter(is_meant).collect();
        let [(tid, name)] = found[..] else {
            let count = found.len();
            let some = if found.is_empty() {
                all.iter().collect()
            } else {
                found
            };
            let some = some.iter().map(|(tid, name)| format!("{tid} {name}"));
            return Err(Error::NotOneThread {
                wanted: wanted.to_owned(),
                count,
                threads: some.collect(),
            });
        };
        let owner = Owner::of(process, *tid)?;
        let pointer = thread_pointer(process.pid(), *tid).filter(|pointer| *pointer != 0);
        let pointer = pointer.ok_or_else(|| Error::NoThreadPointer {
            tid: *tid,
            comm: name.clone(),
        })?;
        Ok(OfThread {
            owner,
            label: format!("{tid} {name}"),
            pointer,
        })
    }

    pub(super) fn block(&self, module: &Module, target: &Target) -> Result<u64, VariableError> {
        let mut modules = target.names.modules.iter();
        let thread = Thread {
            pointer: self.pointer,
            bias: module.bias,
            is_program: module.is_program,
            is_musl: modules.any(|module| module.name.contains("musl")),
        };
        let image = &module.object.image;
        thread.block(image, &mut |at, bytes| target.read(at, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_ends_and_its_number_may_be_reused() {
        let me = Process::current();
        let of = |tid| Owner::of(me, tid).ok();
        let (to_test, tids) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            // SAFETY: the call takes no arguments and returns a number.
            to_test.send(unsafe { libc::gettid() }).unwrap();
            ended.recv().unwrap_err();
        });
        let tid = tids.recv().unwrap().cast_unsigned();
        let owner = of(tid).unwrap();
        assert!(!owner.has_ended(me));
        let before = Owner {
            started: Duration::ZERO,
            ..owner
        };
        assert!(before.has_ended(me), "another of its number");
        drop(end);
        thread.join().unwrap();
        let mut looks = 0;
        while !owner.has_ended(me) && looks < 1000 {
            std::thread::sleep(Duration::from_millis(10));
            looks += 1;
        }
        assert!(owner.has_ended(me));
    }
}
