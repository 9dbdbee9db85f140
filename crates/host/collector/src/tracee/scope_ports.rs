//! The scopes (named parts of the run) of one process: finds its libraries' ports, the tables by which a library
//! calls the agent ([`tiptoe_port`]), and reads the sums of the process's threads.

use std::fs::File;
use std::os::unix::fs::FileExt;

use tiptoe_attach::link::Link;
use tiptoe_event::{Counter, CounterKind};
use tiptoe_kernel::scopes::{MOST_EVENTS, NodeSums, ScopesWanted, can_charge};
use tiptoe_kernel::{ProgramTimes, Scopes};
use tiptoe_port::{Kind, Port};
use tiptoe_session::{KernelNote, Note, ScopeNote};
use tiptoe_sys::host::procfs::Process;
use tiptoe_wire::Geometry;
use tiptoe_wire::scopes::{SINCE, WIDTH};

use super::{Coverage, Plan, TracedProcess};
use crate::counts::{self, SlabOwner};
use crate::error::Error;
use crate::module::Module;
use crate::request::Request;
use crate::scopes::{ScopeTimes, Tree};
use crate::words::session_target;

/// The most bytes of one file's ports to read.
const MOST: u64 = 1 << 16;

pub type ChargedEvents = (Vec<String>, Vec<NodeSums>);

/// The kernel's number of the task clock; the CPU clock's is lower.
const TASK_CLOCK: u64 = 1;
const TRIES: usize = 20;

#[derive(Default)]
pub struct ScopeWatch {
    has_ports: bool,
    charging: Option<Scopes>,
}

impl ScopeWatch {
    /// `now` is in ns.
    pub fn charged(&self, now: u64) -> Result<Option<ChargedEvents>, Error> {
        let Some(charging) = &self.charging else {
            return Ok(None);
        };
        let names = charging.names().map(str::to_owned).collect();
        Ok(Some((names, charging.read(now)?)))
    }

    pub fn charging_times(&self) -> Option<(ProgramTimes, Option<ProgramTimes>)> {
        let charging = self.charging.as_ref()?;
        Some((charging.times().ok()?, charging.times_of_all()))
    }

    /// Makes ports call the agent (tiptoe's library) when threads enter scopes or wait for locks.
    pub fn open_ports(
        &mut self,
        process: &TracedProcess,
        plan: &Plan,
        modules: &[Module],
    ) -> Result<(), Error> {
        let link = process.link()?;
        if plan.locks() {
            // Locks of a port that stays closed are seen through their futex calls.
            link.open_ports(&ports(process.target.process, modules, Kind::Locks))?;
        }
        if plan.request.needs_scopes() {
            let opened = link.open_ports(&ports(process.target.process, modules, Kind::Scopes))?;
            self.has_ports |= opened.contains(&0);
        }
        Ok(())
    }

    /// Begins to charge events, then opens the ports, so that no scope is entered uncharged.
    pub fn begin(
        &mut self,
        process: &TracedProcess,
        plan: &Plan,
        modules: &[Module],
        coverage: &mut Coverage,
    ) -> Result<(), Error> {
        if !plan.request.needs_scopes() && !plan.locks() || process.target.link.is_none() {
            return Ok(());
        }
        if plan.request.reports_scopes() {
            self.charge_events(process, plan.request, coverage)?;
        }
        self.open_ports(process, plan, modules)
    }

    /// If the kernel refuses, only times are reported.
    fn charge_events(
        &mut self,
        process: &TracedProcess,
        request: &Request<'_>,
        coverage: &mut Coverage,
    ) -> Result<(), Error> {
        match charge(process, &charged_counters(request)?, coverage) {
            Ok(charging) => self.charging = Some(charging),
            Err(error) => {
                let why = error.to_string();
                coverage.note(ScopeNote::Uncharged { why });
            }
        }
        Ok(())
    }

    pub fn without_scopes(&self, process: &TracedProcess, plan: &Plan) -> Option<Note> {
        let none = plan.request.needs_scopes() && !self.has_ports;
        none.then(|| {
            let link = &process.target.link;
            let process = session_target(&process.target);
            let note = match link {
                Some(_) => ScopeNote::NeverEntered { process },
                None => ScopeNote::Unseen { process },
            };
            note.into()
        })
    }
}

