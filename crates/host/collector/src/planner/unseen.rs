//! Finds programs in which a thread may block signals without passing a hook: by a system call that
//! is not the C library's.
//!
//! A trap byte would kill such a thread. So only sites that never contain one may be patched there,
//! and the rest is left to the kernel.

use tiptoe_patch::may_change_masks;

use super::is_libc;
use crate::module::Module;

const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Returns the first function that may block signals without passing a hook, in words that follow
/// "because".
pub fn unseen(modules: &[Module]) -> Option<String> {
    // The loader makes such calls only in a program that is about to end.
    let own = |module: &&Module| !is_libc(module) && !module.name.starts_with("ld-linux");
    modules.iter().filter(own).find_map(|module| {
        let found = in_module(module)?;
        Some(format!(
            "{found} may block signals by a system call of its own"
        ))
    })
}

fn in_module(module: &Module) -> Option<String> {
    let image = &module.object.image;
    let mut last = 0;
    for (start, code) in module.object.code_sections() {
        let pairs = code
            .windows(2)
            .enumerate()
            .filter(|(_, pair)| *pair == SYSCALL);
        for (at, _) in pairs {
            let address = start + at as u64;
            let Some(function) = image.function_containing(address) else {
                continue;
            };
            if function.address == last {
                continue;
            }
            last = function.address;
            let code = module.object.code(function, module.bias);
            if code.is_some_and(|code| may_change_masks(&code)) {
                return Some(format!("{}:{}", module.name, function.display_name()));
            }
        }
    }
    None
}
