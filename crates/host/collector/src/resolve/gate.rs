//! Resolves the gate, which is the function of `--under`: hits count only inside its calls.

use tiptoe_event::ProbeSpec;
use tiptoe_sys::host::procfs::Process;

use super::{Resolution, resolve_all};
use crate::error::{Error, Reason};
use crate::module::Module;
use crate::planner::Follow;

/// Adds the gate's probes, and refuses other probes at the gate's addresses, because a patch serves only one probe.
pub fn below(
    mut resolved: Resolution,
    function: ProbeSpec<'_>,
    process: Process,
    modules: &[Module],
) -> Result<Resolution, Error> {
    let failure = |error| Error::Under(Box::new(error));
    let gates =
        resolve_all(&[function], |_| Follow::Gate, process, modules, false).map_err(failure)?;
    let opens = |address: u64| gates.probes.iter().any(|gate| gate.address() == address);
    let (same, mut probes): (Vec<_>, Vec<_>) = resolved
        .probes
        .into_iter()
        .partition(|probe| opens(probe.address()));
    let why = Reason::IsGate(function.text.to_owned());
    if let (true, Some(probe)) = (
        probes.is_empty() && resolved.ifuncs.is_empty(),
        same.first(),
    ) {
        let event = probe.event.clone();
        return Err(Error::NoProbe { event, why });
    }
    let same = same.into_iter().map(|probe| (probe.event, why.clone()));
    resolved.refused.extend(same);
    resolved.refused.extend(gates.refused);
    probes.extend(gates.probes);
    resolved.probes = probes;
    resolved.ifuncs.extend(gates.ifuncs);
    Ok(resolved)
}
