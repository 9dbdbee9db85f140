//! Finds what the agent cannot see: system calls and instructions outside the C library that change
//! what the agent relies on.

use tiptoe_patch::{FunctionCode, may_change_masks, may_replace_block};

use super::hooks::SYSCALL;
use super::is_libc;
use crate::module::Module;

/// The last two bytes of each `wrfsbase`, without the register.
const WRFSBASE: &[u8] = &[0x0f, 0xae];

/// Returns the first function that may block signals without passing a hook, in words that follow
/// "because". A trap byte would kill a thread that blocks its signal, so in this program only sites
/// that never contain one may be patched. The kernel counts the rest.
pub fn blocks_signals(modules: &[Module]) -> Option<String> {
    let name = find(modules, &SYSCALL, may_change_masks)?;
    Some(format!(
        "{name} may block signals by a system call of its own"
    ))
}

/// Returns why the agent must not enter, if a function may give its thread another thread-local
/// block without passing a hook. Trampolines find a thread's counters by that block, so they would
/// write to the program's memory.
pub fn replaces_block(modules: &[Module]) -> Option<String> {
    let name = [WRFSBASE, &SYSCALL]
        .into_iter()
        .find_map(|bytes| find(modules, bytes, may_replace_block))?;
    Some(format!(
        "{name} may give a thread other thread-local storage, in which the agent must not write"
    ))
}

fn find(
    modules: &[Module],
    bytes: &[u8],
    does: impl Fn(&FunctionCode<'_>) -> bool,
) -> Option<String> {
    modules.iter().filter(makes_own_calls).find_map(|module| {
        let mut functions = module.object.functions_with(bytes);
        let found = functions.find(|function| {
            let code = module.object.code(function, module.bias);
            code.is_some_and(|code| does(&code))
        })?;
        Some(format!("{}:{}", module.name, found.display_name()))
    })
}

/// Returns whether a module's system calls are neither the C library's nor the loader's. The loader
/// makes those that matter before the program starts, or in a program about to end.
pub fn makes_own_calls(module: &&Module) -> bool {
    !is_libc(module) && !module.name.starts_with("ld-linux")
}
