//! One process: its modules, its probes, and who counts them.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use object::{Object as _, ObjectSymbol as _};
use tiptoe_event::{Filter, Reading, Via};
use tiptoe_kernel::{KernelProbe, UprobeSet};
use tiptoe_patch::{Abi, Strategy};
use tiptoe_sys::host::procfs::{Process, path_of};
use tiptoe_wire::{Geometry, Map, Plan as PlanSegment, SITE_WORDS, Site};

use crate::counts::{self, Counts};
use crate::inject::{self, Inject};
use crate::link::Link;
use crate::module::{Cache, Module, from_sys};
use crate::planner::{self, Ground, Planned};
use crate::preload;
use crate::request::{By, Error};
use crate::resolve::{self, Probe, Resolved};

/// SIGILL and SIGTRAP as bits of a signal set.
const OWN_SIGNALS: u64 = 1 << 3 | 1 << 4;
/// The most sites that an agent's table may hold; more is not believed.
const MAX_SITES: u64 = 1 << 18;
/// How long finding a thread to borrow may take.
const BORROW: Duration = Duration::from_secs(5);
/// Toggles that one request asks for.
const TOGGLES: u64 = 1000;
/// How long an agent may take to greet.
const GREETING: Duration = Duration::from_secs(5);

/// What all processes of a run share.
pub struct Plan<'a> {
    /// The agent's bytes.
    pub agent: &'static [u8],
    /// The events.
    pub specs: &'a [String],
    /// Which hits count.
    pub filter: Option<Filter>,
    /// Who counts.
    pub via: Via,
    /// What counts are split by.
    pub by: Option<By>,
    /// Patch against the rules.
    pub force: bool,
}

/// How one probe counts.
pub struct Counter {
    /// The resolved spec.
    pub event: String,
    /// Other names.
    pub names: Vec<String>,
    /// Where its count is.
    pub source: Source,
}

/// Where a count is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// In the slabs, at this slot; by a trap for good or by a jump.
    Agent {
        /// The slot.
        slot: u32,
        /// Every hit raises SIGTRAP.
        trap: bool,
    },
    /// In the kernel, at this index of the set.
    Kernel(usize),
}

/// One traced process.
pub struct Tracee {
    /// The process.
    pub process: Process,
    /// Its name when it was attached.
    pub comm: String,
    /// Its command line.
    pub command: Vec<String>,
    /// What is counted.
    pub counters: Vec<Counter>,
    /// What is not: the event and the reason.
    pub refused: Vec<(String, String)>,
    /// What to tell the user.
    pub notes: Vec<String>,
    /// When counting began.
    pub since: Instant,
    cpu_at_start: Duration,
    cpu_last: std::cell::Cell<Duration>,
    link: Option<Link>,
    kernel: Option<UprobeSet>,
    agent_thread: Option<u32>,
    /// Addresses of the armed sites, hooks aside.
    sites: Vec<u64>,
}

/// What has been counted in one process.
pub struct Reads {
    /// One reading for each counter.
    pub readings: Vec<Reading>,
    /// For each thread or name, and counter, its part.
    pub parts: BTreeMap<String, Vec<u64>>,
}

/// Segments for an agent, before there is one.
pub struct Offer {
    geometry: Geometry,
    data: OwnedFd,
    plan: OwnedFd,
}

impl Offer {
    /// Fresh segments for a command that is about to start.
    pub fn new(slots: u32) -> Result<Offer, Error> {
        let geometry = Geometry::for_slots(slots);
        let data = preload::memfd(c"tiptoe-data", geometry.data_bytes());
        let plan = preload::memfd(c"tiptoe-plan", PlanSegment::BYTES);
        match (data, plan) {
            (Ok(data), Ok(plan)) => Ok(Offer {
                geometry,
                data,
                plan,
            }),
            (data, plan) => Err(shared_memory(data.err().or(plan.err()))),
        }
    }

