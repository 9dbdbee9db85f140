//! Sums up the hits that the program's threads recorded. Each hit was recorded with its registers, so its value can be
//! computed afterwards.

use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::hash::{Hash, Hasher};

use tiptoe_event::Store;
use tiptoe_event::store::{AccessValues, Source};
use tiptoe_kernel::watchpoints::{
    Access, Drops, Hits, Snapshot, StoredValue, WatchHits, WatchKey, WatchWanted, Watchpoint,
};
use tiptoe_sys::host::perf;
use tiptoe_wire::hits::{Hit, RecordedHit};

use super::begin::Target;
use super::learned_code;
use super::variable_value::VariableValue;

/// The most rows, and the most values in a row.
const ROWS: usize = 4096;
const VALUES: usize = 8;

pub(super) struct AccessSums {
    wanted: WatchWanted,
    pub(super) rows: HashMap<(WatchKey, Vec<u64>), WatchHits>,
    variables: Vec<(Hits, VariableValue)>,
    /// Each store by the address after its instruction; `None` if the instruction is no known store.
    stores: HashMap<u64, Option<Store>>,
    pub(super) drops: Drops,
    pub(super) accesses: Vec<Access>,
    /// Hits whose instruction is unknown, because the thread blocked the signal and recorded the hit late.
    pub(super) late: u64,
}

struct ValueChange {
    old: Option<u64>,
    new: u64,
    is_read_from_memory: bool,
}

impl AccessSums {
    pub(super) fn new(wanted: WatchWanted, points: &[Watchpoint]) -> AccessSums {
        let variables = points.iter().map(|_| Default::default());
        AccessSums {
            wanted,
            rows: HashMap::new(),
            variables: variables.collect(),
            stores: HashMap::new(),
            drops: Drops::default(),
            accesses: Vec::new(),
            late: 0,
        }
    }

    pub(super) fn holds(&mut self, index: usize, now: VariableValue) {
        self.variables[index].1 = now;
    }

    pub(super) fn hits(&self, index: usize) -> Hits {
        self.variables[index].0
    }

    pub(super) fn add(
        &mut self,
        read: RecordedHit,
        index: usize,
        point: &Watchpoint,
        target: &mut Target,
    ) {
        let hit = read.hit();
        if hit.is_late {
            self.late += 1;
            self.holds(index, VariableValue::default());
            return;
        }
        target.know(hit.ip);
        let len = point.at.len;
        let snapshot = Snapshot {
            registers: hit.registers,
            flags: hit.flags,
            stack: read.stack(len).collect(),
        };
        let memory = read.value(len).map(|value| cut(value, len));
        let values = self.values(index, point, &hit, memory, target);
        let (hits, _) = &mut self.variables[index];
        hits.all += 1;
        if !self
            .wanted
            .wants(values.old, values.new, len, point.is_signed)
        {
            return;
        }
        hits.wanted += 1;
        let key = self.key(&hit, index);
        let callers = target.unwind(hit.ip, &snapshot);
        if self.wanted.one_by_one {
            let mut hasher = DefaultHasher::new();
            callers.hash(&mut hasher);
            self.accesses.push(Access {
                time_ns: hit.time_ns,
                tid: hit.tid,
                old: values.old,
                new: values.new,
                is_read_from_memory: values.is_read_from_memory,
                key: key.clone(),
                callers: hasher.finish(),
            });
        }
        let is_code = point.at.access == perf::Access::Execute;
        let is_room = self.rows.len() < ROWS;
        let row = match self.rows.entry((key, callers)) {
            Entry::Occupied(row) => row.into_mut(),
            Entry::Vacant(_) if !is_room => {
                self.drops.no_room_for_row += 1;
                return;
            }
            Entry::Vacant(place) => {
                let (key, callers) = place.key().clone();
                place.insert(first_row(key, callers, &hit, snapshot))
            }
        };
        count(row, &hit, &values, is_code);
    }

    fn key(&self, hit: &Hit, index: usize) -> WatchKey {
        let name = hit.name.map(u64::to_le_bytes).concat();
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        WatchKey {
            ip: hit.ip,
            variable: index as u32,
            tid: if self.wanted.by_thread { hit.tid } else { 0 },
            in_kernel: false,
            comm: String::from_utf8_lossy(name).into_owned(),
        }
    }

    /// Returns the values that follow from the instruction and the registers. An unknown new value is read from
    /// memory, and an unknown old value is the previous hit's new value.
    fn values(
        &mut self,
        index: usize,
        point: &Watchpoint,
        hit: &Hit,
        memory: Option<u64>,
        target: &Target,
    ) -> ValueChange {
        if point.at.access == perf::Access::Execute {
            return ValueChange {
                old: Some(0),
                new: 0,
                is_read_from_memory: false,
            };
        }
        let ip = hit.ip;
        let store = self.stores.entry(ip).or_insert_with(|| {
            let module = target.module(ip.wrapping_sub(1))?;
            learned_code::store(module, ip)
        });
        let (address, len) = (point.at.address, point.at.len);
        let known = store.map_or(AccessValues::default(), |store| {
            store.values_from_registers(&hit.registers, hit.flags, address, len)
        });
        self.drops.no_value += u64::from(known.new.is_none() && memory.is_none());
        let new = known.new.or(memory);
        let previous = self.variables[index].1.replace(hit, new);
        let old = match (new, store.map(|store| store.source)) {
            (Some(new), Some(Source::Added(added))) => Some(cut(new.wrapping_sub(added), len)),
            _ => known.old.or(previous),
        };
        ValueChange {
            old,
            new: new.unwrap_or(0),
            is_read_from_memory: known.new.is_none(),
        }
    }
}

fn cut(value: u64, len: u8) -> u64 {
    match len {
        8.. => value,
        len => value & ((1 << (8 * len)) - 1),
    }
}

fn first_row(key: WatchKey, callers: Vec<u64>, hit: &Hit, first: Snapshot) -> WatchHits {
    WatchHits {
        key,
        count: 0,
        changed: 0,
        read_from_memory: 0,
        old_unknown: 0,
        first_ns: hit.time_ns,
        last_ns: 0,
        tid: Some(hit.tid),
        last: (None, 0),
        values: Vec::new(),
        other_values: 0,
        callers,
        is_partial: false,
        first,
    }
}

fn count(row: &mut WatchHits, hit: &Hit, values: &ValueChange, is_code: bool) {
    row.count += 1;
    row.changed += u64::from(values.old.is_some_and(|old| old != values.new));
    row.old_unknown += u64::from(values.old.is_none());
    row.read_from_memory += u64::from(values.is_read_from_memory);
    row.tid = row.tid.filter(|tid| *tid == hit.tid);
    row.last_ns = hit.time_ns;
    row.last = (values.old, values.new);
    if is_code {
        return;
    }
    let has_room = row.values.len() < VALUES;
    match row
        .values
        .iter_mut()
        .find(|known| known.value == values.new)
    {
        Some(known) => known.count += 1,
        None if has_room => row.values.push(StoredValue {
            value: values.new,
            count: 1,
        }),
        None => row.other_values += 1,
    }
}
