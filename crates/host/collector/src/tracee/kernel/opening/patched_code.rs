//! Keeps the kernel's probes off patched bytes. At a hit of a probe on such a byte, the kernel would run the file's
//! instruction instead of the patched instruction. Inside a jump, the probe's trap byte would change the jump's
//! target, and the next hit would go to a random address.

use std::fs::File;
use std::os::unix::fs::FileExt;

use tiptoe_patch::is_head_patched;
use tiptoe_sys::host::procfs::{Mapping, Process};

use crate::error::Reason;
use crate::module::key_of;
use crate::resolve::Probe;
use crate::tracee::Patches;

const HOOK: u64 = 5;

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

    /// Returns why the probe is refused: it is on a byte of a patch of the agent's (tiptoe's library), or after the
    /// first byte of any other patch.
    pub(super) fn against(&self, probe: &Probe) -> Option<Reason> {
        let mut hooks = self.patches.hooks.iter();
        let mut on_hook = || hooks.any(|hook| (*hook..hook + HOOK).contains(&probe.address()));
        let own = self.patches.displaced_by(probe);
        let hook = || on_hook().then_some(Reason::Hooked);
        let other = || self.is_inside_patch(probe).then_some(Reason::InsidePatch);
        own.or_else(hook).or_else(other)
    }

    /// Returns whether the probe's address is in a patch, after the patch's first byte; `false` if the program has
    /// not begun.
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
