mod timed;

use std::collections::BTreeMap;

use super::machine::{Machine, Registers};
use tiptoe_patch::{Body, GroupValue, Hits, Shape};
use tiptoe_wire::Geometry;
use tiptoe_wire::calls::{UNDER, VALUED};
use tiptoe_wire::values::{ALL, ROOM, WIDTH, decode};

const SLOT: u32 = 100;
const ARGUMENTS: [usize; 6] = [7, 6, 2, 1, 8, 9];
/// nop5; ret
const CODE: [u8; 6] = [0x0f, 0x1f, 0x44, 0, 0, 0xc3];

fn probed(machine: &mut Machine, hits: Hits, entry: bool) -> u64 {
    let body = Body::Count { slot: SLOT, hits };
    let (at, _) = match entry {
        true => machine.patched(&CODE, &body),
        false => machine.patched_as(&CODE, &body, Shape::preserving_everything),
    };
    at
}

/// Checks that registers (and inside a function flags) are unchanged.
fn call(machine: &Machine, at: u64, arg: usize, value: u64, entry: bool) {
    let mut registers: Registers = std::array::from_fn(|index| 0x1111 * index as u64);
    registers[16] = 0xad7;
    registers[ARGUMENTS[arg]] = value;
    let out = machine.run(at, &registers);
    let same = (0..17).filter(|index| *index != 4 && !(entry && *index == 16));
    for index in same {
        assert_eq!(out[index], registers[index], "register {index}");
    }
}

fn words(machine: &Machine) -> Vec<u64> {
    (SLOT..SLOT + WIDTH)
        .map(|slot| machine.count(slot as usize))
        .collect()
}

fn by(arg: u8) -> Hits {
    Hits {
        by: Some(GroupValue::Argument(arg)),
        ..Hits::default()
    }
}

#[test]
fn each_value_of_each_argument_is_counted() {
    for (arg, entry) in (0..6).flat_map(|arg| [(arg, true), (arg, false)]) {
        let mut machine = Machine::new();
        let at = probed(&mut machine, by(arg as u8), entry);
        let mut expected = BTreeMap::new();
        for round in 0..3_u64 {
            for value in [0, 1, 7, u64::MAX, 1 << 63, 0x7fff_1234_5678, round] {
                call(&machine, at, arg, value, entry);
                *expected.entry(value).or_insert(0) += 1;
            }
        }
        let words = words(&machine);
        assert_eq!(decode(&words).collect::<BTreeMap<u64, u64>>(), expected);
        assert_eq!(words[ALL as usize], expected.values().sum::<u64>());
    }
}

#[test]
fn each_scope_is_counted() {
    let hits = Hits {
        by: Some(GroupValue::Scope),
        ..Hits::default()
    };
    for entry in [true, false] {
        let mut machine = Machine::new();
        let at = probed(&mut machine, hits, entry);
        for scope in [0, 3, 0, 1022, 3, 0] {
            machine.slab[Geometry::SCOPE as usize] = scope;
            call(&machine, at, 0, 77, entry);
        }
        let words = words(&machine);
        let counted: Vec<(u64, u64)> = decode(&words).collect();
        let counted: BTreeMap<u64, u64> = counted.into_iter().collect();
        assert_eq!(counted, BTreeMap::from([(0, 3), (3, 2), (1022, 1)]));
    }
}

#[test]
fn when_the_table_is_full_only_the_sum_is_kept() {
    let mut machine = Machine::new();
    let at = probed(&mut machine, by(0), true);
    let after_slot = (SLOT + WIDTH) as usize;
    for value in 1..=5_000_u64 {
        call(&machine, at, 0, value << 12, true);
        call(&machine, at, 0, value << 12, true);
    }
    let words = words(&machine);
    let kept: Vec<(u64, u64)> = decode(&words).collect();
    assert!(
        kept.len() <= ROOM as usize && kept.len() > ROOM as usize / 2,
        "{}",
        kept.len()
    );
    assert!(kept.iter().all(|(_, hits)| *hits == 2));
    assert_eq!(words[ALL as usize], 10_000);
    assert_eq!(
        (machine.count(after_slot), machine.count(SLOT as usize - 1)),
        (0, 0)
    );
}

#[test]
fn a_thread_without_counters_asks_for_them_first() {
    let mut machine = Machine::new();
    let hits = Hits {
        under: true,
        ..by(2)
    };
    let at = probed(&mut machine, hits, true);
    machine.counters(false);
    let before = machine.calls();
    call(&machine, at, 2, 5, true);
    let now = machine.calls();
    let argument = SLOT as u64 | (UNDER | VALUED) as u64;
    assert_eq!((now.cold - before.cold, now.slot), (1, argument));
    machine.counters(true);
    call(&machine, at, 2, 5, true);
    assert_eq!(
        decode(&words(&machine)).count(),
        0,
        "it is not below the gate"
    );
    machine.slab[tiptoe_wire::Geometry::INSIDE as usize] = 1;
    call(&machine, at, 2, 5, true);
    assert_eq!(decode(&words(&machine)).collect::<Vec<_>>(), [(5, 1)]);
}
