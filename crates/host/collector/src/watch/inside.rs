//! Watches with breakpoints that the program's own threads open, with their user's rights. The threads also record
//! the hits. The agent (tiptoe's library) opens breakpoints for the existing threads while it blocks thread creation.
//! Later threads inherit the breakpoints.

use std::collections::HashMap;
use std::time::Duration;

use tiptoe_event::{Cost, Via};
use tiptoe_kernel::watchpoints::{
    Access, AttachSummary, Booking, Hits, SharedSlots, WatchWanted, Watchpoint, Window, signal_cost,
};
use tiptoe_session::{EndCause, Reservations};
use tiptoe_sys::host::perf;
use tiptoe_sys::raw::monotonic_ns;
use tiptoe_wire::WatchTarget;
use tiptoe_wire::hits::{AsyncRequest, Epoch, HitReader, Hits as RecordedHits};

use super::access_sums::AccessSums;
use super::begin::{Target, one};
use super::breakpoints::{BreakpointReport, Breakpoints, placement, reservations};
use super::holders;
use super::variable_value::VariableValue;
use super::variables::WatchedVariable;
use crate::clock::{RunClock, TICK};
use crate::drive::Targets;
use crate::error::Error;
use crate::module::Cache;
use crate::request::{Request, RequestTarget};
use crate::start::start;
use crate::tracee::{ArmedThreads, Plan, Tracee};

/// The pause between two requests to look for ended threads.
const LOOK: Duration = Duration::from_secs(1);
/// The pause after a poll that read many hits, so that the next poll reads many together. The ring (memory for
/// recorded hits) has room for them.
const FLOOD_TICK: Duration = Duration::from_millis(5);

pub(super) struct InProcessWatch {
    points: Vec<Watchpoint>,
    /// Each variable's index by its address, also by former addresses.
    variable_by_address: HashMap<u64, usize>,
    serving: Vec<usize>,
    sums: AccessSums,
    reader: HitReader,
    /// How many hits had records that were never complete.
    holes: u64,
    cpus: u32,
    opened: ArmedThreads,
    took: Duration,
    next_look: Duration,
    allowance: Option<u64>,
    hit_cost: Cost,
    /// A bit for each variable whose events were disabled in this window (period of the budget).
    rested: u64,
    /// The epoch (a time in which no store is missed) in which the values of variables were last read.
    read_in: Option<Epoch>,
    agent: AgentUse,
    has_left: bool,
    _booking: Option<Booking>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AgentUse {
    Own,
    Shared,
}

pub(super) fn enter(request: &Request<'_>) -> Result<(Tracee, Target), Error> {
    let request = &Request {
        via: Via::Agent,
        ..request.clone()
    };
    let plan = Plan::of(request, false);
    let mut cache = Cache::default();
    let tracee = match &request.target {
        RequestTarget::Pids(pids) => Tracee::attach(one(pids)?, &plan, &mut cache)?,
        RequestTarget::Command(command) => start(command, &plan, &mut cache)?,
        RequestTarget::System => return Err(Error::NothingCounted),
    };
    let target = Target::of(&tracee.process.target, cache)?;
    Ok((tracee, target))
}

impl InProcessWatch {
    /// Opens breakpoints, whose hits do not count yet.
    pub(super) fn open(
        at: &Targets,
        wanted: WatchWanted,
        points: &[Watchpoint],
        serving: &[usize],
        agent: AgentUse,
    ) -> Result<InProcessWatch, Error> {
        let clock = RunClock::start();
        let cpus = SharedSlots::cpus()?;
        // Must be measured before the program takes debug registers, because the measurement needs a debug register.
        let hit_cost = signal_cost().map_err(holders::explain)?;
        let allowance = wanted
            .allowed_ns
            .map(|ns| (ns as f64 / hit_cost.ns.max(1.0)).max(1.0) as u64);
        let address = |index: &usize| (points[*index].at.address, *index);
        let mut inside = InProcessWatch {
            variable_by_address: serving.iter().map(address).collect(),
            serving: serving.to_vec(),
            sums: AccessSums::new(wanted.clone(), points),
            points: points.to_vec(),
            reader: HitReader::default(),
            holes: 0,
            cpus,
            opened: ArmedThreads::default(),
            took: Duration::ZERO,
            next_look: LOOK,
            allowance,
            hit_cost,
            rested: 0,
            read_in: None,
            agent,
            has_left: false,
            _booking: None,
        };
        if let Err(error) = inside.observe(at, wanted.all_slots) {
            inside.leave(at);
            return Err(error);
        }
        inside.took = clock.elapsed();
        Ok(inside)
    }