    /// What the program inherits, and the link that waits for its agent.
    pub fn open(&self, keep_slabs: bool, process: u32) -> Result<Link, Error> {
        let copies = self
            .data
            .try_clone()
            .and_then(|data| Ok((data, self.plan.try_clone()?)));
        let linked = copies.and_then(|(data, plan)| {
            let link = Link::new(data, plan, self.geometry, keep_slabs, gone(process))?;
            let last = libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL;
            preload::seal(std::os::fd::AsRawFd::as_raw_fd(&self.plan), last)?;
            preload::seal(
                std::os::fd::AsRawFd::as_raw_fd(&self.data),
                libc::F_SEAL_SEAL,
            )?;
            Ok(link)
        });
        linked.map_err(|error| shared_memory(Some(error)))
    }

    /// What the program is passed.
    pub fn passed(&self, agent: &[u8]) -> Result<preload::Passed, Error> {
        preload::Passed::new(agent, &self.data, &self.plan).map_err(|e| shared_memory(Some(e)))
    }
}

fn shared_memory(error: Option<std::io::Error>) -> Error {
    let why = error.map(|error| error.to_string()).unwrap_or_default();
    Error::new(format!("cannot make shared memory for the counts: {why}"))
}

/// Tells whether a process is no more, zombies included.
fn gone(pid: u32) -> Box<dyn Fn() -> bool + Send> {
    Box::new(move || match Process::new(pid).and_then(Process::status) {
        Ok(status) => matches!(status.state, 'Z' | 'X') && status.threads <= 1,
        Err(_) => true,
    })
}

impl Tracee {
    fn new(process: Process) -> Tracee {
        let cpu = process.cpu_time().unwrap_or_default();
        let words = process.command_line().unwrap_or_default().into_iter();
        Tracee {
            process,
            comm: process.comm().unwrap_or_default(),
            command: words
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            counters: Vec::new(),
            refused: Vec::new(),
            notes: Vec::new(),
            since: Instant::now(),
            cpu_at_start: cpu,
            cpu_last: std::cell::Cell::new(cpu),
            link: None,
            kernel: None,
            agent_thread: None,
            sites: Vec::new(),
        }
    }

    /// Attaches to a running process.
    pub fn attach(pid: u32, plan: &Plan, cache: &mut Cache) -> Result<Tracee, Error> {
        let process = Process::new(pid).map_err(from_sys)?;
        let mut tracee = Tracee::new(process);
        let maps = process.maps().map_err(from_sys)?;
        let modules = cache.modules(process, &maps)?;
        let resolved = resolve::resolve(plan.specs, process, &modules)?;
        let mut agent_refusal = tracee.rules_against_agent(plan, &modules);
        if plan.via != Via::Kernel && agent_refusal.is_none() {
            match tracee.bring_in(plan, &resolved) {
                Ok(link) => tracee.link = Some(link),
                Err(error) if plan.via == Via::Agent => return Err(error),
                Err(error) => agent_refusal = Some(error.to_string()),
            }
        }
        if let Some(reason) = &agent_refusal {
            if plan.via == Via::Agent {
                return Err(
                    Error::new(format!("the agent cannot enter process {pid}: {reason}"))
                        .with_hint("`--via kernel` counts the same functions"),
                );
            }
            tracee
                .notes
                .push(format!("process {pid} is traced by the kernel: {reason}"));
        }
        tracee.begin(plan, resolved, &modules)?;
        Ok(tracee)
    }

    /// Takes over a command that waits in the agent's constructor.
    pub fn adopt(pid: u32, link: Link, plan: &Plan, cache: &mut Cache) -> Result<Tracee, Error> {
        let process = Process::new(pid).map_err(from_sys)?;
        let mut tracee = Tracee::new(process);
        tracee.link = Some(link);
        let maps = process.maps().map_err(from_sys)?;
        let modules = cache.modules(process, &maps)?;
        let resolved = resolve::resolve(plan.specs, process, &modules)?;
        tracee.begin(plan, resolved, &modules)?;
        if let Some(link) = &tracee.link {
            tracee.since = Instant::now();
            link.go()?;
        }
        Ok(tracee)
    }

