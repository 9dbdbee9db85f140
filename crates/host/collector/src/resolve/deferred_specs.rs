//! Specs (the user's words for events) that may match libraries not loaded yet.

use tiptoe_event::spec::{ProbeSpec, Spec, is_glob};
use tiptoe_sys::host::procfs::Process;

use super::{Resolution, find, followable, matches};
use crate::module::Module;
use crate::planner::Follow;

/// Returns whether a library that is loaded later may match: a new library, or a loaded library that is closed and
/// loaded again. A command that has not begun (`held`) has only libraries that it is linked to, and does not close
/// them.
pub fn may_come_later(
    specs: &[ProbeSpec<'_>],
    process: Process,
    modules: &[Module],
    held: bool,
) -> bool {
    specs.iter().any(|ProbeSpec { spec, .. }| {
        let closable = !held && names_a_library(spec, process, modules);
        closable || may_come(spec, process, modules)
    })
}

/// Returns whether a spec may match a library that was never loaded before.
pub fn may_come(spec: &Spec, process: Process, modules: &[Module]) -> bool {
    let named =
        |binary| is_glob(binary) || !modules.iter().any(|m| matches(spec.binary, process, m));
    spec.binary.is_some_and(named)
}

fn names_a_library(spec: &Spec, process: Process, modules: &[Module]) -> bool {
    let lasts = |module: &&Module| module.is_program || module.name.starts_with("libc.so");
    let mut named = modules
        .iter()
        .filter(|module| matches(spec.binary, process, module));
    spec.binary.is_some() && named.any(|module| !lasts(&module))
}

/// In newly loaded libraries, a spec without a match is no error.
pub fn later(
    specs: &[ProbeSpec<'_>],
    entries: Follow,
    process: Process,
    modules: &[Module],
) -> Resolution {
    let mut resolved = Resolution {
        are_late: true,
        ..Resolution::default()
    };
    for probe in specs {
        // A spec without a binary means the program, which is never loaded later.
        let mut named = std::iter::once(probe.spec)
            .chain(probe.other_readings())
            .filter(|spec| spec.binary.is_some());
        let found = named.any(|spec| {
            let follow = followable::wanted(&spec, entries);
            find(&mut resolved, &spec, follow, process, modules).is_ok()
        });
        if found {
            resolved.met.push(probe.text.to_owned());
        }
    }
    resolved
}
