//! Specs that may match libraries not loaded yet.

use tiptoe_event::spec::{Spec, is_glob};
use tiptoe_sys::host::procfs::Process;

use super::{Resolution, SeenAddresses, find, followable, matches, other_readings, parse};
use crate::error::Error;
use crate::module::Module;
use crate::planner::Follow;

/// Returns whether any spec may match a library that is loaded later. If tiptoe `started` the
/// command, its present libraries are never closed and loaded again.
pub fn may_come_later(
    specs: &[String],
    process: Process,
    modules: &[Module],
    started: bool,
) -> Result<bool, Error> {
    for text in specs {
        let spec = parse(text)?;
        let closable = !started && names_a_library(&spec, process, modules);
        if closable || may_come(&spec, process, modules) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether a spec may match a library that was never loaded before.
pub fn may_come(spec: &Spec, process: Process, modules: &[Module]) -> bool {
    let named =
        |binary| is_glob(binary) || !modules.iter().any(|m| matches(spec.binary, process, m));
    spec.binary.is_some_and(named)
}

/// Returns whether a spec names a loaded library that the program may close.
fn names_a_library(spec: &Spec, process: Process, modules: &[Module]) -> bool {
    let lasts = |module: &&Module| module.is_program || module.name.starts_with("libc.so");
    let mut named = modules
        .iter()
        .filter(|module| matches(spec.binary, process, module));
    spec.binary.is_some() && named.any(|module| !lasts(&module))
}

/// Returns what the specs match in newly loaded libraries. A spec that matches nothing is no error.
pub fn later(
    specs: &[String],
    entries: Follow,
    process: Process,
    modules: &[Module],
) -> Result<Resolution, Error> {
    let mut resolved = Resolution {
        are_late: true,
        ..Resolution::default()
    };
    let mut seen = SeenAddresses::new();
    for text in specs {
        let first = parse(text)?;
        // A spec without a binary means the program, which is never loaded later.
        let mut named = std::iter::once(first)
            .chain(other_readings(text))
            .filter(|spec| spec.binary.is_some());
        let found = named.any(|spec| {
            let wanted = (&spec, followable::wanted(&spec, entries));
            find(&mut resolved, &mut seen, wanted, process, modules).is_ok()
        });
        if found {
            resolved.met.push(text.clone());
        }
    }
    Ok(resolved)
}