    /// Counts in a command that is about to exec `program`, through the kernel.
    pub fn kernel_only(pid: u32, modules: &[Module], plan: &Plan) -> Result<Tracee, Error> {
        let process = Process::new(pid).map_err(from_sys)?;
        let mut tracee = Tracee::new(process);
        let resolved = resolve::resolve(plan.specs, process, modules)?;
        tracee.begin(plan, resolved, modules)?;
        Ok(tracee)
    }

    /// Why the agent must not enter, if so.
    fn rules_against_agent(&self, plan: &Plan, modules: &[Module]) -> Option<String> {
        let program = modules.iter().find(|module| module.is_program)?;
        if let Some(reason) = program.object.image.header().refusal_in_process() {
            return Some(reason.to_owned());
        }
        let seccomp = self
            .process
            .status()
            .is_ok_and(|status| status.seccomp != 0);
        (seccomp && !plan.force).then(|| {
            "it runs under seccomp, which may kill it for a system call of the agent's \
             (`--force` enters all the same)"
                .to_owned()
        })
    }

    fn bring_in(&self, plan: &Plan, resolved: &Resolved) -> Result<Link, Error> {
        let agent = AgentFile::parse(plan.agent)?;
        let pid = self.process.pid();
        let base = dormant_agent(self.process);
        let known = base.map_or(0, |base| {
            planner::first_free_slot(&known_sites(self.process, base, &agent))
        });
        let wanted = resolved.probes.len() + resolved.ifuncs.len();
        let geometry = Geometry::for_slots(known.saturating_add(wanted as u32));
        let deadline = Instant::now() + BORROW;
        loop {
            let mut link = None;
            let injected = inject::inject(Inject {
                pid,
                agent: plan.agent,
                entry_offset: agent.entry,
                existing_entry: base.map(|base| base + agent.entry),
                data_size: geometry.data_bytes(),
                plan_size: PlanSegment::BYTES,
                unblock: OWN_SIGNALS,
                allow_seccomp: plan.force,
                deadline: BORROW,
                prepare: &mut |data, plan_fd| {
                    let (data, plan_fd) = (data.try_clone()?, plan_fd.try_clone()?);
                    let keep = plan.by == Some(By::Thread);
                    link = Some(Link::new(data, plan_fd, geometry, keep, gone(pid))?);
                    Ok(())
                },
            })
            .map_err(|error| Error::new(error.to_string()))?;
            match injected.entry_result {
                0 => {}
                // An agent that a dead tiptoe left is still putting things back.
                -16 if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                }
                -16 => return Err(Error::new(format!("another tiptoe traces process {pid}"))),
                code => {
                    let why = std::io::Error::from_raw_os_error(-code as i32);
                    return Err(Error::new(format!("the agent could not begin: {why}")));
                }
            }
            let tids: Vec<u32> = injected.blocked.iter().map(|(tid, _)| *tid).collect();
            if !tids.is_empty() {
                let _ = inject::unblock(pid, &tids, OWN_SIGNALS);
            }
            return link.ok_or_else(|| Error::new("no segments were offered"));
        }
    }

    /// Patches what the agent can, leaves the rest to the kernel, and starts the clock.
    fn begin(&mut self, plan: &Plan, resolved: Resolved, modules: &[Module]) -> Result<(), Error> {
        let Resolved {
            mut probes,
            ifuncs,
            refused,
            notes,
        } = resolved;
        self.refused.extend(refused);
        self.notes.extend(notes);
        let mut to_kernel: Vec<(Probe, Option<String>)> = Vec::new();
        match self.link.take() {
            Some(link) => {
                let armed = self.arm(&link, plan, modules, &mut probes, ifuncs);
                self.link = Some(link);
                to_kernel.extend(armed?);
            }
            None => {
                let unresolved = ifuncs.into_iter().map(|probe| {
                    (
                        probe.event,
                        "which implementation it chose is known only to the agent",
                    )
                });
                self.refused
                    .extend(unresolved.map(|(event, why)| (event, why.to_owned())));
                to_kernel.extend(probes.into_iter().map(|probe| (probe, None)));
            }
        }
        if !to_kernel.is_empty() {
            self.count_in_kernel(plan, to_kernel)?;
        }
        self.since = Instant::now();
        self.cpu_at_start = self.process.cpu_time().unwrap_or(self.cpu_at_start);
        self.cpu_last.set(self.cpu_at_start);
        Ok(())
    }

    /// Arms hooks and probes; returns the probes that the agent cannot take.
    fn arm(
        &mut self,
        link: &Link,
        plan: &Plan,
        modules: &[Module],
        probes: &mut Vec<Probe>,
        ifuncs: Vec<Probe>,
    ) -> Result<Vec<(Probe, Option<String>)>, Error> {
        let hello = link.wait_for_hello(GREETING).ok_or_else(|| {
            Error::new(format!(
                "the agent in process {} did not greet",
                self.process.pid()
            ))
        })?;
        self.agent_thread = agent_thread(self.process, link.data().thread());
        let abi = Abi {
            tls: i32::try_from(hello.tls).map_err(|_| Error::new("the agent's TLS is too far"))?,
            cold_entry: hello.cold_entry,
            hook_entry: hello.hook_entry,
        };
        merge(probes, self.chosen(link, modules, ifuncs)?);
        let maps = self.process.maps().map_err(from_sys)?;
        let known = match dormant_agent(self.process) {
            Some(base) => known_sites(self.process, base, &AgentFile::parse(plan.agent)?),
            None => Vec::new(),
        };
        let ground = Ground {
            maps: &maps,
            known: &known,
            abi,
            filter: plan.filter,
        };
        let planned = planner::plan(&ground, modules, probes);
        let lost = map_arenas(link, &planned)?;
        link.prepare()?;
        let hooks: Vec<&Planned> = planned.hooks.iter().collect();
        install(link, &hooks, &lost)?;
        self.install_probes(link, probes, planned.probes, &lost)
    }

    fn install_probes(
        &mut self,
        link: &Link,
        probes: &mut Vec<Probe>,
        planned: Vec<Result<Planned, String>>,
        lost: &[u64],
    ) -> Result<Vec<(Probe, Option<String>)>, Error> {
        let good: Vec<&Planned> = planned.iter().flatten().collect();
        let mut outcomes = install(link, &good, lost)?.into_iter();
        let mut left = Vec::new();
        for (probe, plan) in probes.drain(..).zip(&planned) {
            let reason = match plan {
                Err(reason) => Some(reason.clone()),
                Ok(_) => outcomes.next().flatten(),
            };
            match (plan, reason) {
                (Ok(plan), None) => self.count_at(plan, probe),
                (_, reason) => left.push((probe, reason)),
            }
        }
        Ok(left)
    }

    fn count_at(&mut self, plan: &Planned, probe: Probe) {
        self.sites.push(plan.site.address);
        let trap = plan.strategy == Strategy::Trap;
        let source = Source::Agent {
            slot: plan.site.slot,
            trap,
        };
        self.counters.push(Counter {
            event: probe.event,
            names: probe.names,
            source,
        });
    }

    /// The implementations that indirect functions chose in this process.
    fn chosen(
        &mut self,
        link: &Link,
        modules: &[Module],
        ifuncs: Vec<Probe>,
    ) -> Result<Vec<Probe>, Error> {
        let resolvers: Vec<u64> = ifuncs.iter().map(Probe::address).collect();
        let chosen = link.resolve(&resolvers)?;
        let mut probes = Vec::new();
        for (ifunc, address) in ifuncs.into_iter().zip(chosen) {
            let home = modules
                .iter()
                .find(|m| m.text.iter().any(|range| range.contains(&address)));
            let function = home.and_then(|module| {
                let image = &module.object.image;
                let found = image.function_containing(address.wrapping_sub(module.bias))?;
                let here = found.address.wrapping_add(module.bias) == address;
                here.then(|| (module, found.clone()))
            });
            match function {
                Some((module, function)) => {
                    let mut names = ifunc.names;
                    names.extend(function.names.first().map(|name| name.to_string()));
                    let object = module.object.clone();
                    probes.push(Probe {
                        names,
                        object,
                        bias: module.bias,
                        function,
                        ..ifunc
                    });
                }
                None => self.refused.push((
                    ifunc.event,
                    "its resolver chose code that no known function begins at".to_owned(),
                )),
            }
        }
        Ok(probes)
    }

    fn count_in_kernel(
        &mut self,
        plan: &Plan,
        probes: Vec<(Probe, Option<String>)>,
    ) -> Result<(), Error> {
        let refuse_all = |why: &str| {
            let reason = |own: Option<String>| own.unwrap_or_else(|| why.to_owned());
            probes
                .iter()
                .map(|(p, own)| (p.event.clone(), reason(own.clone())))
                .collect::<Vec<_>>()
        };
        if plan.via == Via::Agent {
            self.refused.extend(refuse_all("the agent cannot patch it"));
            return Ok(());
        }
        if plan.filter.is_some() {
            let why = "the kernel's uprobes cannot filter by argument";
            if self.link.is_none() {
                return Err(Error::new(why).with_hint("leave out `--filter`, or use `--via agent`"));
            }
            self.refused.extend(refuse_all(why));
            return Ok(());
        }
        let places: Vec<KernelProbe> = probes
            .iter()
            .map(|(probe, _)| KernelProbe {
                path: path_of(&probe.object.file),
                offset: probe.file_offset(),
            })
            .collect();
        let set = match UprobeSet::open(self.process, &places) {
            Ok(set) => set,
            Err(error) if self.link.is_some() => {
                self.notes
                    .push(format!("the kernel takes no probe: {error}"));
                self.refused.extend(refuse_all("the agent cannot patch it"));
                return Ok(());
            }
            Err(error) => {
                let said = Error::new(error.to_string());
                return Err(error
                    .hint()
                    .map_or(said, |hint| Error::new(error.to_string()).with_hint(hint)));
            }
        };
        let refusals: BTreeMap<usize, String> = set
            .refused()
            .iter()
            .map(|refused| (refused.probe, kernel_reason(&refused.error)))
            .collect();
        for (index, (probe, _)) in probes.into_iter().enumerate() {
            match refusals.get(&index) {
                Some(why) => self.refused.push((probe.event, why.clone())),
                None => self.counters.push(Counter {
                    event: probe.event,
                    names: probe.names,
                    source: Source::Kernel(index),
                }),
            }
        }
        self.kernel = Some(set);
        Ok(())
    }

    /// Reads all counters.
    pub fn read(&self, by: Option<By>) -> Result<Reads, Error> {
        let failed = |error: std::io::Error| Error::new(format!("cannot read the counts: {error}"));
        let counts = match &self.link {
            Some(link) => counts::read(link.data_file(), link.geometry(), by).map_err(failed)?,
            None => Counts::default(),
        };
        let kernel = match &self.kernel {
            Some(set) => set.read().map_err(|error| Error::new(error.to_string()))?,
            None => Vec::new(),
        };
        let enabled = self.since.elapsed().as_nanos() as u64;
        let reading = |counter: &Counter| match counter.source {
            Source::Agent { slot, .. } => Reading {
                count: counts.totals.get(slot as usize).copied().unwrap_or(0),
                lost: 0,
                time_enabled_ns: enabled,
                time_running_ns: enabled,
            },
            Source::Kernel(index) => kernel.get(index).copied().unwrap_or_default(),
        };
        let part = |values: &Vec<u64>| {
            let value = |counter: &Counter| match counter.source {
                Source::Agent { slot, .. } => values.get(slot as usize).copied().unwrap_or(0),
                Source::Kernel(_) => 0,
            };
            self.counters.iter().map(value).collect()
        };
        Ok(Reads {
            readings: self.counters.iter().map(reading).collect(),
            parts: counts
                .parts
                .iter()
                .map(|(key, values)| (key.clone(), part(values)))
                .collect(),
        })
    }

    /// CPU time that the process used since it was attached.
    pub fn cpu_time(&self) -> Duration {
        if let Ok(now) = self.process.cpu_time() {
            self.cpu_last.set(now.max(self.cpu_last.get()));
        }
        self.cpu_last.get().saturating_sub(self.cpu_at_start)
    }

    /// Whether the process is no more.
    pub fn is_gone(&self) -> bool {
        gone(self.process.pid())()
    }

    /// Whether the process runs another program than the one that was traced:
    /// the agent's thread went with the old one.
    pub fn has_execed(&self) -> bool {
        let Some(tid) = self.agent_thread else {
            return false;
        };
        let path = format!("/proc/{}/task/{tid}", self.process.pid());
        !std::path::Path::new(&path).exists()
            && !self.is_gone()
            && dormant_agent(self.process).is_none()
    }

    /// Takes all jumps and traps out and puts them in again, `times` times.
    pub fn toggle(&self, times: u64, mut stop: impl FnMut() -> bool) -> Result<u64, Error> {
        let Some(link) = &self.link else { return Ok(0) };
        let mut done = 0;
        while done < times && !stop() {
            let some = (times - done).min(TOGGLES);
            link.toggle(&self.sites, some)?;
            done += some;
        }
        Ok(done)
    }

    /// Takes everything out of the process; the counts stay readable.
    pub fn detach(&self) -> Result<(), Error> {
        match &self.link {
            Some(link) if !self.is_gone() && !self.has_execed() => link.detach(),
            _ => Ok(()),
        }
    }
}

