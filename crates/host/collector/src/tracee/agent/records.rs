//! Reads recorded calls from each thread's ring, which the target writes. A ring's content is hostile data.

use std::collections::BTreeMap;
use std::rc::Rc;

use tiptoe_event::{Reading, Records};
use tiptoe_price::clock::Moment;
use tiptoe_session::Call;
use tiptoe_wire::Data;
use tiptoe_wire::ring::{Entry, Reader};

use super::AgentCounter;
use crate::clock::RunClock;
use crate::counts;
use crate::planner::Follow;

/// An incomplete record is given up after this many looks, about a second. A signal handler may have jumped out of
/// the code that writes it.
pub const PATIENCE: u32 = 200;

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

#[derive(Default)]
struct ThreadRing {
    reader: Reader,
    who: NamedThread,
}

pub struct RecordedCall {
    who: NamedThread,
    event: Rc<str>,
    at_ns: u64,
    args: [u64; 2],
    /// How many of `args` are arguments, if known.
    parameters: Option<u8>,
}

impl RecordedCall {
    pub fn at_ns(&self) -> u64 {
        self.at_ns
    }

    fn argument(&self, index: u8) -> Option<u64> {
        let is_there = self.parameters.is_none_or(|count| index < count);
        is_there.then_some(self.args[usize::from(index)])
    }

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

pub struct Rings {
    start: Moment,
    probes: Vec<Option<RecordedProbe>>,
    counter_count: usize,
    rings: BTreeMap<u32, ThreadRing>,
    reports_calls: bool,
    pub calls: Vec<RecordedCall>,
}

struct RecordedProbe {
    event: Rc<str>,
    parameters: Option<u8>,
    seen: u64,
}

impl Rings {
    pub fn new(reports_calls: bool) -> Rings {
        Rings {
            start: Moment::now(),
            probes: Vec::new(),
            counter_count: 0,
            rings: BTreeMap::new(),
            reports_calls,
            calls: Vec::new(),
        }
    }

    fn learn(&mut self, counters: &[AgentCounter]) {
        if counters.len() == self.counter_count {
            return;
        }
        let recorded = |one: &&AgentCounter| one.follow == Follow::Record;
        for one in counters.iter().filter(recorded) {
            let slot = one.site.slot as usize;
            let len = self.probes.len().max(slot + 1);
            self.probes.resize_with(len, || None);
            self.probes[slot].get_or_insert_with(|| RecordedProbe {
                event: one.counter.event.as_str().into(),
                parameters: one.parameters,
                seen: 0,
            });
        }
        self.counter_count = counters.len();
    }

    pub fn read(&mut self, data: &Data, counters: &[AgentCounter], clock: RunClock, patience: u32) {
        self.learn(counters);
        for (slab, ring) in data
            .entered()
            .filter_map(|slab| Some((slab, data.ring(slab)?)))
        {
            let ThreadRing { reader, who } = self.rings.entry(slab).or_default();
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
                        at_ns: clock.until(self.start.monotonic_ns(call.at)).as_nanos() as u64,
                        args: call.args,
                        parameters: probe.parameters,
                    });
                }
            });
        }
    }

    /// Returns `reading` with the records that tiptoe did not read counted as lost.
    pub fn as_seen(&self, slot: u32, reading: Reading) -> Reading {
        let Some(records) = reading.records else {
            return reading;
        };
        let probe = self.probes.get(slot as usize).and_then(Option::as_ref);
        let seen = probe.map_or(0, |probe| probe.seen);
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
