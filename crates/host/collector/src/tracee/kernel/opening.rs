//! Opens the kernel's probes of functions that the agent (tiptoe's library) does not patch.

use std::collections::BTreeMap;
use std::fs::File;

use tiptoe_event::Via;
use tiptoe_kernel::{CountedThreads, Error as KernelError, KernelProbe, RefusedProbe, UprobeSet};
use tiptoe_price::KernelCosts;
use tiptoe_session::KernelNote;
use tiptoe_sys::host::procfs::path_of;

use super::throttle::{Throttle, Uprobes};
use super::{KernelCounter, KernelProbes};
use crate::error::{AgentOption, Error, Reason};
use crate::module::FileKey;
use crate::planner::{Follow, PlannedSite};
use crate::resolve::Probe;
use crate::tracee::{Candidate, Counter, Coverage, Patches, Plan, TracedProcess};
use crate::tracee::{against, refusals, step_at};

mod patched_code;

use patched_code::PatchedCode;

pub struct KernelOpening<'a> {
    pub plan: &'a Plan<'a>,
    pub process: &'a TracedProcess,
    pub patches: &'a Patches,
    pub coverage: &'a mut Coverage,
    pub kernel: &'a mut KernelProbes,
}

impl KernelOpening<'_> {
    /// Returns the probes that the kernel does not take and for which the agent can set a trap.
    pub fn open(&mut self, probes: Vec<Candidate>) -> Result<Vec<(Probe, PlannedSite)>, Error> {
        let plan = self.plan;
        if plan.request.via == Via::Agent {
            self.coverage.refuse(refusals(probes, &Reason::CannotPatch));
            return Ok(Vec::new());
        }
        if let Some(option) = plan.against_kernel() {
            if self.process.target.link.is_none() {
                return Err(self.coverage.or_agent(Error::AgentOnly(option)));
            }
            let why = Error::AgentOnly(option).into();
            self.coverage.refuse(refusals(probes, &why));
            return Ok(Vec::new());
        }
        let probes = self.entries_only(probes)?;
        self.note_untimed(&probes);
        let entries = probes.into_iter().map(|candidate| Candidate {
            probe: candidate.probe.of_entries(),
            ..candidate
        });
        let patched = PatchedCode::of(self.process.target.process, self.patches);
        let on_patch = |one: &Candidate| patched.against(&one.probe);
        let probes = self.refuse_where(entries.collect(), on_patch)?;
        let probes = self.refuse_where(probes, unprobeable)?;
        if probes.is_empty() {
            return Ok(Vec::new());
        }
        self.note_unsplit()?;
        let (files, places) = places(&probes)?;
        let prices = |share| (share, prices(&probes, plan.fetch_kernel_costs()));
        let prices = plan.request.budget_share().map(prices);
        self.process.note_begun();
        let set = UprobeSet::open(self.process.target.process, &places);
        let counts_all = matches!(&set, Ok(set) if set.who() == CountedThreads::Process);
        if !counts_all && probes.iter().any(|candidate| candidate.trap.is_some()) {
            // This set counts only existing threads. A trap also counts threads that start later.
            drop(set);
            return self.open_without_traps(probes);
        }
        let mut set = match set {
            Ok(set) => set,
            Err(error) if self.process.target.link.is_some() => {
                let why = error.to_string();
                self.coverage.note(KernelNote::TakesNoProbe { why });
                self.coverage.refuse(refusals(probes, &Reason::CannotPatch));
                return Ok(Vec::new());
            }
            Err(error) => return Err(self.coverage.or_agent(error.into())),
        };
        let traps = self.read_from(set.take_refused(), probes);
        if let CountedThreads::Threads(threads) = set.who() {
            let threads = threads.len() as u64;
            self.coverage.note(KernelNote::CountsInThreads { threads });
        }
        let used = self.process.target.fetch_total_cpu_time();
        let throttle = prices.map(|(share, prices)| Throttle::new(share, prices, files, used));
        self.kernel.uprobes = Some(Uprobes {
            set,
            throttle,
            is_throttled: false,
        });
        Ok(traps)
    }

    /// Returns all probes that have a trap, for the agent, and opens the other probes.
    fn open_without_traps(
        &mut self,
        probes: Vec<Candidate>,
    ) -> Result<Vec<(Probe, PlannedSite)>, Error> {
        let has_trap = |candidate: &Candidate| candidate.trap.is_some();
        let (trapped, others): (Vec<_>, Vec<_>) = probes.into_iter().partition(has_trap);
        let trapped = trapped.into_iter();
        let mut traps: Vec<_> = trapped
            .filter_map(|one| Some((one.probe, one.trap?)))
            .collect();
        if !others.is_empty() {
            traps.extend(self.open(others)?);
        }
        Ok(traps)
    }

    /// Adds a counter for each probe of a set, in the set's order. Returns the refused probes that have a trap.
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
            if let Some(refusal) = refusals.remove(&index) {
                match (refusal, trap) {
                    (Reason::BrokenOff, _) => self.coverage.unattached += 1,
                    (_, Some(trap)) => traps.push((probe, trap)),
                    (why, None) => self.coverage.refused.push((probe.event, why)),
                }
                continue;
            }
            if let Some(why) = why {
                left.entry(why.to_string())
                    .or_default()
                    .push(probe.event.clone());
            }
            self.kernel
                .places
                .insert((probe.object.key, probe.file_offset()));
            let step = step_at(&probe);
            let counter = Counter {
                event: probe.event,
                names: probe.names,
                notes: probe.notes,
            };
            self.kernel.counters.push(KernelCounter {
                counter,
                index,
                step,
            });
        }
        let left = left.into_iter();
        let left = left.map(|(why, events)| KernelNote::Counts { events, why }.into());
        self.coverage.notes.extend(left);
        traps
    }

    /// Refuses probes of returns, because an exception that unwinds past the kernel's return probe ends the program.
    fn entries_only(&mut self, probes: Vec<Candidate>) -> Result<Vec<Candidate>, Error> {
        let (entries, returns): (Vec<_>, Vec<_>) = probes
            .into_iter()
            .partition(|candidate| candidate.probe.follow != Follow::Returns);
        if self.process.target.link.is_none() && !returns.is_empty() {
            return Err(Error::ReturnProbes);
        }
        self.coverage
            .refuse(refusals(returns, &Reason::ReturnProbes));
        Ok(entries)
    }

    /// Refuses the probes for which `against` returns a reason, and returns the other probes. Fails if all are
    /// refused and there is no agent.
    fn refuse_where(
        &mut self,
        probes: Vec<Candidate>,
        against: impl Fn(&Candidate) -> Option<Reason>,
    ) -> Result<Vec<Candidate>, Error> {
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        for candidate in probes {
            match against(&candidate) {
                Some(why) => bad.push((candidate.probe.event, why)),
                None => good.push(candidate),
            }
        }
        match bad.first() {
            Some((event, why)) if good.is_empty() && self.process.target.link.is_none() => {
                let (event, why) = (event.clone(), why.clone());
                Err(Error::NoProbe { event, why })
            }
            _ => {
                self.coverage.refuse(bad);
                Ok(good)
            }
        }
    }

    fn note_untimed(&mut self, probes: &[Candidate]) {
        let timed = probes.iter().map(|candidate| &candidate.probe);
        let timed = timed.filter(|probe| probe.follow.is_timed());
        let events: Vec<String> = timed.map(|probe| probe.event.clone()).collect();
        if !events.is_empty() {
            self.coverage.note(KernelNote::Untimed { events });
        }
    }

    /// Notes that the kernel's counts are not split by `--by`. Fails if only the kernel counts.
    fn note_unsplit(&mut self) -> Result<(), Error> {
        let plan = self.plan;
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

/// The files must stay open, because the places' paths name the files' descriptors.
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

/// Returns why the kernel cannot run a probe's instruction, together with the agent's reason; `None` if the kernel can.
/// The kernel itself refuses only code that is mapped already, and silently counts nothing in a program that starts
/// later.
fn unprobeable(candidate: &Candidate) -> Option<Reason> {
    let why = against(&candidate.probe)?;
    Some(match &candidate.why {
        Some(own) => Reason::NeitherTakes(Box::new([own.clone(), why])),
        None => why,
    })
}

/// The reason lacks the probe's address, because equal reasons are grouped.
fn kernel_reason(error: KernelError) -> Reason {
    match error {
        KernelError::BrokenOff => Reason::BrokenOff,
        KernelError::Unprobeable { .. } => Reason::FirstInstruction,
        other => Error::from(other).into(),
    }
}