    fn observe(&mut self, at: &Targets, all_slots: bool) -> Result<(), Error> {
        let slots = slots(at, self.cpus)?;
        let pid = tracee(at)?.process.target.process.pid();
        self._booking = slots.begin(pid, all_slots, &self.points, &self.serving)?;
        let hits = hits(at).ok_or(Error::NoHits)?;
        hits.allow(self.allowance.unwrap_or(0));
        let served = self.serving.iter().map(|index| &self.points[*index]);
        let served: Vec<WatchTarget> = served.map(watched).collect();
        self.opened = tracee(at)?.process.observe(self.cpus, &served)?;
        Ok(())
    }

    /// Reads the variables' values if stores were missed since the last read, and all events are enabled.
    fn read_values(&mut self, at: &Targets, target: &Target) {
        let epoch = hits(at).map(|hits| hits.epoch());
        if let Some(epoch) = epoch.filter(|epoch| !epoch.is_gap && self.read_in != Some(*epoch)) {
            self.read_in = Some(epoch);
            for index in self.serving.clone() {
                self.read_value(index, epoch, target);
            }
        }
    }

    fn read_value(&mut self, index: usize, epoch: Epoch, target: &Target) {
        let at = self.points[index].at;
        let mut bytes = [0; 8];
        let begin_ns = monotonic_ns();
        let can_be_read = target.read(at.address, &mut bytes[..usize::from(at.len)]);
        let held = match can_be_read {
            true => {
                let value = u64::from_le_bytes(bytes);
                VariableValue::read(value, epoch, begin_ns..monotonic_ns())
            }
            false => VariableValue::default(),
        };
        self.sums.holds(index, held);
    }

    /// Returns whether there were many hits.
    fn read_hits(&mut self, at: &Targets, target: &mut Target, is_end: bool) -> bool {
        let Some(hits) = hits(at) else {
            return false;
        };
        let (mut count, sums) = (0, &mut self.sums);
        let (known, points) = (&self.variable_by_address, &self.points);
        self.holes += self.reader.read(&hits, is_end, |read| {
            count += 1;
            if let Some(index) = known.get(&read.hit().address) {
                sums.add(read, *index, &points[*index], target);
            }
        });
        if count > 0
            && let Some(futex) = hits.waited_for()
        {
            // Wakes only as many threads as the ring has room for. Further threads would wait again.
            tiptoe_sys::raw::futex::wake(futex, count as u32);
        }
        count >= MUCH
    }

    /// Makes the agent leave the process. A held command must not run, and is killed instead.
    fn leave(&mut self, at: &Targets) {
        if let Ok(tracee) = tracee(at)
            && !tracee.process.target.is_held()
            && self.agent == AgentUse::Own
            && !std::mem::replace(&mut self.has_left, true)
        {
            // An agent that does not answer has ended, or leaves by itself once tiptoe drops their shared memory.
            let _ = tracee.process.detach();
        }
    }
}

impl Breakpoints for InProcessWatch {
    fn allowance(&mut self) -> Option<u64> {
        self.allowance
    }

    fn supply_initial_rules(
        &mut self,
        target: &Target,
        _variables: &[WatchedVariable],
    ) -> Result<(), Error> {
        // Builds the unwind tables before the first hits, because building takes long, and many hits may come at
        // once.
        for module in &target.names.modules {
            module.object.unwind_table();
        }
        Ok(())
    }

    fn start(&mut self, at: &Targets, target: &Target) -> Result<(), Error> {
        hits(at).ok_or(Error::NoHits)?.set_on(true);
        self.read_values(at, target);
        Ok(())
    }

    /// Also asks the agent at times to release ended threads' registers, and to reserve registers that threads could
    /// not reserve at their creation.
    fn poll(
        &mut self,
        at: &Targets,
        target: &mut Target,
        now: Duration,
    ) -> Result<Duration, Error> {
        if now >= self.next_look {
            self.next_look = now + LOOK;
            tracee(at)?.process.ask(AsyncRequest::Look);
        }
        let is_much = self.read_hits(at, target, false);
        self.read_values(at, target);
        Ok(if is_much { FLOOD_TICK } else { TICK })
    }

    fn refresh(&mut self, at: &Targets) -> Result<Window, Error> {
        let window = self.window(at)?;
        self.rested = 0;
        if let Some(hits) = hits(at) {
            hits.begin_window();
            if hits.is_resting() {
                tracee(at)?.process.ask(AsyncRequest::Wake);
            }
        }
        Ok(window)
    }

