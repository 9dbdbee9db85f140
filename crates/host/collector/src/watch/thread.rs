//! The thread whose variables are meant, of those that each thread has.

use tiptoe_symbol::variable::{Thread, VariableError};

use super::begin::Target;
use crate::inject::thread_pointer;
use crate::module::Module;
use crate::request::Error;
use crate::words::few;

/// A thread, and where its own variables begin to be counted from.
#[derive(Clone, Debug)]
pub(super) struct OfThread {
    pub(super) tid: u32,
    /// As it is told: its number and name.
    pub(super) told: String,
    pointer: u64,
}

impl OfThread {
    /// The one with this number or name.
    pub(super) fn find(asked: &str, target: &Target) -> Result<OfThread, Error> {
        let process = target.process;
        let named = |tid: u32| Some((tid, process.thread_comm(tid).ok()?));
        let all: Vec<(u32, String)> = process.threads()?.into_iter().filter_map(named).collect();
        let is_meant = |(tid, name): &&(u32, String)| match asked.parse::<u32>() {
            Ok(number) => *tid == number,
            Err(_) => name == asked,
        };
        let found: Vec<&(u32, String)> = all.iter().filter(is_meant).collect();
        let [(tid, name)] = found[..] else {
            let what = match found.len() {
                0 => format!("the process has no thread `{}`", asked.escape_debug()),
                many => format!("{many} threads are called `{}`", asked.escape_debug()),
            };
            let some = if found.is_empty() {
                all.iter().collect()
            } else {
                found
            };
            let some: Vec<String> = some
                .iter()
                .map(|(tid, name)| format!("{tid} {name}"))
                .collect();
            return Err(Error::new(what).with_hint(format!("--thread TID: {}", few(&some))));
        };
        let pointer = thread_pointer(*tid).filter(|pointer| *pointer != 0);
        let pointer = pointer.ok_or_else(|| {
            let what = format!("cannot tell where thread {tid} ({name}) has its own variables");
            Error::new(what).with_hint(
                "it may be traced by a debugger, or not have begun: -p PID watches a program that runs",
            )
        })?;
        Ok(OfThread {
            tid: *tid,
            told: format!("{tid} {name}"),
            pointer,
        })
    }

    /// Where it keeps its own variables of a file.
    pub(super) fn block(&self, module: &Module, target: &Target) -> Result<u64, VariableError> {
        let mut modules = target.names.modules.iter();
        let thread = Thread {
            pointer: self.pointer,
            bias: module.bias,
            is_program: module.is_program,
            is_musl: modules.any(|module| module.name.contains("musl")),
        };
        let image = &module.object.image;
        image.thread_block(&thread, &mut |at, bytes| target.read(at, bytes))
    }
}
