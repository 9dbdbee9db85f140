//! Counts in the kernel where the agent cannot patch.

use std::collections::BTreeMap;
use std::fs::File;

use tiptoe_event::Via;
use tiptoe_kernel::{
    CountedThreads, Error as KernelError, KernelProbe, RefusedProbe, Step, UprobeSet,
};
use tiptoe_price::KernelCosts;
use tiptoe_session::{KernelNote, Note};
use tiptoe_sys::host::procfs::path_of;
use tiptoe_wire::State;

use super::throttle::{Throttle, Uprobes};
use super::{Counter, KernelUprobe, Plan, Source, Tracee};
use crate::error::{AgentOption, Error, Reason};
use crate::module::{FileKey, Module};
use crate::planner::{Follow, PlannedSite};
use crate::resolve::Probe;
use crate::words::session_target;

/// A probe for the kernel.
pub(super) struct Candidate {
    pub(super) probe: Probe,
    /// Why the agent did not take it.
    pub(super) why: Option<Reason>,
    /// The agent's trap, if the kernel does not take it.
    pub(super) trap: Option<PlannedSite>,
}

impl From<(Probe, Option<Reason>)> for Candidate {
    fn from((probe, why): (Probe, Option<Reason>)) -> Candidate {
        Candidate {
            probe,
            why,
            trap: None,
        }
    }
}

impl Tracee {
    /// Counts in the kernel after the agent failed with `error`. Returns the error unless the agent
    /// has restored everything.
    pub(super) fn leave_to_kernel(
        self,
        plan: &Plan,
        modules: &[Module],
        error: Error,
    ) -> Result<Tracee, Error> {
        let may = plan.request.via != Via::Agent
            && plan.against_kernel().is_none()
            && plan.hold().is_none();
        let link = self.target.link.as_ref().filter(|_| may);
        let has_left =
            link.is_some_and(|link| self.detach().is_ok() && link.data().state() == State::Dormant);
        if !has_left {
            return Err(error);
        }
        let mut target = self.target;
        target.retire_agent();
        let pid = Some(target.process.pid());
        Tracee::kernel_only(target, modules, plan, pid, Some(error.into()))
    }

    /// Counts probes in the kernel. Returns those that the kernel does not take and that have a trap.
    pub(super) fn count_in_kernel(
        &mut self,
        plan: &Plan,
        probes: Vec<Candidate>,
    ) -> Result<Vec<(Probe, PlannedSite)>, Error> {
        if plan.request.via == Via::Agent {
            self.coverage
                .refuse(refuse_all(probes, &Reason::CannotPatch));
            return Ok(Vec::new());
        }
        if let Some(option) = plan.against_kernel() {
            if self.target.link.is_none() {
                return Err(self.coverage.or_agent(Error::AgentOnly(option)));
            }
            let why = Error::AgentOnly(option).into();
            self.coverage.refuse(refuse_all(probes, &why));
            return Ok(Vec::new());
        }
        let probes = self.entries_only(probes)?;
        self.note_untimed(&probes);
        let entries = probes.into_iter().map(|candidate| Candidate {
            probe: candidate.probe.of_entries(),
            ..candidate
        });
        let probes = self.beside_patches(entries.collect())?;
        let probes = self.probeable(probes)?;
        if probes.is_empty() {
            return Ok(Vec::new());
        }
        self.note_unsplit(plan)?;
        let (files, places) = places(&probes)?;
        let prices = |share| (share, prices(&probes, plan.fetch_kernel_costs()));
        let prices = plan.share().map(prices);
        self.note_begun();
        let set = UprobeSet::open(self.target.process, &places);
        let counts_all = matches!(&set, Ok(set) if set.who() == CountedThreads::Process);
        if !counts_all && probes.iter().any(|candidate| candidate.trap.is_some()) {
            // A trap counts threads that start later, too.
            drop(set);
            return self.count_without_traps(plan, probes);
        }
        let mut set = match set {
            Ok(set) => set,
            Err(error) if self.target.link.is_some() => {
                let why = error.to_string();
                self.coverage.note(KernelNote::TakesNoProbe { why });
                self.coverage
                    .refuse(refuse_all(probes, &Reason::CannotPatch));
                return Ok(Vec::new());
            }
            Err(error) => return Err(self.coverage.or_agent(error.into())),
        };
        let traps = self.read_from(set.take_refused(), probes);
        if let CountedThreads::Threads(threads) = set.who() {
            let threads = threads.len() as u64;
            self.coverage.note(KernelNote::CountsInThreads { threads });
        }
        let used = self.target.fetch_total_cpu_time();
        let throttle = prices.map(|(share, prices)| Throttle::new(share, prices, files, used));
        self.uprobes = Some(Uprobes {
            set,
            throttle,
            is_throttled: false,
        });
        Ok(traps)
    }