/// Why the kernel refuses a place, without the place: equal reasons group.
fn kernel_reason(error: &tiptoe_kernel::Error) -> String {
    match error {
        tiptoe_kernel::Error::Unprobeable { .. } => {
            "neither the agent nor the kernel can probe its first instruction".to_owned()
        }
        other => other.to_string(),
    }
}

/// Adds probes; one whose place is there already becomes another name of it.
fn merge(probes: &mut Vec<Probe>, more: Vec<Probe>) {
    let mut places: BTreeMap<u64, usize> = probes
        .iter()
        .enumerate()
        .map(|(index, probe)| (probe.address(), index))
        .collect();
    for probe in more {
        match places.get(&probe.address()) {
            Some(index) => {
                let known = &mut probes[*index].names;
                let name = probe
                    .event
                    .rsplit(':')
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                known.extend([name].into_iter().chain(probe.names));
                known.sort();
                known.dedup();
            }
            None => {
                places.insert(probe.address(), probes.len());
                probes.push(probe);
            }
        }
    }
}

/// Maps arenas and returns the bases of those that could not be.
fn map_arenas(link: &Link, plan: &planner::Plan) -> Result<Vec<u64>, Error> {
    let maps: Vec<Map> = plan
        .arenas
        .iter()
        .map(|arena| Map {
            base: arena.base,
            len: arena.len,
        })
        .collect();
    let results = link.map(&maps)?;
    let mapped = plan.arenas.iter().zip(&results);
    let prologues: Vec<(u64, &[u8])> = mapped
        .clone()
        .filter(|(_, result)| **result == 0)
        .map(|(arena, _)| (arena.base + 4096, arena.prologue.as_slice()))
        .collect();
    link.copy(&prologues)?;
    Ok(mapped
        .filter(|(_, result)| **result != 0)
        .map(|(arena, _)| arena.base)
        .collect())
}

