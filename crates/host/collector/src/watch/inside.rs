//! Watches by breakpoints that the program's own threads open and whose hits they record
//! themselves. This needs only the rights of the program's user.
//!
//! The agent opens them for the existing threads while it blocks thread creation; later threads
//! inherit them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tiptoe_event::{Cost, Via};
use tiptoe_kernel::watchpoints::{
    Access, Attached, Drops, Hits, SharedSlots, WatchRow, WatchWanted, Watchpoint, Window,
    signal_cost,
};
use tiptoe_patch::Hits as Filtered;
use tiptoe_session::{EndCause, Reservations};
use tiptoe_sys::host::perf;
use tiptoe_sys::raw::monotonic_ns;
use tiptoe_wire::WatchTarget;
use tiptoe_wire::hits::{AsyncRequest, Epoch, HitReader};

use super::access_sums::Sums;
use super::begin::{Target, one};
use super::form::reservations;
use super::variable_value::VariableValue;
use super::{WatchRequest, holders};
use crate::driver;
use crate::module::Cache;
use crate::request::{Error, RequestTarget};
use crate::tracee::{ArmedThreads, Plan, Tracee};

/// The pause between two looks for threads that have ended.
const LOOK: Duration = Duration::from_secs(1);

pub(super) struct InProcessWatch {
    tracee: Tracee,
    points: Vec<Watchpoint>,
    /// The variable at an address, also at one from which its watch has moved.
    known: HashMap<u64, usize>,
    serving: Vec<usize>,
    sums: Sums,
    reader: HitReader,
    /// Hits whose records were never complete.
    holes: u64,
    cpus: u32,
    opened: ArmedThreads,
    took: Duration,
    next_look: Instant,
    allowance: Option<u64>,
    hit_cost: Cost,
    /// A bit for each variable whose events were disabled in this window.
    rested: u64,
    /// The epoch in which values were last read.
    read_in: Option<Epoch>,
    has_ended: bool,
}

/// Brings the agent into the process, or starts the command with it.
pub(super) fn enter(request: &WatchRequest) -> Result<(Tracee, Target), Error> {
    let plan = Plan {
        agent: request.agent,
        specs: &[],
        hits: Filtered {
            filter: None,
            under: false,
            by: None,
        },
        under: None,
        via: Via::Agent,
        by: None,
        force: false,
        calls: None,
        record: false,
        locks: false,
        hold: None,
        lock_threads: false,
        breakpoints: true,
        scopes: false,
        charges: None,
        share: None,
        starts: matches!(request.target, RequestTarget::Command(_)),
        stop: &request.stop,
        ready: None,
    };
    let mut cache = Cache::default();
    let tracee = match &request.target {
        RequestTarget::Pids(pids) => Tracee::attach(one(pids)?, &plan, &mut cache)?,
        RequestTarget::Command(command) => driver::start(command, &plan, &mut cache)?,
    };
    let target = Target::of(&tracee.target, cache)?;
    Ok((tracee, target))
}

impl InProcessWatch {
    /// Opens breakpoints, whose hits do not count yet.
    pub(super) fn open(
        tracee: Tracee,
        wanted: WatchWanted,
        points: &[Watchpoint],
        serving: &[usize],
    ) -> Result<InProcessWatch, Error> {
        let start = Instant::now();
        let cpus = SharedSlots::cpus()?;
        // Must be measured before the program's registers are taken, because it needs one.
        let hit_cost = signal_cost().map_err(holders::explain)?;
        let allowance = wanted
            .allowed_ns
            .map(|ns| (ns as f64 / hit_cost.ns.max(1.0)).max(1.0) as u64);
        let mut inside = InProcessWatch {
            known: HashMap::new(),
            serving: serving.to_vec(),
            sums: Sums::new(wanted.clone(), points),
            points: points.to_vec(),
            reader: HitReader::default(),
            holes: 0,
            cpus,
            opened: ArmedThreads::default(),
            took: Duration::ZERO,
            next_look: start + LOOK,
            allowance,
            hit_cost,
            rested: 0,
            read_in: None,
            has_ended: false,
            tracee,
        };
        inside.slots()?.begin(wanted.all_slots, points, serving)?;
        let hits = inside.tracee.hits().ok_or_else(no_hits)?;
        hits.allow(allowance.unwrap_or(0));
        for index in serving {
            inside.known.insert(points[*index].at.address, *index);
        }
        let watched: Vec<WatchTarget> = serving
            .iter()
            .map(|index| watched(&points[*index]))
            .collect();
        inside.opened = inside.tracee.observe(cpus, &watched)?;
        inside.took = start.elapsed();
        Ok(inside)
    }

