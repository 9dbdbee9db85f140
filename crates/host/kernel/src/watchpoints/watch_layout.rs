//! `bpf/watch_layout.h` in Rust, as arrays of words, because aya's `Pod` is unsafe to implement.

use tiptoe_event::store::{Source, Store};
use zerocopy::{FromBytes, IntoBytes};

use crate::name::name_of;

use super::{Access, Operand, Snapshot, StoredValue, WatchHits, WatchKey};

const VALUES: usize = 8;
const CALLERS: usize = 16;
const NUMBERS: usize = 12;
const VALUE_WORDS: usize = 3;
const READY: u64 = 2;
const NONE: u32 = 16;

/// `struct tiptoe_watch_key`.
pub(super) type WatchKeyWords = [u64; 6];
const REGISTERS: usize = 16;
const STACK: usize = 128;
/// `struct tiptoe_watch_row`.
pub(super) type WatchRowWords =
    [u64; NUMBERS + VALUES * VALUE_WORDS + CALLERS + 2 + REGISTERS + 2 + STACK];
/// `struct cpu` of `bpf/run.h`, with other processes' hits and a row.
pub(super) type WatchCpuWords = [u64; 4 + 1 + size_of::<WatchRowWords>() / 8];
/// `struct tiptoe_variable`.
pub(super) type Variable = [u32; 5];
pub(super) type Counts = [u64; 2];
/// `struct tiptoe_store`.
pub(super) type StoreWords = [u64; 6];
const _: () = assert!(size_of::<WatchKeyWords>() == 48 && size_of::<WatchRowWords>() == 1600);
const _: () = assert!(size_of::<Variable>() == 20 && size_of::<StoreWords>() == 48);

fn row_key(key: WatchKeyWords) -> WatchKey {
    WatchKey {
        ip: key[0],
        variable: key[2] as u32,
        tid: (key[2] >> 32) as u32,
        in_kernel: key[3] != 0,
        comm: name_of(key[4..].as_bytes()),
    }
}

pub(super) fn decode_row(key: WatchKeyWords, row: &WatchRowWords) -> WatchHits {
    let [
        count,
        changed,
        read_from_memory,
        old_unknown,
        first_ns,
        last_ns,
        tid,
        several,
        old,
        new,
        is_last_unknown,
        other_values,
        rest @ ..,
    ] = *row;
    let (values, rest) = rest.split_at(VALUES * VALUE_WORDS);
    let (callers, rest) = rest.split_at(CALLERS);
    let [depth, is_partial] = [rest[0], rest[1]];
    let (registers, rest) = rest[2..].split_at(REGISTERS);
    let [flags, stack_words] = [rest[0], rest[1]];
    let stack = &rest[2..];
    let values = values.chunks_exact(VALUE_WORDS);
    let values = values.filter(|value| value[0] == READY);
    WatchHits {
        key: row_key(key),
        count,
        changed,
        read_from_memory,
        old_unknown,
        first_ns,
        last_ns,
        tid: (several == 0).then_some(tid as u32),
        last: ((is_last_unknown == 0).then_some(old), new),
        values: values
            .map(|value| StoredValue {
                value: value[1],
                count: value[2],
            })
            .collect(),
        other_values,
        callers: callers[..(depth as usize).min(CALLERS)].to_vec(),
        is_partial: is_partial != 0,
        first: Snapshot {
            registers: registers.try_into().unwrap_or_default(),
            flags,
            stack: stack[..(stack_words as usize).min(STACK)].to_vec(),
        },
    }
}

const ACCESS_WORDS: usize = 6;

pub(super) fn access(bytes: &[u8]) -> Option<Access> {
    let (words, key) = <[u64; ACCESS_WORDS]>::read_from_prefix(bytes).ok()?;
    let [time_ns, tid, old, new, is_read_from_memory, is_old_unknown] = words;
    let key = WatchKeyWords::read_from_bytes(key).ok()?;
    Some(Access {
        time_ns,
        tid: tid as u32,
        old: (is_old_unknown == 0).then_some(old),
        new,
        is_read_from_memory: is_read_from_memory != 0,
        key: row_key(key),
        callers: key[1],
    })
}

/// Returns runs and their time, and other processes' hits.
pub(super) fn cpu(cpu: WatchCpuWords) -> ([u64; 2], u64) {
    ([cpu[1], cpu[2]], cpu[4])
}

pub(super) fn store(store: &Store) -> StoreWords {
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let register = |register: Option<u8>| register.map_or(NONE, u32::from);
    let (source, reg, immediate) = match store.source {
        Source::Register(reg) => (1, u32::from(reg), 0),
        Source::Immediate(value) => (2, NONE, value),
        Source::Exchanged(reg) => (3, u32::from(reg), 0),
        Source::Compared(reg) => (4, u32::from(reg), 0),
        Source::Added(value) => (5, NONE, value),
    };
    [
        pair(source, reg),
        pair(store.shift.into(), store.width.into()),
        pair(register(store.base), register(store.index)),
        pair(store.scale.into(), store.is_elsewhere.into()),
        store.displacement,
        immediate,
    ]
}

pub(super) fn operand(operand: Operand) -> (u64, u64) {
    match operand {
        Operand::Old => (0, 0),
        Operand::New => (1, 0),
        Operand::Constant(value) => (2, value),
    }
}