/// Writes trampolines and arms sites; for each, why it is not armed.
fn install(link: &Link, planned: &[&Planned], lost: &[u64]) -> Result<Vec<Option<String>>, Error> {
    let has_room =
        |plan: &&Planned| !lost.contains(&(plan.site.trampoline & !(tiptoe_patch::ARENA_LEN - 1)));
    let mut order: Vec<usize> = (0..planned.len())
        .filter(|i| has_room(&planned[*i]))
        .collect();
    order.sort_by_key(|index| planned[*index].site.address);
    let (again, fresh): (Vec<usize>, Vec<usize>) =
        order.into_iter().partition(|index| planned[*index].known);
    let codes: Vec<(u64, &[u8])> = fresh
        .iter()
        .map(|index| {
            (
                planned[*index].site.trampoline,
                planned[*index].code.as_slice(),
            )
        })
        .collect();
    link.copy(&codes)?;
    let sites: Vec<Site> = fresh.iter().map(|index| planned[*index].site).collect();
    let known: Vec<u64> = again
        .iter()
        .map(|index| planned[*index].site.address)
        .collect();
    let mut reasons = vec![Some("no room for its trampoline any more".to_owned()); planned.len()];
    let outcomes = link.arm(&sites)?.into_iter().chain(link.arm_again(&known)?);
    for (index, outcome) in fresh.into_iter().chain(again).zip(outcomes) {
        reasons[index] = reason(outcome);
    }
    Ok(reasons)
}