    fn slots(&self) -> Result<SharedSlots<'_>, Error> {
        let words = self.tracee.hits().and_then(|hits| hits.accounting());
        let words = words.ok_or_else(no_hits)?;
        Ok(SharedSlots::new(words.atomics(), self.cpus)?)
    }

    pub(super) fn process(&mut self) -> &mut tiptoe_attach::Attached {
        &mut self.tracee.target
    }

    pub(super) fn start(&mut self, target: &Target) -> Result<(), Error> {
        self.tracee.hits().ok_or_else(no_hits)?.set_on(true);
        self.read_values(target);
        Ok(())
    }

    /// Reads the served variables' values if stores were missed and all events are enabled now.
    fn read_values(&mut self, target: &Target) {
        let epoch = self.tracee.hits().map(|hits| hits.epoch());
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

    /// Reads the hits, and makes the agent release the registers of ended threads. Returns whether
    /// there were many hits.
    pub(super) fn take(&mut self, target: &mut Target) -> bool {
        let now = Instant::now();
        if now >= self.next_look && !self.has_ended {
            self.next_look = now + LOOK;
            self.tracee.ask(AsyncRequest::Look);
        }
        let is_much = self.read_hits(target, false);
        self.read_values(target);
        is_much
    }

    fn read_hits(&mut self, target: &mut Target, is_end: bool) -> bool {
        let Some(hits) = self.tracee.hits() else {
            return false;
        };
        let (mut count, sums) = (0, &mut self.sums);
        let (known, points) = (&self.known, &self.points);
        self.holes += self.reader.read(&hits, is_end, |read| {
            count += 1;
            // Every reported address was watched at some time.
            if let Some(index) = known.get(&read.hit().address) {
                sums.add(read, (*index, &points[*index]), target);
            }
        });
        if count > 0
            && let Some(futex) = hits.waited_for()
        {
            // Wakes only as many threads as now find room in the ring. Others would use CPU time in
            // vain.
            tiptoe_sys::raw::futex::wake(futex, count as u32);
        }
        count >= MUCH
    }

    pub(super) fn allowance(&self) -> Option<u64> {
        self.allowance
    }

    pub(super) fn hit_cost(&self) -> Cost {
        self.hit_cost
    }

    /// Begins the next window; returns the result of the last one.
    pub(super) fn refresh(&mut self) -> Window {
        let window = self.window();
        self.rested = 0;
        let Some(hits) = self.tracee.hits() else {
            return window;
        };
        hits.begin_window();
        if hits.is_resting() && !self.has_ended {
            self.tracee.ask(AsyncRequest::Wake);
        }
        window
    }

    /// Returns the result of the window so far.
    pub(super) fn window(&mut self) -> Window {
        let Some(hits) = self.tracee.hits() else {
            return Window::default();
        };
        if hits.is_resting() {
            self.rested |= self.serving.iter().fold(0, |bits, index| bits | 1 << index);
        }
        Window {
            hits: hits.in_window(),
            rested: self.rested,
            ..Window::default()
        }
    }

    pub(super) fn is_resting(&self) -> bool {
        self.tracee.hits().is_some_and(|hits| hits.is_resting())
    }

    /// Makes a slot watch another variable, or the same one at another address.
    pub(super) fn serve(
        &mut self,
        slot: usize,
        index: usize,
        point: &Watchpoint,
        target: &Target,
    ) -> Result<Window, Error> {
        let window = self.window();
        self.known.insert(point.at.address, index);
        self.points[index] = point.clone();
        self.serving[slot] = index;
        self.unless_gone(self.tracee.turn(slot, watched(point)))?;
        if let Some(epoch) = self.tracee.hits().map(|hits| hits.epoch()) {
            self.read_value(index, epoch, target);
        }
        Ok(window)
    }

    fn unless_gone(&self, result: Result<(), Error>) -> Result<(), Error> {
        result.or_else(|error| {
            match self.tracee.target.has_ended() || self.tracee.ended_by().is_some() {
                true => Ok(()),
                false => Err(error),
            }
        })
    }

    pub(super) fn attached(&self) -> Attached {
        Attached {
            threads: self.opened.threads,
            again: self.opened.late,
            without: 0,
            took: self.took,
        }
    }

    pub(super) fn reservations(&self) -> Result<Vec<Reservations>, Error> {
        Ok(reservations(self.slots()?.stats()?))
    }

    pub(super) fn rows(&self) -> Vec<WatchRow> {
        self.sums.rows()
    }

    pub(super) fn hits(&self, index: u32) -> Hits {
        self.sums.hits(index as usize)
    }

    pub(super) fn drops(&self) -> Drops {
        self.sums.drops()
    }

    pub(super) fn take_accesses(&mut self) -> Vec<Access> {
        self.sums.take_accesses()
    }

    /// Returns the numbers of hits that are not counted: lost ones, and those of threads that
    /// blocked the signal; then of gaps without an agent, and of traps without a cause.
    pub(super) fn missed(&self) -> [u64; 4] {
        let [lost, gaps, strays] = self
            .tracee
            .hits()
            .map_or([0; 3], |hits| [hits.lost(), hits.gaps(), hits.strays()]);
        [lost + self.holes, self.sums.late(), gaps, strays]
    }

    /// Returns what ended the watch before the process, or an exec just before the process's end.
    pub(super) fn ended_by(&self) -> Option<EndCause> {
        let ended = self.tracee.ended_by();
        ended.or_else(|| {
            // The other program ended before tiptoe saw it.
            let has_execed = self.tracee.hits().is_some_and(|hits| hits.execs());
            (has_execed && self.tracee.target.has_ended()).then_some(EndCause::Exec)
        })
    }

    /// Returns whether the program has ended all of its threads, so that only the agent's is left.
    pub(super) fn is_over(&self) -> bool {
        self.tracee.only_agent_left()
    }

    /// Stops counting and leaves the process; the counts remain readable.
    pub(super) fn stop(&mut self, target: &mut Target) {
        if let Some(hits) = self.tracee.hits() {
            hits.set_on(false);
        }
        self.leave();
        while self.read_hits(target, false) {}
        self.read_hits(target, true);
    }

    fn leave(&mut self) {
        if !std::mem::replace(&mut self.has_ended, true) {
            // An agent that does not answer has ended, or leaves by itself once the link is
            // dropped.
            let _ = self.tracee.detach();
        }
    }
}

impl Drop for InProcessWatch {
    fn drop(&mut self) {
        // Not a held command: it must not run, and is killed.
        if !self.tracee.target.is_held() {
            self.leave();
        }
    }
}

/// The hits in a turn from which on more are expected soon.
const MUCH: usize = tiptoe_wire::hits::CELLS / 16;

fn no_hits() -> Error {
    Error::new("the agent shares no memory for hits")
}

/// Returns a watchpoint in the agent's form.
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
