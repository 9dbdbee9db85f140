use std::collections::BTreeMap;

use super::{ARGUMENTS, CODE, SLOT, by, call};
use crate::machine::Machine;
use tiptoe_patch::{Body, Hits};
use tiptoe_wire::calls::{UNDER, VALUED, words};
use tiptoe_wire::timed_values::{OTHERS, ROOM, SETS, WIDTH, decode, set};

const PROBE: u32 = 77;

fn probed(machine: &mut Machine, hits: Hits) -> u64 {
    machine.slots((SLOT + WIDTH) as usize + 16);
    let body = Body::Call {
        slot: SLOT,
        probe: PROBE,
        timed: true,
        hits,
    };
    machine.patched(&CODE, &body).0
}

fn counted(machine: &Machine, word: u32) -> BTreeMap<Option<u64>, u64> {
    let all: Vec<u64> = (SLOT..SLOT + WIDTH)
        .map(|slot| machine.count(slot as usize))
        .collect();
    let sets = decode(&all).map(|(value, set)| (value, set[word as usize]));
    sets.collect()
}

fn have_credit(machine: &mut Machine, credit: u64) {
    machine.slab[0] = credit;
}

#[test]
fn calls_without_credit_are_only_counted_by_each_value_of_each_argument() {
    for arg in 0..ARGUMENTS.len() {
        let mut machine = Machine::new();
        let at = probed(&mut machine, by(arg as u8));
        let mut expected = BTreeMap::new();
        for round in 0..3_u64 {
            for value in [0, 1, 7, u64::MAX, 1 << 63, 0x7fff_1234_5678, round] {
                call(&machine, at, arg, value, true);
                *expected.entry(Some(value)).or_insert(0) += 1;
            }
        }
        assert_eq!(counted(&machine, words::ONLY_COUNTED), expected);
        assert!(counted(&machine, words::CALLS).values().all(|n| *n == 0));
    }
}

#[test]
fn a_followed_call_keeps_its_set() {
    let mut machine = Machine::new();
    let at = probed(&mut machine, by(1));
    have_credit(&mut machine, 10);
    for value in [5, 0, 6, 5] {
        call(&machine, at, 1, value, true);
    }
    let expected = [(Some(0), 1), (Some(5), 2), (Some(6), 1)];
    assert_eq!(counted(&machine, words::CALLS), expected.into());
    assert_eq!(machine.count(0), 6, "the credit");
    let followed = machine.calls().followed;
    assert_eq!(followed as u32, PROBE);
    let number = (followed >> 56) as u8;
    assert_eq!(machine.count(set(SLOT, number) as usize), 2);
}

#[test]
fn when_the_table_is_full_values_count_together() {
    let mut machine = Machine::new();
    let at = probed(&mut machine, by(0));
    const MANY: u64 = 2_000;
    for value in 1..=MANY {
        call(&machine, at, 0, value << 12, true);
        call(&machine, at, 0, value << 12, true);
    }
    let counted = counted(&machine, words::ONLY_COUNTED);
    let others = counted[&None];
    assert_eq!(counted.values().sum::<u64>(), 2 * MANY);
    assert!(counted.len() > usize::from(ROOM) / 2 && counted.len() <= usize::from(SETS));
    let known = counted.iter().filter(|(value, _)| value.is_some());
    assert!(known.clone().all(|(_, hits)| *hits == 2));
    assert_eq!(others, 2 * MANY - 2 * known.count() as u64);
    let around = [SLOT - 1, SLOT + WIDTH].map(|slot| machine.count(slot as usize));
    assert_eq!(around, [0, 0]);
    let first = set(SLOT, OTHERS) + words::ONLY_COUNTED;
    assert_eq!(machine.count(first as usize), others);
}

#[test]
fn a_thread_without_counters_asks_for_them_before_its_call_is_followed() {
    let mut machine = Machine::new();
    let hits = Hits {
        under: true,
        ..by(2)
    };
    let at = probed(&mut machine, hits);
    machine.counters(false);
    let before = machine.calls();
    call(&machine, at, 2, 5, true);
    let now = machine.calls();
    let word = u64::from(SLOT + words::ONLY_COUNTED);
    let argument = word | (UNDER | VALUED) as u64;
    assert_eq!((now.cold - before.cold, now.slot), (1, argument));
    machine.counters(true);
    call(&machine, at, 2, 5, true);
    assert!(counted(&machine, 0).is_empty(), "it is not below the gate");
    machine.slab[tiptoe_wire::Geometry::INSIDE as usize] = 1;
    call(&machine, at, 2, 5, true);
    let counted = counted(&machine, words::ONLY_COUNTED);
    assert_eq!(counted, [(Some(5), 1)].into());
}
