//! Sums of events over all processes.

use std::collections::BTreeMap;

use tiptoe_event::{Reading, Via};
use tiptoe_kernel::Step;
use tiptoe_session::{EventNote, Note, OTHER_VALUES};

use crate::measured::Measured;
use crate::planner::Follow;
use crate::tracee::{Counter, Reads, Source, Tracee};

pub struct Total {
    pub all: Measured,
    pub via: Via,
    pub trap: bool,
    pub follow: Follow,
    pub step: Step,
    pub names: Vec<String>,
    pub remarks: Vec<Note>,
    /// The most functions of this name in one process.
    pub bearers: u64,
    pub parts: BTreeMap<String, Measured>,
}

impl Total {
    fn of(counter: &Counter, source: Source) -> Total {
        let (via, trap, follow, step) = match source {
            Source::Agent { trap, follow } => (Via::Agent, trap, follow, Step::default()),
            Source::Kernel(step) => (Via::Kernel, false, Follow::No, step),
        };
        Total {
            all: Measured::default(),
            via,
            trap,
            follow,
            step,
            names: counter.names.clone(),
            remarks: Vec::new(),
            bearers: 0,
            parts: BTreeMap::new(),
        }
    }

    pub fn notes(&self) -> Vec<Note> {
        let functions = self.bearers;
        let several = (functions > 1).then(|| EventNote::SameName { functions }.into());
        let trap = self.trap.then(|| EventNote::Trap.into());
        let others = self.parts.contains_key(OTHER_VALUES);
        let others = others.then(|| EventNote::ValuesWithoutRoom.into());
        let remarks = self.remarks.iter().cloned().chain(others);
        several.into_iter().chain(remarks).chain(trap).collect()
    }
}

#[derive(Default)]
pub struct Events {
    pub order: Vec<String>,
    pub by_name: BTreeMap<String, Total>,
    pub gates: BTreeMap<String, Total>,
}

impl Events {
    pub fn add(&mut self, tracee: &Tracee, reads: Reads) {
        for (gate, measured) in tracee.agent.patches.gates.iter().zip(&reads.gates) {
            let total = self.gates.entry(gate.counter.event.clone());
            let total = total.or_insert_with(|| Total::of(&gate.counter, gate.source()));
            total.all.add(measured);
        }
        let mut bearers: BTreeMap<&str, u64> = BTreeMap::new();
        for (index, (counter, source)) in tracee.counters().enumerate() {
            let total = self.by_name.entry(counter.event.clone());
            let total = total.or_insert_with(|| {
                self.order.push(counter.event.clone());
                Total::of(counter, source)
            });
            let here = bearers.entry(&counter.event).or_insert(0);
            *here += 1;
            total.bearers = total.bearers.max(*here);
            let fresh = counter.notes.iter();
            let fresh = fresh.filter(|note| !total.remarks.contains(note));
            let fresh: Vec<Note> = fresh.cloned().collect();
            total.remarks.extend(fresh);
            if let Some(all) = reads.all.get(index) {
                total.all.add(all);
            }
            for (key, part) in reads.parts.get(index).into_iter().flatten() {
                total.parts.entry(key.clone()).or_default().add(part);
            }
        }
    }

    pub fn since(&mut self, before: &Events) {
        for (name, earlier) in &before.by_name {
            let Some(total) = self.by_name.get_mut(name) else {
                continue;
            };
            total.all.since(&earlier.all);
            for (key, earlier) in &earlier.parts {
                if let Some(part) = total.parts.get_mut(key) {
                    part.since(earlier);
                }
            }
            total.parts.retain(|_, part| part.reading.hits() > 0);
        }
        for (name, earlier) in &before.gates {
            if let Some(total) = self.gates.get_mut(name) {
                total.all.since(&earlier.all);
            }
        }
    }

    pub fn readings(&self) -> BTreeMap<String, Reading> {
        self.by_name
            .iter()
            .map(|(name, total)| (name.clone(), total.all.reading))
            .collect()
    }
}
