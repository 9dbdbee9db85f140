//! Names and numbers of perf_event_open(2)'s generic events.

use super::CounterKind;
use crate::number::unsigned;

/// `PERF_COUNT_HW_*`.
const HARDWARE: &[(&str, u64)] = &[
    ("cycles", 0),
    ("cpu-cycles", 0),
    ("instructions", 1),
    ("cache-references", 2),
    ("cache-misses", 3),
    ("branches", 4),
    ("branch-instructions", 4),
    ("branch-misses", 5),
    ("bus-cycles", 6),
    ("stalled-cycles-frontend", 7),
    ("idle-cycles-frontend", 7),
    ("stalled-cycles-backend", 8),
    ("idle-cycles-backend", 8),
    ("ref-cycles", 9),
];

/// `PERF_COUNT_SW_*`.
const SOFTWARE: &[(&str, u64)] = &[
    ("cpu-clock", 0),
    ("task-clock", 1),
    ("page-faults", 2),
    ("faults", 2),
    ("context-switches", 3),
    ("cs", 3),
    ("cpu-migrations", 4),
    ("migrations", 4),
    ("minor-faults", 5),
    ("major-faults", 6),
    ("alignment-faults", 7),
    ("emulation-faults", 8),
    ("dummy", 9),
    ("bpf-output", 10),
    ("cgroup-switches", 11),
];

const fn cache(cache: u64, operation: u64, is_miss: bool) -> u64 {
    cache | operation << 8 | (is_miss as u64) << 16
}

const LOAD: u64 = 0;
const STORE: u64 = 1;
const PREFETCH: u64 = 2;

const L1D: u64 = 0;
const L1I: u64 = 1;
const LLC: u64 = 2;
const DTLB: u64 = 3;
const ITLB: u64 = 4;
const BRANCH: u64 = 5;
const NODE: u64 = 6;

const CACHE: &[(&str, u64)] = &[
    ("L1-dcache-loads", cache(L1D, LOAD, false)),
    ("L1-dcache-load-misses", cache(L1D, LOAD, true)),
    ("L1-dcache-stores", cache(L1D, STORE, false)),
    ("L1-dcache-store-misses", cache(L1D, STORE, true)),
    ("L1-dcache-prefetches", cache(L1D, PREFETCH, false)),
    ("L1-dcache-prefetch-misses", cache(L1D, PREFETCH, true)),
    ("L1-icache-loads", cache(L1I, LOAD, false)),
    ("L1-icache-load-misses", cache(L1I, LOAD, true)),
    ("L1-icache-prefetches", cache(L1I, PREFETCH, false)),
    ("L1-icache-prefetch-misses", cache(L1I, PREFETCH, true)),
    ("LLC-loads", cache(LLC, LOAD, false)),
    ("LLC-load-misses", cache(LLC, LOAD, true)),
    ("LLC-stores", cache(LLC, STORE, false)),
    ("LLC-store-misses", cache(LLC, STORE, true)),
    ("LLC-prefetches", cache(LLC, PREFETCH, false)),
    ("LLC-prefetch-misses", cache(LLC, PREFETCH, true)),
    ("dTLB-loads", cache(DTLB, LOAD, false)),
    ("dTLB-load-misses", cache(DTLB, LOAD, true)),
    ("dTLB-stores", cache(DTLB, STORE, false)),
    ("dTLB-store-misses", cache(DTLB, STORE, true)),
    ("dTLB-prefetches", cache(DTLB, PREFETCH, false)),
    ("dTLB-prefetch-misses", cache(DTLB, PREFETCH, true)),
    ("iTLB-loads", cache(ITLB, LOAD, false)),
    ("iTLB-load-misses", cache(ITLB, LOAD, true)),
    ("branch-loads", cache(BRANCH, LOAD, false)),
    ("branch-load-misses", cache(BRANCH, LOAD, true)),
    ("node-loads", cache(NODE, LOAD, false)),
    ("node-load-misses", cache(NODE, LOAD, true)),
    ("node-stores", cache(NODE, STORE, false)),
    ("node-store-misses", cache(NODE, STORE, true)),
    ("node-prefetches", cache(NODE, PREFETCH, false)),
    ("node-prefetch-misses", cache(NODE, PREFETCH, true)),
];

/// Returns the names that mean the same on every machine.
pub fn counter_names() -> impl Iterator<Item = &'static str> {
    let tables = HARDWARE.iter().chain(SOFTWARE).chain(CACHE);
    tables.map(|(name, _)| *name)
}

pub(super) fn kind(name: &str) -> Option<CounterKind<'_>> {
    let of = |table: &[(&str, u64)]| {
        let found = table.iter().find(|(known, _)| *known == name);
        found.map(|(_, config)| *config)
    };
    let generic = of(HARDWARE).map(CounterKind::Hardware);
    let generic = generic.or_else(|| of(SOFTWARE).map(CounterKind::Software));
    let generic = generic.or_else(|| of(CACHE).map(CounterKind::Cache));
    generic
        .or_else(|| raw(name))
        .or_else(|| of_pmu(name))
        .or_else(|| tracepoint(name))
}

fn raw(name: &str) -> Option<CounterKind<'_>> {
    unsigned(name.strip_prefix('r')?, 16).map(CounterKind::Raw)
}

fn of_pmu(name: &str) -> Option<CounterKind<'_>> {
    let (pmu, terms) = name.strip_suffix('/')?.split_once('/')?;
    let is_whole = is_word(pmu) && !terms.is_empty() && !terms.contains('/');
    is_whole.then_some(CounterKind::Pmu { pmu, terms })
}

fn tracepoint(name: &str) -> Option<CounterKind<'_>> {
    let (group, name) = name.split_once(':')?;
    (is_word(group) && is_word(name)).then_some(CounterKind::Tracepoint { group, name })
}

/// A name must not contain `/`, because it becomes a path in /sys.
fn is_word(text: &str) -> bool {
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    !text.is_empty() && text.chars().all(is_of_word)
}