    fn window(&mut self, at: &Targets) -> Result<Window, Error> {
        let Some(hits) = hits(at) else {
            return Ok(Window::default());
        };
        if hits.is_resting() {
            self.rested |= self.serving.iter().fold(0, |bits, index| bits | 1 << index);
        }
        Ok(Window {
            hits: hits.in_window(),
            rested: self.rested,
            ..Window::default()
        })
    }

    fn serve(
        &mut self,
        slot: usize,
        index: usize,
        point: &Watchpoint,
        at: &Targets,
        target: &Target,
    ) -> Result<Window, Error> {
        let window = self.window(at)?;
        self.variable_by_address.insert(point.at.address, index);
        self.points[index] = point.clone();
        self.serving[slot] = index;
        let tracee = tracee(at)?;
        let turned = tracee.process.turn(slot, watched(point));
        if turned.is_err() && !tracee.process.target.has_ended() && tracee.ended_by().is_none() {
            turned?;
        }
        if let Some(epoch) = hits(at).map(|hits| hits.epoch()) {
            self.read_value(index, epoch, target);
        }
        Ok(window)
    }

    fn take_accesses(&mut self) -> Vec<Access> {
        std::mem::take(&mut self.sums.accesses)
    }

    fn hits(&mut self, variable: u32) -> Result<Hits, Error> {
        Ok(self.sums.hits(variable as usize))
    }

    fn hit_cost(&mut self) -> Result<Cost, Error> {
        Ok(self.hit_cost)
    }

    /// Returns why the trace ended. An exec is reported even if the new program has also ended.
    fn ended_by(&mut self, at: &Targets) -> Option<EndCause> {
        let tracee = at.traced.first()?;
        tracee.ended_by().or_else(|| {
            let has_execed = hits(at).is_some_and(|hits| hits.execs());
            (has_execed && tracee.process.target.has_ended()).then_some(EndCause::Exec)
        })
    }

    fn is_over(&mut self, at: &Targets) -> bool {
        at.traced.iter().any(|one| one.process.only_agent_left())
    }

    fn stop(&mut self, at: &Targets, target: &mut Target) {
        if let Some(hits) = hits(at) {
            hits.set_on(false);
        }
        self.leave(at);
        while self.read_hits(at, target, false) {}
        self.read_hits(at, target, true);
    }

    fn reservations(&mut self, at: &Targets) -> Result<Vec<Reservations>, Error> {
        let stats = slots(at, self.cpus)?.stats()?;
        let all = (0..self.serving.len()).fold(0, |bits, number| bits | 1 << number);
        let unreserved = hits(at).map_or(0, |hits| hits.unreserved(all));
        Ok(reservations(stats, unreserved))
    }

    fn report(&mut self, at: &Targets) -> Result<BreakpointReport, Error> {
        let hits = hits(at);
        let counts = hits.map(|hits| [hits.lost(), hits.gaps(), hits.strays()]);
        let [lost, gaps, strays] = counts.unwrap_or_default();
        let attached = AttachSummary {
            threads: self.opened.threads,
            again: 0,
            late: self.opened.late,
            without: 0,
            took: self.took,
        };
        Ok(BreakpointReport {
            via: Via::Agent,
            form: placement("agent", Some(attached)),
            rows: self.sums.rows.values().cloned().collect(),
            drops: self.sums.drops,
            missed: [lost + self.holes, self.sums.late, strays],
            gaps,
            refused: hits.map_or(0, |hits| hits.refused()),
            foreign: 0,
            sees_kernel: false,
        })
    }
}

fn tracee(at: &Targets) -> Result<&Tracee, Error> {
    at.traced.first().ok_or(Error::NoHits)
}

fn hits(at: &Targets) -> Option<RecordedHits<'_>> {
    at.traced.first()?.process.hits()
}

fn slots(at: &Targets, cpus: u32) -> Result<SharedSlots<'_>, Error> {
    let words = hits(at).and_then(|hits| hits.accounting());
    let words = words.ok_or(Error::NoHits)?;
    Ok(SharedSlots::new(words.atomics(), cpus)?)
}

/// After this many hits in a poll, more hits are expected soon.
const MUCH: usize = tiptoe_wire::hits::CELLS / 16;

fn watched(point: &Watchpoint) -> WatchTarget {
    WatchTarget {
        address: point.at.address,
        len: point.at.len,
        access: match point.at.access {
            perf::Access::Write => 2,
            perf::Access::ReadWrite => 3,
            perf::Access::Execute => 4,
        },
    }
}
