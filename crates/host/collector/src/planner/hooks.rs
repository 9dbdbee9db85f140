//! Plans the hooks of system calls.

use std::collections::BTreeMap;

use tiptoe_patch::{
    Body, FunctionCode, Notice, Strategy, SyscallSite, any_futex_site, syscall_sites,
};

use super::{Draft, HookLocation, Locks, PatchPlan, PlannedSite, body_hash, hash, planned};
use crate::module::{ARCH_PRCTL, HOOKED_EVERYWHERE, Module, SYSCALL, may_call, with_last_call};
use crate::resolve::Probe;

/// The calls that the agent (tiptoe's library) must see before the kernel does. For numbers without a reason in their
/// comment, the hook keeps the agent from disturbing the program's signals or namespaces.
const HOOKED: &[u32] = &[
    13, 14, 127, // rt_sigaction, rt_sigprocmask, rt_sigpending
    128, 130, 270, 271, 281, 441, // sigtimedwait, sigsuspend, pselect6, ppoll, epoll_pwait(2)
    282, 289, // signalfd, signalfd4
    9, 10, 11, 25, 329, // mmap, mprotect, munmap, mremap, pkey_mprotect: change the mappings
    151, // mlockall: must not lock the agent's memory
    59, 322, // execve, execveat: the new program inherits the blocked signals
    272, 308, // unshare, setns
    56, 57, 58,
    435, // clone, fork, vfork, clone3: the child must not find its parent's counters, and forks are counted
    101, // ptrace: a forked child's tracer would see the signals of trap bytes
    157, 317, // prctl, seccomp: may put the program under a filter
    158, // arch_prctl: changes the thread-local block
];

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
            } else if may_call(&code, HOOKED) {
                for site in syscall_sites(&code, HOOKED) {
                    let hook = self.libcs_hook(&site, None);
                    hooks.extend(hook.map(|hook| (site.address, hook)));
                }
            }
        }
        hooks.into_values().collect()
    }

    /// Plans hooks outside the C library, for calls whose number is a constant. A hook that may overlap a probe is left
    /// out, except arch_prctl's, because the agent must not be in the program without that hook.
    pub(super) fn hooks_elsewhere(
        &mut self,
        module: &Module,
        probes: &[Probe],
        plan: &mut PatchPlan,
    ) {
        let image = &module.object.image;
        let own = module.object.own_calls().functions.iter();
        for function in own.filter_map(|address| image.function_containing(*address)) {
            let code = module.object.code(function, module.bias);
            let Some(code) = code.map(with_last_call) else {
                continue;
            };
            for site in syscall_sites(&code, HOOKED_EVERYWHERE) {
                let is_storage = site.nr == ARCH_PRCTL;
                if !is_storage && probes.iter().any(|probe| may_meet(probe, &site)) {
                    continue;
                }
                match self.hook_elsewhere(&code, &site) {
                    Some(mut hook) => {
                        hook.location = match is_storage {
                            true => HookLocation::Storage,
                            false => HookLocation::Elsewhere,
                        };
                        plan.hooks.push(hook);
                    }
                    None if is_storage => {
                        plan.unhooked =
                            Some(format!("{}:{}", module.name, function.display_name()));
                    }
                    None => {}
                }
            }
        }
    }

    /// Plans a hook, or reuses the site (patched place) of an earlier session if the code up to the system call is
    /// the same. If the code differs, another library has been mapped since.
    fn hook_elsewhere(
        &mut self,
        code: &FunctionCode<'_>,
        site: &SyscallSite,
    ) -> Option<PlannedSite> {
        let body = Body::Syscall {
            nr: site.nr,
            recall: None,
        };
        let position = |address: u64| (address - code.address) as usize;
        let end = position(site.syscall) + SYSCALL.len();
        let bytes = code.bytes.get(position(site.address)..end)?;
        self.hook(site, &body, hash(&format!("{body:?} {bytes:x?}")))
    }

    fn libcs_hook(&mut self, site: &SyscallSite, futex: Option<Notice>) -> Option<PlannedSite> {
        let recall = self.state.recall;
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
        self.hook(site, &body, body_hash(&body))
    }

    fn hook(&mut self, site: &SyscallSite, body: &Body, hash: u32) -> Option<PlannedSite> {
        let mut hook = match self.reusable_at(site.address, |known| known.body == hash) {
            Some(known) => known,
            None => {
                let patch = self.planner.plan(&site.shape, body, Vec::new).ok()?;
                (patch.strategy == Strategy::Jump).then(|| planned(patch, 0, body))?
            }
        };
        hook.site.body = hash;
        hook.after_syscall = site.syscall + SYSCALL.len() as u64;
        Some(hook)
    }
}

fn may_meet(probe: &Probe, site: &SyscallSite) -> bool {
    const LONGEST: u64 = 32;
    let at = probe.address();
    at < site.syscall + SYSCALL.len() as u64 && at + LONGEST > site.address
}

fn numbers() -> [u64; 8] {
    let mut numbers = [0; 8];
    for nr in HOOKED {
        numbers[*nr as usize / 64] |= 1 << (nr % 64);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy of a hooked call in another patch would bypass the hook.
    #[test]
    fn hooked_calls_are_never_made_from_a_copy() {
        assert!(HOOKED.iter().all(|nr| tiptoe_patch::stays(*nr)));
        assert!(HOOKED_EVERYWHERE.iter().all(|nr| HOOKED.contains(nr)));
    }
}
