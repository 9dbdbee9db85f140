//! Reads recorded calls. Each thread's ring is read every 5 ms. Everything in it is hostile data
//! from the target.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

use tiptoe_event::{Reading, Records};
use tiptoe_price::clock::Moment;
use tiptoe_session::Call;
use tiptoe_wire::Data;
use tiptoe_wire::ring::{Entry, Reader};

use super::{Counter, Plan, Source, Tracee};
use crate::counts;
use crate::planner::Follow;

/// How often to look at an incomplete record before it is given up, which takes about a second. Its
/// thread is still writing it, or was led out of the write for good.
const PATIENCE: u32 = 200;

/// A thread of the target's.
#[derive(Clone)]
struct NamedThread {
    tid: u32,
    comm: Rc<str>,
}

impl Default for NamedThread {
    fn default() -> NamedThread {
        NamedThread {
            tid: 0,
            comm: "?".into(),
        }
    }
}

/// The state of reading one ring.
#[derive(Default)]
struct Ring {
    reader: Reader,
    who: NamedThread,
}

/// A call that was read and not yet handed to the observer.
pub struct RecordedCall {
    who: NamedThread,
    event: Rc<str>,
    at_ns: u64,
    args: [u64; 2],
    /// How many of `args` are arguments, if it is known.
    parameters: Option<u8>,
}

impl RecordedCall {
    /// Returns when it began, from the start of the session.
    pub fn at_ns(&self) -> u64 {
        self.at_ns
    }

    /// Returns an argument; `None` if the function has fewer.
    fn argument(&self, index: u8) -> Option<u64> {
        let is_there = self.parameters.is_none_or(|count| index < count);
        is_there.then_some(self.args[usize::from(index)])
    }

    /// Returns it as the observer sees it.
    pub fn call(&self) -> Call<'_> {
        Call {
            at_ns: self.at_ns,
            tid: self.who.tid,
            comm: &self.who.comm,
            event: &self.event,
            arg0: self.argument(0),
            arg1: self.argument(1),
            are_registers: self.parameters.is_none(),
        }
    }
}

/// All rings of a process.
pub struct Rings {
    start: Moment,
    /// The event of each probe, and how many of its calls were read, by slot.
    probes: Vec<Option<Probe>>,
    /// The number of the process's counters at the last look at them.
    known: usize,
    rings: BTreeMap<u32, Ring>,
    /// Whether the observer wants each call.
    reports_calls: bool,
    calls: Vec<RecordedCall>,
}

struct Probe {
    event: Rc<str>,
    parameters: Option<u8>,
    seen: u64,
}

impl Rings {
    /// Rings to be read.
    fn new() -> Rings {
        Rings {
            start: Moment::now(),
            probes: Vec::new(),
            known: 0,
            rings: BTreeMap::new(),
            reports_calls: true,
            calls: Vec::new(),
        }
    }

    /// Adds the probes that are new.
    fn learn(&mut self, counters: &[Counter]) {
        if counters.len() == self.known {
            return;
        }
        for counter in counters {
            if let Source::Agent {
                slot,
                follow: Follow::Record,
                ..
            } = counter.source
            {
                let slot = slot as usize;
                let len = self.probes.len().max(slot + 1);
                self.probes.resize_with(len, || None);
                self.probes[slot].get_or_insert_with(|| Probe {
                    event: counter.event.as_str().into(),
                    parameters: counter.parameters,
                    seen: 0,
                });
            }
        }
        self.known = counters.len();
    }

    /// Returns how many calls of a probe were read.
    fn seen(&self, slot: u32) -> u64 {
        let probe = self.probes.get(slot as usize).and_then(Option::as_ref);
        probe.map_or(0, |probe| probe.seen)
    }

    /// Reads what is new in every ring.
    fn read(&mut self, data: &Data, since: Instant, patience: u32) {
        for (slab, ring) in data
            .entered()
            .filter_map(|slab| Some((slab, data.ring(slab)?)))
        {
            let Ring { reader, who } = self.rings.entry(slab).or_default();
            reader.read(&ring, patience, |entry| {
                let call = match entry {
                    Entry::Thread { tid, comm } => {
                        let comm = counts::plain(&comm).into();
                        *who = NamedThread { tid, comm };
                        return;
                    }
                    Entry::Call(call) => call,
                };
                let probe = self.probes.get_mut(call.slot as usize);
                let Some(probe) = probe.and_then(Option::as_mut) else {
                    return;
                };
                probe.seen += 1;
                if self.reports_calls {
                    self.calls.push(RecordedCall {
                        who: who.clone(),
                        event: Rc::clone(&probe.event),
                        at_ns: self.start.ns_from(since, call.at),
                        args: call.args,
                        parameters: probe.parameters,
                    });
                }
            });
        }
    }
}

impl Tracee {
    /// Prepares to read records, if the plan has any. Must be called before the first record is
    /// written.
    pub(super) fn open_rings(&mut self, plan: &Plan) {
        if plan.record && self.target.link.is_some() {
            *self.rings.borrow_mut() = Some(Rings::new());
        }
    }

    /// Sets whether the observer wants each call.
    pub fn set_reports_calls(&self, reports_calls: bool) {
        if let Some(rings) = &mut *self.rings.borrow_mut() {
            rings.reports_calls = reports_calls;
        }
    }

    /// Reads the available records; `since` is the start of the session.
    pub fn read_records(&self, since: Instant) {
        self.read_rings(since, PATIENCE);
    }

    /// Reads records after a reading of the counters. After the end of the process an incomplete
    /// record is given up at once, because it will never be completed.
    pub(super) fn read_all_records(&self, since: Instant) {
        let patience = if self.target.has_ended() { 0 } else { PATIENCE };
        self.read_rings(since, patience);
    }

    fn read_rings(&self, since: Instant, patience: u32) {
        let (Some(rings), Some(link)) = (&mut *self.rings.borrow_mut(), &self.target.link) else {
            return;
        };
        rings.learn(&self.counters);
        rings.read(&link.data(), since, patience);
    }

    /// Takes the calls that were read.
    pub fn take_calls(&self) -> Vec<RecordedCall> {
        let mut rings = self.rings.borrow_mut();
        let calls = rings.as_mut().map(|rings| std::mem::take(&mut rings.calls));
        calls.unwrap_or_default()
    }

    /// Returns the counts of a probe, with the number of its records that were read. A record that
    /// was written and not read is counted as lost.
    pub(super) fn as_seen(&self, slot: u32, reading: Reading) -> Reading {
        let Some(records) = reading.records else {
            return reading;
        };
        let rings = self.rings.borrow();
        let seen = rings.as_ref().map_or(0, |rings| rings.seen(slot));
        let unseen = records.recorded.saturating_sub(seen);
        let records = Records {
            recorded: seen,
            lost: unseen.saturating_add(records.lost),
            ..records
        };
        Reading {
            count: records.calls(),
            records: Some(records),
            ..reading
        }
    }
}