    /// As [`Tracee::count_in_kernel`], if the kernel takes no probe that has a trap.
    fn count_without_traps(
        &mut self,
        plan: &Plan,
        probes: Vec<Candidate>,
    ) -> Result<Vec<(Probe, PlannedSite)>, Error> {
        let (mut traps, mut others) = (Vec::new(), Vec::new());
        for candidate in probes {
            match candidate.trap {
                Some(trap) => traps.push((candidate.probe, trap)),
                None => others.push(candidate),
            }
        }
        if !others.is_empty() {
            traps.extend(self.count_in_kernel(plan, others)?);
        }
        Ok(traps)
    }

    /// Adds a counter for each probe of a set, in the set's order. Returns the probes that the kernel
    /// refused and that have a trap.
    fn read_from(
        &mut self,
        refused: Vec<RefusedProbe>,
        probes: Vec<Candidate>,
    ) -> Vec<(Probe, PlannedSite)> {
        let refused = refused.into_iter();
        let mut refusals: BTreeMap<usize, Reason> = refused
            .map(|refused| (refused.probe, kernel_reason(refused.error)))
            .collect();
        let mut traps = Vec::new();
        let mut left: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (index, candidate) in probes.into_iter().enumerate() {
            let Candidate { probe, why, trap } = candidate;
            match (refusals.remove(&index), trap) {
                (Some(Reason::BrokenOff), _) => {
                    self.coverage.unattached += 1;
                    continue;
                }
                (Some(_), Some(trap)) => {
                    traps.push((probe, trap));
                    continue;
                }
                (Some(why), None) => {
                    self.coverage.refused.push((probe.event, why));
                    continue;
                }
                (None, _) => {}
            }
            if let Some(why) = why {
                left.entry(why.to_string())
                    .or_default()
                    .push(probe.event.clone());
            }
            self.agent
                .later
                .in_kernel
                .insert((probe.object.key, probe.file_offset()));
            let step = step_at(&probe);
            self.counters.push(Counter {
                event: probe.event,
                names: probe.names,
                notes: probe.notes,
                parameters: None,
                source: Source::Kernel(KernelUprobe { index, step }),
            });
        }
        let left = left.into_iter();
        let left = left.map(|(why, events)| KernelNote::Counts { events, why }.into());
        self.coverage.notes.extend(left);
        traps
    }

    /// Returns the probes of entries. Probes of returns are refused, because an exception that
    /// unwinds past the kernel's return probe ends the program.
    fn entries_only(&mut self, probes: Vec<Candidate>) -> Result<Vec<Candidate>, Error> {
        let (entries, returns): (Vec<_>, Vec<_>) = probes
            .into_iter()
            .partition(|candidate| candidate.probe.follow != Follow::Returns);
        if self.target.link.is_none() && !returns.is_empty() {
            return Err(Error::ReturnProbes);
        }
        self.coverage
            .refuse(refuse_all(returns, &Reason::ReturnProbes));
        Ok(entries)
    }

    /// Returns the probes whose instruction the kernel can run. It refuses other code only if it is
    /// mapped already, and silently counts nothing in a program that starts later.
    fn probeable(&mut self, probes: Vec<Candidate>) -> Result<Vec<Candidate>, Error> {
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        for candidate in probes {
            let Some(why) = against(&candidate.probe) else {
                good.push(candidate);
                continue;
            };
            let why = match candidate.why {
                Some(own) => Reason::NeitherTakes(Box::new([own, why])),
                None => why,
            };
            bad.push((candidate.probe.event, why));
        }
        self.without(good, bad)
    }

    /// Refuses the bad ones, and returns the others. Fails if there are no others, and no agent.
    pub(super) fn without(
        &mut self,
        good: Vec<Candidate>,
        bad: Vec<(String, Reason)>,
    ) -> Result<Vec<Candidate>, Error> {
        match bad.first() {
            Some((event, why)) if good.is_empty() && self.target.link.is_none() => {
                let (event, why) = (event.clone(), why.clone());
                Err(Error::NoProbe { event, why })
            }
            _ => {
                self.coverage.refuse(bad);
                Ok(good)
            }
        }
    }