fn reason(outcome: u64) -> Option<String> {
    match outcome {
        0 => None,
        1 => Some("its code in memory is not its file's: somebody else patched it".to_owned()),
        _ => Some("its code is not mapped any more".to_owned()),
    }
}

/// Where an agent is mapped already, from an earlier session or a parent.
fn dormant_agent(process: Process) -> Option<u64> {
    let maps = process.maps().ok()?;
    let ours = |path: &std::path::Path| path.to_string_lossy().starts_with("/memfd:tiptoe-agent");
    maps.iter()
        .find(|m| m.offset == 0 && m.path.as_deref().is_some_and(ours))
        .map(|m| m.start)
}

/// The sites that an agent has patched before, read from its own table; what is
/// not in wire form is left out.
fn known_sites(process: Process, base: u64, agent: &AgentFile) -> Vec<Site> {
    let read = || -> std::io::Result<Vec<Site>> {
        let memory = File::open(format!("/proc/{}/mem", process.pid()))?;
        let mut head = [0; 16];
        memory.read_exact_at(&mut head, base + agent.sites)?;
        let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
        let count = word(8).min(MAX_SITES) as usize;
        let mut bytes = vec![0; count * SITE_WORDS * 8];
        memory.read_exact_at(&mut bytes, word(0))?;
        Ok(bytes
            .chunks_exact(SITE_WORDS * 8)
            .filter_map(decode)
            .collect())
    };
    // A site that was planned twice counts as it was the last time.
    let mut sites: BTreeMap<u64, Site> = BTreeMap::new();
    for site in read().unwrap_or_default() {
        sites.insert(site.address, site);
    }
    sites.into_values().collect()
}

