//! Brings the agent (tiptoe's library) into a running process, if nothing forbids the entry.

use std::time::{Duration, Instant};

use tiptoe_attach::end_check;
use tiptoe_attach::inject::{self, Inject, InjectError};
use tiptoe_attach::link::{Link, Terms};
use tiptoe_attach::resident::{AgentFile, dormant_agent, is_another, known_sites};
use tiptoe_event::Via;
use tiptoe_symbol::Header;
use tiptoe_sys::host::limits::{address_space, threads_left};
use tiptoe_sys::host::procfs::{Mapping, Process};
use tiptoe_wire::{Layout, Plan as PlanSegment, Site};

use super::{GREETING, Plan, TracedProcess};
use crate::error::{Error, Reason};
use crate::module::Module;
use crate::planner;
use crate::resolve::{self, Resolution};

const BORROW: Duration = Duration::from_secs(5);
/// The longest time until a program has loaded its libc.
const LOADING: Duration = Duration::from_millis(500);

/// The most functions of later libraries for which counters are reserved.
const LATER: u32 = 1 << 14;

/// The agent must not start its thread if the program's user may start fewer threads than this.
const SPARE_THREADS: u64 = 16;

pub fn unpatchable(header: &Header) -> Option<Reason> {
    let musl = header.interpreter.as_deref().is_some_and(is_musl);
    musl.then_some(Reason::MuslFutexes)
}

fn is_musl(loader: &str) -> bool {
    loader.contains("/ld-musl-")
}

pub fn short_of_room(process: Process) -> Option<Reason> {
    let memory = address_space(process).map(Reason::LimitedMemory);
    memory.or_else(|| {
        let left = threads_left(process).filter(|left| *left < SPARE_THREADS);
        left.map(Reason::FewThreads)
    })
}

impl TracedProcess {
    pub fn rules_against_agent(
        &self,
        plan: &Plan,
        maps: &[Mapping],
        modules: &[Module],
    ) -> Option<Reason> {
        if is_another(self.target.process, maps, plan.request.agent) {
            return Some(Reason::AnotherAgent);
        }
        if let Err(error) = self.known_sites(plan) {
            return Some(error.into());
        }
        let program = modules.iter().find(|module| module.is_program)?;
        let header = program.object.image.header();
        if let Some(reason) = header.refusal_in_process() {
            return Some(Reason::Program(reason));
        }
        if let Some(reason) = unpatchable(header).filter(|_| plan.locks()) {
            return Some(reason);
        }
        if header.interpreter.as_deref().is_some_and(is_musl) {
            return Some(Reason::Musl);
        }
        if plan.request.via != Via::Kernel
            && let Some(name) = planner::replaces_block(modules)
        {
            return Some(Error::ReplacesBlock(name).into());
        }
        if plan.request.force {
            return None;
        }
        let status = self.target.process.status();
        if status.is_ok_and(|status| status.seccomp != 0) {
            return Some(Reason::Seccomp);
        }
        short_of_room(self.target.process)
    }

    /// Returns an earlier session's sites (patched places) from the program's memory. This memory is hostile, so the
    /// call fails if the sites cannot be the agent's.
    pub fn known_sites(&self, plan: &Plan) -> Result<Vec<Site>, Error> {
        let Some(base) = dormant_agent(self.target.process) else {
            return Ok(Vec::new());
        };
        let agent = AgentFile::parse(plan.request.agent)?;
        Ok(known_sites(self.target.process, base, &agent)?)
    }

    pub fn bring_in(
        &self,
        plan: &Plan,
        resolved: &Resolution,
        modules: &[Module],
    ) -> Result<Link, Error> {
        let agent = AgentFile::parse(plan.request.agent)?;
        let pid = self.target.process.pid();
        let known = match &self.known_sites(plan)?[..] {
            [] => 0,
            sites => planner::first_free_slot(sites),
        };
        let probes = resolved.probes.iter().chain(&resolved.ifuncs);
        let widths = probes.map(|probe| probe.follow.width());
        let wanted = widths.fold(0, u32::saturating_add);
        let come = resolve::may_come_later(&plan.probes, self.target.process, modules, false);
        let later = plan.follow().room(LATER * u32::from(come));
        let wanted = plan.follow().within(wanted.saturating_add(later));
        let layout = Layout::of(&plan.needs(known, wanted));
        let geometry = layout.geometry;
        let deadline = Instant::now() + BORROW;
        let young = Instant::now() + LOADING;
        let terms = Terms {
            trap_bytes: self.presence.unseen(modules).is_none(),
            ..plan.terms(&layout)
        };
        loop {
            let mut link = None;
            let injected = inject::inject(Inject {
                pid,
                program: self.presence.program,
                agent: plan.request.agent,
                entry_offset: agent.entry,
                resident: &|| agent.resident(self.target.process),
                data_size: geometry.data_bytes(),
                plan_size: PlanSegment::FILE_BYTES,
                allow_seccomp: plan.request.force,
                deadline: BORROW,
                prepare: &mut |data, plan_fd| {
                    let (data, plan_fd) = (data.try_clone()?, plan_fd.try_clone()?);
                    let opened = Link::new(data, plan_fd, geometry, &terms, end_check(pid))?;
                    opened.is_in(self.target.process, self.presence.program);
                    link = Some(opened);
                    Ok(())
                },
            });
            let injected = match injected {
                Ok(injected) => injected,
                // The program may have just called exec, and not loaded its libc yet.
                Err(InjectError::NoLibc { .. }) if Instant::now() < young => {
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            match injected.entry_result {
                0 => {}
                // EBUSY (-16): the agent of a tiptoe that died still restores code. EALREADY (-114): another tiptoe
                // traces the process.
                -16 if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                }
                -16 | -114 => return Err(Error::OtherTiptoe(pid)),
                code => {
                    let why = std::io::Error::from_raw_os_error(-code as i32);
                    return Err(Error::AgentRefused(why));
                }
            }
            let link = link.ok_or(Error::NoSegments)?;
            // The agent's thread makes further calls, which the kernel may refuse.
            link.wait_for_hello(GREETING);
            return match link.refusal() {
                Some(why) => Err(Error::AgentRefused(why)),
                None => Ok(link),
            };
        }
    }
}
