//! Keeps the kernel's probes off patched bytes. Under a probe there, the kernel would run the
//! file's instruction instead of the patched one, and its trap byte inside a jump would send the
//! next hit to a random address.

use std::fs::File;
use std::os::unix::fs::FileExt;

use tiptoe_patch::is_head_patched;
use tiptoe_sys::host::procfs::{Mapping, Process};

use crate::error::Reason;
use crate::module::key_of;
use crate::resolve::Probe;
use crate::tracee::Patches;

const HOOK: u64 = 5;

/// A process's code in memory, its mappings, and what the agent has patched.
pub(super) struct PatchedCode<'a> {
    maps: Vec<Mapping>,
    memory: Option<File>,
    patches: &'a Patches,
}

impl PatchedCode<'_> {
    pub(super) fn of(process: Process, patches: &Patches) -> PatchedCode<'_> {
        PatchedCode {
            maps: process.maps().unwrap_or_default(),
            memory: File::open(format!("/proc/{}/mem", process.pid())).ok(),
            patches,
        }
    }

    /// Returns the refusal of a probe on a byte of the agent's patches, or inside any other patch after its first byte.
    pub(super) fn against(&self, probe: &Probe) -> Option<Reason> {
        let mut hooks = self.patches.hooks.iter();
        let mut on_hook = || hooks.any(|hook| (*hook..hook + HOOK).contains(&probe.address()));
        let own = self.patches.displaced_by(probe);
        let hook = || on_hook().then_some(Reason::Hooked);
        let other = || self.is_inside_patch(probe).then_some(Reason::InsidePatch);
        own.or_else(hook).or_else(other)
    }

    /// Returns whether the instruction is inside a patch, after its first byte; `false` if the
    /// program has not begun, because its code is not mapped.
    fn is_inside_patch(&self, probe: &Probe) -> bool {
        let address = probe.address();
        let is_there =
            |mapping: &Mapping| mapping.contains(address) && key_of(mapping) == probe.object.key;
        let now = self.memory.as_ref().and_then(|memory| {
            self.maps.iter().find(|mapping| is_there(mapping))?;
            let mut bytes = [0; 2];
            memory.read_exact_at(&mut bytes, address).ok()?;
            Some(bytes)
        });
        let code = probe.object.code_from(address.wrapping_sub(probe.bias));
        let original = code.and_then(<[u8]>::first_chunk);
        now.zip(original)
            .is_some_and(|(now, original)| is_head_patched(now, *original))
    }
}
