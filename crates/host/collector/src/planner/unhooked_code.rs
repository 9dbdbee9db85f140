//! What the agent cannot see of a program: code outside the C library that changes what the agent relies on.

use super::is_libc;
use crate::module::{Module, OwnCalls};

/// Returns the first function that may block signals without passing a hook, in words that follow
/// "because". A trap byte would kill such a thread. So only sites that never contain one may be
/// patched in this program, and the rest is left to the kernel.
pub fn blocks_signals(modules: &[Module]) -> Option<String> {
    let name = find(modules, |calls| calls.blocks_signals.as_deref())?;
    Some(format!(
        "{name} may block signals by a system call of its own"
    ))
}

/// Returns the first function that may give its thread another thread-local block without passing a hook. The agent
/// must not enter such a program. Trampolines find a thread's counters by that block, so they would write
/// to memory of the program.
pub fn replaces_block(modules: &[Module]) -> Option<String> {
    find(modules, |calls| calls.replaces_block.as_deref())
}

fn find(modules: &[Module], what: impl Fn(&OwnCalls) -> Option<&str>) -> Option<String> {
    modules.iter().filter(makes_own_calls).find_map(|module| {
        let name = what(module.object.own_calls())?;
        Some(format!("{}:{name}", module.name))
    })
}

/// Returns whether a module is neither the C library nor the loader. The loader's calls that matter here are made
/// before the program starts, or when it is about to end.
pub fn makes_own_calls(module: &&Module) -> bool {
    let is_loader = module.name.starts_with("ld-linux") || module.name == "ld.so";
    !is_libc(module) && !is_loader
}