fn decode(bytes: &[u8]) -> Option<Site> {
    Site::decode(std::array::from_fn(|index| {
        u64::from_le_bytes(bytes[index * 8..index * 8 + 8].try_into().expect("8 bytes"))
    }))
}

/// The agent's thread as tiptoe's pid namespace knows it.
fn agent_thread(process: Process, tid: u32) -> Option<u32> {
    let own = |candidate: &u32| {
        process
            .thread_status(*candidate)
            .is_ok_and(|status| status.ns_pids.last() == Some(&tid))
    };
    process.threads().ok()?.into_iter().find(own)
}

/// What tiptoe must know of its own agent's file.
struct AgentFile {
    entry: u64,
    sites: u64,
}

impl AgentFile {
    fn parse(bytes: &[u8]) -> Result<AgentFile, Error> {
        let broken = |what: &str| {
            Error::new(format!(
                "this tiptoe was built without a whole agent: {what}"
            ))
        };
        let file = object::File::parse(bytes).map_err(|error| broken(&error.to_string()))?;
        let symbol = |name: &str| {
            let found = file.symbols().find(|symbol| symbol.name() == Ok(name));
            found
                .map(|symbol| symbol.address())
                .ok_or_else(|| broken(name))
        };
        Ok(AgentFile {
            entry: symbol("tiptoe_agent_entry")?,
            sites: symbol("TIPTOE_SITES")?,
        })
    }
}
