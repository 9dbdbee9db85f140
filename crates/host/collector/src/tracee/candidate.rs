//! A probe that the kernel should count, because the agent (tiptoe's library) does not.

use tiptoe_kernel::Step;

use crate::error::Reason;
use crate::planner::PlannedSite;
use crate::resolve::Probe;

pub struct Candidate {
    pub probe: Probe,
    pub why: Option<Reason>,
    /// The trap that the agent sets if the kernel does not take the probe.
    pub trap: Option<PlannedSite>,
}

impl Candidate {
    pub fn new(probe: Probe, why: Option<Reason>) -> Candidate {
        let trap = None;
        Candidate { probe, why, trap }
    }
}

/// Returns the refusals of probes that neither the agent nor the kernel took. `otherwise` is the reason if a probe has
/// none.
pub fn refusals(
    probes: Vec<Candidate>,
    otherwise: &Reason,
) -> impl Iterator<Item = (String, Reason)> {
    probes.into_iter().map(move |one| {
        let why = one.why.unwrap_or_else(|| otherwise.clone());
        (one.probe.event, why)
    })
}

pub fn step_at(probe: &Probe) -> Step {
    tiptoe_kernel::step(instruction(probe).unwrap_or_default())
}

pub fn against(probe: &Probe) -> Option<Reason> {
    // A cold part is entered by a jump from the middle of its function. The function's variables may be below the
    // stack pointer, where the kernel's probe may write.
    let at_entry = probe.offset == 0 && !probe.function.is_cold;
    match instruction(probe) {
        Some(code) => tiptoe_kernel::unprobeable(code, at_entry).map(Reason::Unprobeable),
        None => Some(Reason::NotInFile),
    }
}

fn instruction(probe: &Probe) -> Option<&[u8]> {
    let code = probe.object.code(&probe.function, probe.bias)?;
    let offset = usize::try_from(probe.offset).ok()?;
    let code = code.bytes.get(offset..)?;
    (!code.is_empty()).then_some(code)
}
