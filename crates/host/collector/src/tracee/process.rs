//! One attached process, the presence of the agent (tiptoe's library) in the process, and how the trace ends.

use std::time::Duration;

use tiptoe_attach::inject::Masks;
use tiptoe_attach::link::Link;
use tiptoe_attach::phase::Phase;
use tiptoe_attach::resident::{AgentFile, agent_in, agent_thread};
use tiptoe_attach::{Attached, loader};
use tiptoe_session::AddressSpace;
use tiptoe_sys::host::procfs::Mapping;
use tiptoe_wire::{Hello, Site, slots};

use super::Plan;
use crate::clock::RunClock;
use crate::counts;
use crate::error::Error;
use crate::module::Module;
use crate::resolve;
use crate::ulocks;
use end_reason::ReportedEnds;
use presence::AgentPresence;

mod confinement;
mod end_reason;
mod enter;
mod presence;
pub mod process_kind;
mod restore_outside;
mod watches;

pub use enter::{short_of_room, unpatchable};
pub use presence::TrapFreeProcess;
pub use watches::ArmedThreads;

const GREETING: Duration = Duration::from_secs(5);
/// How often the threads are listed in search of the agent's thread.
const LISTS: usize = 20;

pub struct TracedProcess {
    pub target: Attached,
    pub since: RunClock,
    pub presence: AgentPresence,
    reported: ReportedEnds,
}

impl TracedProcess {
    pub fn new(target: Attached) -> TracedProcess {
        let process = target.process;
        TracedProcess {
            target,
            since: RunClock::start(),
            presence: AgentPresence::of(process),
            reported: ReportedEnds::default(),
        }
    }

    pub fn link(&self) -> Result<&Link, Error> {
        self.target.link.as_ref().ok_or(Error::AgentLeft)
    }

    pub fn has_serving_agent(&self) -> bool {
        self.presence.serves(&self.target)
    }

    /// Waits for the agent's first message, and finds the agent's thread. Fails if that thread has not given up its
    /// capabilities.
    pub fn greet(&mut self) -> Result<Hello, Error> {
        let (process, link) = (self.target.process, self.link()?);
        let hello = link.wait_for_hello(GREETING).ok_or_else(|| {
            let pid = process.pid();
            match link.has_lost_target() {
                true => Error::TargetLost(pid),
                false => Error::AgentLate(pid),
            }
        })?;
        link.is_in(process, self.presence.program);
        // A list that is read while threads start and end may lack threads.
        let agent = || agent_thread(process, link.data().thread());
        self.presence.thread = (0..LISTS).find_map(|_| agent());
        self.presence.check_confined(process)?;
        Ok(hello)
    }

    /// Decides whether trap bytes may be written, and returns the signals that the agent handles. `tls` is the offset
    /// of the agent's thread-local words.
    pub fn own_signals(
        &mut self,
        tls: i64,
        maps: &[Mapping],
        modules: &[Module],
    ) -> Result<Masks, Error> {
        let prepared = self.link()?.prepare()?;
        let masks = self
            .presence
            .masks(self.target.process, tls, prepared, maps)?;
        self.presence.own(masks, modules);
        self.link()?.set_trap_bytes(self.presence.quiet.is_none());
        Ok(masks)
    }

    pub fn may_be_armed(&self, site: &Site) -> bool {
        self.presence.quiet.is_none() || site.is_guard() || site.is_quiet()
    }

    /// Must be called as soon as some functions are counted, because from then on a signal must not end tiptoe before
    /// the report.
    pub fn note_begun(&self) {
        if Phase::now() == Phase::Preparing && !self.target.is_command() {
            Phase::Attaching.begin();
        }
    }

    pub fn rename_agent(&self, plan: &Plan, maps: &[Mapping]) -> Result<(), Error> {
        if let Some(base) = agent_in(maps) {
            let name = base + AgentFile::parse(plan.request.agent)?.name;
            let _ = loader::rename(self.target.process, base, name);
        }
        Ok(())
    }

    /// Returns the loader's record if later libraries matter: a spec may match them, they may
    /// contain an unwinder, or they may report scopes.
    pub fn loader_record(&self, plan: &Plan, modules: &[Module]) -> Option<(u64, u64)> {
        let process = self.target.process;
        let come = resolve::may_come_later(&plan.probes, process, modules, self.target.is_held());
        let wanted = come || plan.follow().is_followed() || plan.request.needs_scopes();
        wanted
            .then(|| loader::record(self.target.process))
            .flatten()
    }

    pub fn lock_to_hold(
        &self,
        plan: &Plan,
        modules: &[Module],
        maps: &[Mapping],
    ) -> Result<Option<u64>, Error> {
        let lock = plan
            .hold()
            .map(|name| ulocks::address_of(name, modules, maps));
        let pid = self.target.process.pid();
        lock.transpose().map_err(|why| Error::BadHold { pid, why })
    }

    /// Makes the agent remove its patches and leave. The counts stay readable.
    pub fn detach(&self) -> Result<(), Error> {
        match &self.target.link {
            Some(link) if self.has_serving_agent() => {
                let masks = self.presence.masks_now(self.target.process, link);
                let detached = link.detach(|settle| {
                    let still = |masks: Masks| masks.give_back(|| link.while_still(&mut *settle));
                    if masks.map(still).is_none_or(|done| done.is_err()) {
                        // Threads cannot be stopped, so their blocked signals are not restored.
                        settle();
                    }
                });
                Ok(detached?)
            }
            _ => Ok(()),
        }
    }

    /// Returns the agent's statistics of its copy of the address space. The statistics may only be displayed, because
    /// the target can write to them.
    pub fn address_space(&self) -> Option<AddressSpace> {
        let link = self.target.link.as_ref()?;
        if self.has_serving_agent() {
            let _ = link.read_maps();
        }
        let readings = link.data().readings();
        let counted = slots::SPECULATIVE..slots::UNSURE + 1;
        let sums = counts::sums(link.data_file(), link.geometry(), counted).ok()?;
        let sum = |slot: u32| sums[(slot - slots::SPECULATIVE) as usize];
        Some(AddressSpace {
            speculative: sum(slots::SPECULATIVE),
            locked: sum(slots::LOCKED),
            missed: sum(slots::MISSED),
            unsure: sum(slots::UNSURE),
            changes: sum(slots::CHANGES),
            readings: readings.readings,
            corrected: readings.corrected,
            mappings: readings.mappings,
            bytes: readings.bytes,
        })
    }
}
