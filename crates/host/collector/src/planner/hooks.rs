//! Hooks of system calls that the agent must see before the kernel.

use std::collections::BTreeMap;

use tiptoe_patch::{
    Body, FunctionCode, Notice, Strategy, SyscallSite, any_futex_site, syscall_sites,
};
use tiptoe_wire::Site;

use super::{Draft, Locks, PlannedSite, body_hash, planned};
use crate::module::Module;

/// System calls that the agent must see before the kernel, so that the program finds its signals
/// and namespaces as they would be without tiptoe. Grouped by effect.
const HOOKED: &[u32] = &[
    13, 14, 127, // rt_sigaction, rt_sigprocmask, rt_sigpending
    128, 130, 270, 271, 281, 441, // sigtimedwait, sigsuspend, pselect6, ppoll, epoll_pwait(2)
    282, 289, // signalfd, signalfd4
    9, 10, 11, 25, 329, // mmap, mprotect, munmap, mremap, pkey_mprotect: change the mappings
    151, // mlockall: must not lock the agent's memory
    59, 322, // execve, execveat: the blocked signals are inherited
    272, 308, // unshare, setns
    56, 57, 58,
    435, // clone, fork, vfork, clone3: the child must not find its parent's slab, and forks are counted
    101, // ptrace: a child that has itself traced must meet no trap byte
    157, 317, // prctl, seccomp: may put the program under a filter
    158, // arch_prctl: changes the thread-local block
];

/// The calls of [`HOOKED`] that are hooked outside the C library as well: they copy, replace or
/// trace a process, change what threads may do, or lock memory. Hooks of the others read records
/// that only libc is known to pass.
const HOOKED_EVERYWHERE: &[u32] = &[56, 57, 58, 59, 101, 151, 157, 158, 272, 308, 317, 322, 435];

/// The bytes of the instruction `syscall`.
pub(super) const SYSCALL: [u8; 2] = [0x0f, 0x05];

impl Draft<'_> {
    pub(super) fn hooks(&mut self, module: &Module, locks: &mut Locks) -> Vec<PlannedSite> {
        let mut hooks = BTreeMap::new();
        for function in module.object.image.functions() {
            let Some(code) = module.object.code(function, module.bias) else {
                continue;
            };
            let code = with_last_call(code);
            if function.names.iter().any(|name| &**name == "syscall") {
                let site = any_futex_site(&code);
                let futex = site.as_ref();
                let futex = futex.and_then(|site| self.any_notice(module, site, locks));
                let hook = site.and_then(|site| self.libcs_hook(&site.call, futex));
                hooks.extend(hook.map(|hook| (hook.site.address, hook)));
            } else if may_call(code.bytes, HOOKED) {
                for site in syscall_sites(&code, HOOKED) {
                    let hook = self.libcs_hook(&site, None);
                    hooks.extend(hook.map(|hook| (site.address, hook)));
                }
            }
        }
        hooks.into_values().collect()
    }

    /// Plans hooks outside the C library. The number must be known where the call is made.
    pub(super) fn hooks_elsewhere(&mut self, module: &Module) -> Vec<PlannedSite> {
        let mut hooks = Vec::new();
        for function in module.object.functions_with(&SYSCALL) {
            let code = module.object.code(function, module.bias);
            let code = code.filter(|code| may_call(code.bytes, HOOKED_EVERYWHERE));
            let sites = code.map(|code| syscall_sites(&code, HOOKED_EVERYWHERE));
            let sites = sites.into_iter().flatten();
            let of = |site: &SyscallSite| Body::Syscall {
                nr: site.nr,
                recall: None,
            };
            hooks.extend(sites.filter_map(|site| self.hook(&site, &of(&site))));
        }
        hooks
    }

    fn libcs_hook(&mut self, site: &SyscallSite, futex: Option<Notice>) -> Option<PlannedSite> {
        let recall = self.ground.recall;
        let body = match site.nr {
            u32::MAX => Body::SyscallAny {
                numbers: numbers(),
                recall,
                futex,
            },
            nr => Body::Syscall {
                nr,
                recall: Some(recall),
            },
        };
        self.hook(site, &body)
    }

    fn hook(&mut self, site: &SyscallSite, body: &Body) -> Option<PlannedSite> {
        let behind = site.syscall + SYSCALL.len() as u64;
        let same = |known: &Site| known.body == body_hash(body);
        if let Some(known) = self.again_at(site.address, same) {
            return Some(PlannedSite { behind, ..known });
        }
        let patch = self.planner.place(&site.shape, body, Vec::new).ok()?;
        let planned = (patch.strategy == Strategy::Jump).then(|| planned(patch, 0, body))?;
        Some(PlannedSite { behind, ..planned })
    }
}

/// Returns a bit for each hooked number.
fn numbers() -> [u64; 8] {
    let mut numbers = [0; 8];
    for nr in HOOKED {
        numbers[*nr as usize / 64] |= 1 << (nr % 64);
    }
    numbers
}

/// Extends a function that ends before its `syscall`. A function without a name has the length of
/// its unwind information, and clone3's ends before the `syscall`, because that information
/// would be wrong for the child afterwards.
fn with_last_call(code: FunctionCode<'_>) -> FunctionCode<'_> {
    let split = code.bytes.split_at_checked(code.size);
    let is_cut = split.is_some_and(|(own, next)| {
        own.iter().nth_back(4) == Some(&0xb8) && next.starts_with(&SYSCALL)
    });
    let missing = if is_cut { SYSCALL.len() } else { 0 };
    FunctionCode {
        size: code.size + missing,
        ..code
    }
}

/// Returns whether code contains a `syscall` and one of these numbers as an immediate.
fn may_call(bytes: &[u8], numbers: &[u32]) -> bool {
    let mut four = bytes
        .windows(4)
        .filter_map(|four| <[u8; 4]>::try_from(four).ok());
    bytes.windows(2).any(|pair| pair == SYSCALL)
        && four.any(|four| numbers.contains(&u32::from_le_bytes(four)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hook runs before a call, and relies on the call being at that place.
    #[test]
    fn what_is_hooked_is_never_made_elsewhere() {
        assert!(HOOKED.iter().all(|nr| tiptoe_patch::stays(*nr)));
        assert!(HOOKED_EVERYWHERE.iter().all(|nr| HOOKED.contains(nr)));
    }
}