    /// Returns a note if the kernel also counted in another program after an exec, because no agent
    /// ended the trace.
    pub(super) fn went_on(&self) -> Option<Note> {
        let execed = self
            .uprobes
            .as_ref()
            .is_some_and(|uprobes| uprobes.set.has_execed());
        let process = || session_target(&self.target);
        execed.then(|| KernelNote::CountedOn { process: process() }.into())
    }

    /// Notes calls that the kernel only counts, although the request times them.
    fn note_untimed(&mut self, probes: &[Candidate]) {
        let timed = probes.iter().map(|candidate| &candidate.probe);
        let timed = timed.filter(|probe| probe.follow.is_timed());
        let events: Vec<String> = timed.map(|probe| probe.event.clone()).collect();
        if !events.is_empty() {
            self.coverage.note(KernelNote::Untimed { events });
        }
    }

    /// Notes that the kernel's counts are not split by `--by`. Fails if only the kernel counts.
    fn note_unsplit(&mut self, plan: &Plan) -> Result<(), Error> {
        match plan.request.hit_split() {
            None => {}
            Some(_) if plan.request.via == Via::Kernel => {
                return Err(Error::AgentOnly(AgentOption::By));
            }
            Some(_) => self.coverage.note(KernelNote::Unsplit),
        }
        Ok(())
    }
}

/// Opens the probes' files, which must stay open with the descriptors. Returns the files, and the
/// probes' positions in them.
fn places(probes: &[Candidate]) -> Result<(Vec<File>, Vec<KernelProbe>), Error> {
    let mut files: Vec<(FileKey, File)> = Vec::new();
    let mut places = Vec::with_capacity(probes.len());
    for Candidate { probe, .. } in probes {
        let object = &probe.object;
        let at = match files.iter().position(|(key, _)| *key == object.key) {
            Some(at) => at,
            None => {
                let file = object.file.try_clone().map_err(Error::FileNotHeld)?;
                files.push((object.key, file));
                files.len() - 1
            }
        };
        places.push(KernelProbe {
            path: path_of(&files[at].1),
            offset: probe.file_offset(),
        });
    }
    Ok((files.into_iter().map(|(_, file)| file).collect(), places))
}

fn prices(probes: &[Candidate], costs: KernelCosts) -> Vec<f64> {
    let price = |candidate: &Candidate| costs.of(step_at(&candidate.probe)).ns;
    probes.iter().map(price).collect()
}

/// Returns how the kernel executes the probe's instruction.
pub(super) fn step_at(probe: &Probe) -> Step {
    tiptoe_kernel::step(instruction(probe).unwrap_or_default())
}

/// Returns each event with its own reason, or `why`.
fn refuse_all(probes: Vec<Candidate>, why: &Reason) -> Vec<(String, Reason)> {
    let refusal = |candidate: Candidate| {
        let why = candidate.why.unwrap_or_else(|| why.clone());
        (candidate.probe.event, why)
    };
    probes.into_iter().map(refusal).collect()
}

/// Returns why the kernel cannot run the probe's instruction; `None` if it can.
pub(super) fn against(probe: &Probe) -> Option<Reason> {
    // A cold part is entered by a jump from the middle of its function, whose variables may be
    // below the stack pointer.
    let at_entry = probe.offset == 0 && !probe.function.is_cold;
    match instruction(probe) {
        Some(code) => tiptoe_kernel::unprobeable(code, at_entry).map(Reason::Unprobeable),
        None => Some(Reason::NotInFile),
    }
}

/// Returns the code from the probe's instruction on.
fn instruction(probe: &Probe) -> Option<&[u8]> {
    let code = probe.object.code(&probe.function, probe.bias)?;
    let offset = usize::try_from(probe.offset).ok()?;
    let code = code.bytes.get(offset..)?;
    (!code.is_empty()).then_some(code)
}

/// Returns why the kernel refuses a probe, without its address, so that equal reasons group.
fn kernel_reason(error: KernelError) -> Reason {
    match error {
        KernelError::BrokenOff => Reason::BrokenOff,
        KernelError::Unprobeable { .. } => Reason::FirstInstruction,
        other => Error::from(other).into(),
    }
}