fn charge(
    process: &TracedProcess,
    counters: &[Counter<'_>],
    coverage: &mut Coverage,
) -> Result<Scopes, tiptoe_kernel::Error> {
    let hello = process.link().ok().and_then(|link| link.data().hello());
    let wanted = ScopesWanted {
        pid: process.target.process.pid(),
        thread_offset: hello.map_or(0, |hello| hello.tls),
        node_offset: Geometry::SCOPE * 8,
    };
    let threads = || {
        let mut threads = process.target.process.threads().unwrap_or_default();
        threads.retain(|tid| Some(*tid) != process.presence.thread);
        threads
    };
    let mut tries = TRIES;
    loop {
        let mut charging = Scopes::load(&wanted, counters)?;
        let before = threads();
        charging.start(counters, &before)?;
        tries -= 1;
        // Race: a thread that started since `before` may lack its parent's events.
        let is_complete = counters.is_empty() || threads() == before;
        if !is_complete && tries > 0 {
            continue;
        }
        if !is_complete {
            coverage.note(KernelNote::ThreadsMissing);
        }
        return Ok(charging);
    }
}

/// Fails if scopes are requested and no library of a running program reports any.
pub fn find_ports(process: &TracedProcess, plan: &Plan, modules: &[Module]) -> Result<(), Error> {
    if plan.request.needs_scopes()
        && !plan.request.is_command()
        && ports(process.target.process, modules, Kind::Scopes).is_empty()
    {
        let (pid, comm) = process.target.counted();
        return Err(Error::NoScopes { pid, comm });
    }
    Ok(())
}

fn scopes_link(process: &TracedProcess) -> Option<&Link> {
    let link = process.target.link.as_ref();
    link.filter(|link| link.scope_slot != 0)
}

pub fn scope_names(process: &TracedProcess) -> Result<Tree, Error> {
    let Some(link) = scopes_link(process) else {
        return Ok(Tree::default());
    };
    let slots = link.scope_slot..link.scope_slot + WIDTH;
    let mut tree = Tree::default();
    let each = |owner: Option<&SlabOwner>, words: &[u64]| {
        if owner.is_none() {
            tree = Tree::read(words);
        }
    };
    counts::each_slab(link.data_file(), link.geometry(), slots, each)
        .map_err(Error::unreadable("scopes"))?;
    Ok(tree)
}

/// `now` is in ticks.
pub fn scope_times(process: &TracedProcess, now: u64) -> Result<ScopeTimes, Error> {
    let mut sums = ScopeTimes::default();
    let Some(link) = scopes_link(process) else {
        return Ok(sums);
    };
    let threads = process.target.process.threads().unwrap_or_default();
    // The first words of a slab (a thread's counters), with the node of the thread's present scope, are before the
    // scopes' words.
    let slots = Geometry::SCOPE..link.scope_slot + WIDTH;
    let own = (link.scope_slot - Geometry::SCOPE) as usize;
    let each = |owner: Option<&SlabOwner>, words: &[u64]| {
        let (Some(owner), Some(spent)) = (owner, words.get(own..)) else {
            return;
        };
        let lives = threads.contains(&owner.tid);
        let [node, since] =
            [words.first(), spent.get(SINCE as usize)].map(|w| w.copied().unwrap_or(0));
        let is_in = (lives && since != 0).then(|| (node, now.saturating_sub(since)));
        sums.add(spent, is_in);
    };
    counts::each_slab(link.data_file(), link.geometry(), slots, each)
        .map_err(Error::unreadable("scopes"))?;
    Ok(sums)
}

fn ports(process: Process, modules: &[Module], kind: Kind) -> Vec<u64> {
    let Ok(memory) = File::open(format!("/proc/{}/mem", process.pid())) else {
        return Vec::new();
    };
    let mut ports = Vec::new();
    for module in modules {
        let Some(section) = module.object.ports() else {
            continue;
        };
        let first = section.start.wrapping_add(module.bias);
        let mut bytes = vec![0; (section.end - section.start).min(MOST) as usize];
        if memory.read_exact_at(&mut bytes, first).is_err() {
            continue;
        }
        // Compilers align large objects, so there may be gaps between ports.
        let at = (0..bytes.len()).step_by(align_of::<Port>());
        let found = at.filter(|at| Port::kind_of(&bytes[*at..]) == Some(kind));
        ports.extend(found.map(|at| first + at as u64));
    }
    ports
}

/// Returns the requested counters without clocks, because times are reported anyway.
fn charged_counters<'a>(request: &Request<'a>) -> Result<Vec<Counter<'a>>, Error> {
    let mut all = Vec::new();
    for counter in request.counter_groups().into_iter().flatten() {
        match counter.kind {
            CounterKind::Software(clock) if clock <= TASK_CLOCK => {}
            _ if !can_charge(&counter) => {
                return Err(Error::CpuCounter(counter.text.to_owned()));
            }
            _ => all.push(counter),
        }
    }
    if all.len() > MOST_EVENTS {
        return Err(Error::ManyScopeEvents(all.len()));
    }
    Ok(all)
}
