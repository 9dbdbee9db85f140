//! Turns recorded accesses into a session's rows.

use std::collections::{BTreeMap, BTreeSet};

use tiptoe_kernel::watchpoints::WatchHits;
use tiptoe_session::{Accesses, Note, Stack, Value};

use super::begin::Target;
use super::learned_code;
use super::origins::InstructionOrigins;
use super::variables::WatchedVariable;
use crate::clock::RunClock;

/// Variable, instruction, whether the kernel made the access, thread, and thread name.
type AccessKey<'r> = (u32, u64, bool, u32, &'r str);

#[derive(Default)]
struct AccessRow<'r> {
    rows: Vec<&'r WatchHits>,
}

pub(super) fn rows(
    found: &[WatchHits],
    variables: &[WatchedVariable],
    target: &Target,
    clock: RunClock,
) -> (Vec<Accesses>, Vec<Note>) {
    let mut sums: BTreeMap<AccessKey, AccessRow> = BTreeMap::new();
    for row in found {
        let key = &row.key;
        let key = (key.variable, key.ip, key.in_kernel, key.tid, &*key.comm);
        sums.entry(key).or_default().rows.push(row);
    }
    let known = InstructionOrigins::of(found, variables, target);
    let row = |(key, sum): (AccessKey, AccessRow)| {
        let variable = variables.get(key.0 as usize)?;
        Some(sum.row(key, variable, target, &known, clock))
    };
    let mut rows: Vec<Accesses> = sums.into_iter().filter_map(row).collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.count), row.first_ns));
    (rows, known.notes().collect())
}

impl AccessRow<'_> {
    fn row(
        &self,
        key: AccessKey,
        variable: &WatchedVariable,
        target: &Target,
        known: &InstructionOrigins,
        clock: RunClock,
    ) -> Accesses {
        let (_, ip, in_kernel, tid, comm) = key;
        let sum = |of: fn(&WatchHits) -> u64| self.rows.iter().map(|row| of(row)).sum::<u64>();
        let first = self.rows.iter().map(|row| row.first_ns).min();
        let last = self.rows.iter().max_by_key(|row| row.last_ns);
        let since = |at: Option<u64>| at.map_or(0, |at| clock.until(at).as_nanos() as u64);
        let only = self.only_hit(variable, target);
        let (old, new) = last.map_or((None, 0), |row| row.last);
        let new = only.unwrap_or(new);
        let values = match only {
            Some(value) => BTreeMap::from([(value, 1)]),
            None => self.values(),
        };
        let listed: u64 = values.values().sum();
        let mut values: Vec<(u64, u64)> = values.into_iter().collect();
        values.sort_by_key(|(value, count)| (std::cmp::Reverse(*count), *value));
        Accesses {
            variable: variable.name.clone(),
            at: variable.instruction(target, ip) + &known.source_suffix(variable.within(ip)),
            in_kernel,
            comm: comm.to_owned(),
            tid: self.tid(tid),
            count: sum(|row| row.count),
            changed: sum(|row| row.changed),
            racy: match only {
                Some(_) => 0,
                None => sum(|row| row.read_from_memory),
            },
            first_ns: since(first),
            last_ns: since(last.map(|row| row.last_ns)),
            old_unknown: sum(|row| row.old_unknown),
            last_old: variable.old_value(old),
            last_new: variable.value(new),
            values: values
                .iter()
                .map(|(value, count)| Value {
                    value: variable.value(*value),
                    count: *count,
                })
                .collect(),
            other_values: sum(|row| row.count).saturating_sub(listed),
            stacks: self.stacks(target, known),
        }
    }

    /// `None` if several threads made the accesses.
    fn tid(&self, tid: u32) -> Option<u32> {
        let mut tids = self.rows.iter().map(|row| row.tid);
        let first = tids.next().flatten()?;
        let all = tids.all(|tid| tid == Some(first));
        (all || tid != 0).then_some(first)
    }

    /// Computes the value of a row's only hit from the registers. The recorded value was read from memory, so it may be
    /// another store's.
    fn only_hit(&self, variable: &WatchedVariable, target: &Target) -> Option<u64> {
        let [row] = self.rows[..] else { return None };
        let end = row.key.ip;
        if row.count != 1 || row.read_from_memory != 1 || row.key.in_kernel {
            return None;
        }
        let store = learned_code::store(target.module(end.wrapping_sub(1))?, end)?;
        variable.values_from_registers(&store, &row.first).new
    }

    fn values(&self) -> BTreeMap<u64, u64> {
        let mut values = BTreeMap::new();
        for value in self.rows.iter().flat_map(|row| &row.values) {
            *values.entry(value.value).or_default() += value.count;
        }
        values
    }

    fn stacks(&self, target: &Target, known: &InstructionOrigins) -> Vec<Stack> {
        let whole: BTreeSet<&[u64]> = self
            .rows
            .iter()
            .filter(|row| !row.is_partial)
            .map(|row| &*row.callers)
            .collect();
        let mut stacks: BTreeMap<(Vec<u64>, bool), u64> = BTreeMap::new();
        let mut add = |callers: Vec<u64>, is_partial, count| {
            *stacks.entry((callers, is_partial)).or_default() += count;
        };
        for row in &self.rows {
            if !row.is_partial {
                add(row.callers.clone(), false, row.count);
                continue;
            }
            // The stack walks of a partial row ended early, and only the first hit's stack was saved. Other hits may
            // have other callers, unless every complete walk found this stack.
            let callers = target.unwind(row.key.ip, &row.first);
            let is_only = whole.len() == 1 && whole.contains(&*callers);
            let others = if is_only {
                0
            } else {
                row.count.saturating_sub(1)
            };
            add(callers, false, row.count - others);
            if others > 0 {
                add(row.callers.clone(), true, others);
            }
        }
        let stack = |((callers, is_partial), count): ((Vec<u64>, bool), u64)| Stack {
            callers: callers
                .iter()
                .flat_map(|at| known.inlined(*at).chain([target.names.code(*at)]))
                .collect(),
            is_partial,
            count,
        };
        let mut stacks: Vec<Stack> = stacks.into_iter().map(stack).collect();
        stacks.sort_by_key(|stack| std::cmp::Reverse(stack.count));
        stacks
    }
}
