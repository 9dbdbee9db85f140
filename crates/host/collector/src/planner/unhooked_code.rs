//! Finds code outside the C library that may block signals or replace thread-local storage unseen by the agent
//! (tiptoe's library).

use super::is_libc;
use crate::error::Reason;
use crate::module::{Module, OwnCalls};

/// Returns the first function that may block signals by a system call that is not hooked. A trap byte would kill a
/// thread that blocks SIGTRAP, so the kernel's uprobes replace all patches that need a trap byte.
pub fn blocks_signals(modules: &[Module]) -> Option<Reason> {
    let name = find(modules, |calls| calls.blocks_signals.as_deref())?;
    Some(Reason::BlocksSignals(name))
}

/// Returns the first function that may give its thread another thread-local block by a system call that is not
/// hooked. The agent must not enter such a program. Its generated code finds a thread's counters by that block, and
/// would write to the program's memory.
pub fn replaces_block(modules: &[Module]) -> Option<String> {
    find(modules, |calls| calls.replaces_block.as_deref())
}

fn find(modules: &[Module], what: impl Fn(&OwnCalls) -> Option<&str>) -> Option<String> {
    modules.iter().filter(makes_own_calls).find_map(|module| {
        let name = what(module.object.own_calls())?;
        Some(format!("{}:{name}", module.name))
    })
}

/// Returns whether a module's own system calls matter. The C library's calls are hooked. The loader makes its calls
/// only before the program starts, or as the program ends.
pub fn makes_own_calls(module: &&Module) -> bool {
    let is_loader = module.name.starts_with("ld-linux") || module.name == "ld.so";
    !is_libc(module) && !is_loader
}
