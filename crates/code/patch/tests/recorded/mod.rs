//! Trampolines that record hits, interrupted at each instruction.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tiptoe_patch::{Body, Hits, Patch};
use tiptoe_wire::ring::{CELLS, Entry, Reader, Record, Ring, words};
use tiptoe_wire::{Data, Geometry, Words};

use crate::machine::{Machine, Registers};
use crate::random::Random;

const SHAPE: Geometry = Geometry {
    slots: 64,
    slabs: 1,
    rings: true,
    hits: false,
};
const SLOT: u32 = 20;
/// push %rbx; mov %rdi,%rax; add %rsi,%rax; pop %rbx; ret
const FUNCTION: [u8; 9] = [0x53, 0x48, 0x89, 0xf8, 0x48, 0x01, 0xf0, 0x5b, 0xc3];

struct Recorder {
    machine: Machine,
    segment: Vec<AtomicU64>,
    patch: Patch,
    at: u64,
    random: Random,
}

impl Recorder {
    fn new(seed: u64, hits: Hits) -> Recorder {
        let mut machine = Machine::new();
        let words = SHAPE.data_bytes() / 8;
        let segment: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
        let slab = segment.as_ptr() as u64 + SHAPE.slab_offset(0);
        machine.count_at(slab);
        let body = Body::Record {
            slot: SLOT,
            ring: SHAPE.ring_offset() as u32,
            hits,
        };
        let (at, patch) = machine.patched(&FUNCTION, &body);
        let recorder = Recorder {
            machine,
            segment,
            patch,
            at,
            random: Random(seed),
        };
        recorder.data().set_credit(0, u64::MAX >> 1);
        recorder
    }

    fn code(&self) -> [Range<u64>; 2] {
        let own = self.at..self.at + FUNCTION.len() as u64;
        let end = self.patch.trampoline + self.patch.code.len() as u64;
        [own, self.patch.trampoline..end]
    }

    fn data(&self) -> Data<'_> {
        Data::new(Words::new(&self.segment), SHAPE).expect("long enough")
    }

    fn ring(&self) -> Ring<'_> {
        self.data().ring(0).expect("rings")
    }

    fn counts(&self) -> [u64; 3] {
        let counts = [words::RECORDED, words::LOST, words::ONLY_COUNTED];
        counts.map(|word| self.data().counter(0, SLOT + word))
    }

    fn call(&mut self, args: [u64; 2]) {
        let mut registers = self.random.registers(0);
        [registers[7], registers[6]] = args;
        let mut expected = registers;
        expected[0] = args[0].wrapping_add(args[1]);
        self.assert_kept(&self.machine.run(self.at, &registers), &expected);
    }

    /// Omits the stack pointer, because the call returns only with the right one.
    fn assert_kept(&self, found: &Registers, expected: &Registers) {
        for number in (0..16).filter(|number| *number != 4) {
            assert_eq!(found[number], expected[number], "register {number}");
        }
    }

    fn read(&self, reader: &mut Reader) -> Vec<Record> {
        let mut records = Vec::new();
        let lost = reader.read(&self.ring(), 0, |entry| match entry {
            Entry::Call(record) => records.push(record),
            Entry::Thread { .. } => panic!("no thread announced itself"),
        });
        assert_eq!(lost, 0);
        records
    }
}

#[test]
fn a_call_is_recorded_with_its_arguments() {
    let mut recorder = Recorder::new(11, Hits::default());
    let mut reader = Reader::default();
    let mut last = 0;
    for number in 0..100_u64 {
        let args = [number, u64::MAX - number * 3];
        recorder.call(args);
        let [record] = recorder.read(&mut reader)[..] else {
            panic!("one record")
        };
        assert_eq!((record.slot, record.args), (SLOT, args));
        assert!(record.at > last, "later and later");
        last = record.at;
    }
    assert_eq!(recorder.counts(), [100, 0, 0]);
}

#[test]
fn without_credit_or_room_a_call_is_counted() {
    let mut recorder = Recorder::new(12, Hits::default());
    let mut reader = Reader::default();
    recorder.data().set_credit(0, CELLS as u64 + 5);
    let all = CELLS as u64 + 10;
    (0..all).for_each(|number| recorder.call([number, 0]));
    assert_eq!(recorder.counts(), [CELLS as u64, 5, 5]);
    let records = recorder.read(&mut reader);
    assert!(
        (0..)
            .zip(&records)
            .all(|(number, record)| record.args == [number, 0])
    );
    recorder.data().set_credit(0, 3);
    (0..4).for_each(|number| recorder.call([number, 1]));
    assert_eq!(recorder.read(&mut reader).len(), 3);
    assert_eq!(recorder.counts(), [CELLS as u64 + 3, 5, 6]);
}

fn handler(function: u64) {
    // SAFETY: the function takes two numbers and returns one.
    let function: extern "C" fn(u64, u64) -> u64 =
        unsafe { std::mem::transmute(function as usize) };
    assert_eq!(function(7, 8), 15);
    assert_eq!(function(8, 9), 17);
}

#[test]
fn a_handler_may_record_at_any_instruction() {
    let mut recorder = Recorder::new(13, Hits::default());
    let mut reader = Reader::default();
    let code = recorder.code();
    let mut orders = [0; 3];
    for nth in 0.. {
        let mut registers = recorder.random.registers(0);
        [registers[7], registers[6]] = [1, 2];
        let (machine, at) = (&recorder.machine, recorder.at);
        let (found, came) = machine.run_interrupted((at, &registers), (nth, &code), (handler, at));
        registers[0] = 3;
        recorder.assert_kept(&found, &registers);
        let records = recorder.read(&mut reader);
        let args: Vec<[u64; 2]> = records.iter().map(|record| record.args).collect();
        if !came {
            assert_eq!(args, [[1, 2]]);
            break;
        }
        let own = args
            .iter()
            .position(|args| *args == [1, 2])
            .expect("its own");
        let others: Vec<_> = args.iter().filter(|args| **args != [1, 2]).collect();
        assert_eq!(others, [&[7, 8], &[8, 9]], "before instruction {nth}");
        orders[own] += 1;
        assert!(nth < 1000, "it never ends");
    }
    println!(
        "reserved before the handler: {}, after: {}",
        orders[0], orders[2]
    );
    assert!(orders[0] > 5 && orders[2] > 5 && orders[1] == 0);
    let [recorded, lost, only_counted] = recorder.counts();
    assert_eq!((lost, only_counted), (0, 0));
    assert_eq!(recorded, 3 * (orders[0] + orders[2]) + 1);
}

#[test]
fn only_calls_inside_a_gate_are_recorded() {
    let hits = Hits {
        under: true,
        ..Hits::default()
    };
    let mut recorder = Recorder::new(14, hits);
    let mut reader = Reader::default();
    recorder.call([1, 2]);
    recorder.data().add(0, Geometry::INSIDE);
    recorder.call([3, 4]);
    recorder.data().set_outside(0);
    recorder.call([5, 6]);
    let records = recorder.read(&mut reader);
    let args: Vec<[u64; 2]> = records.iter().map(|record| record.args).collect();
    assert_eq!(args, [[3, 4]]);
    assert_eq!(recorder.counts(), [1, 0, 0]);
}

/// Clears the slab's words, as a session's end does.
fn forget(slab: u64) {
    let words = slab as *const [AtomicU64; Geometry::FIRST_SLOT as usize];
    // SAFETY: a live recorder's memory, accessed only atomically.
    let words = unsafe { &*words };
    words.iter().for_each(|word| word.store(0, Relaxed));
}

#[test]
fn a_session_may_end_at_any_instruction() {
    let mut recorder = Recorder::new(15, Hits::default());
    let slab = recorder.segment.as_ptr() as u64 + SHAPE.slab_offset(0);
    let code = recorder.code();
    for nth in 0.. {
        recorder.data().set_credit(0, 1 << 40);
        let mut registers = recorder.random.registers(0);
        [registers[7], registers[6]] = [1, 2];
        let (machine, at) = (&recorder.machine, recorder.at);
        let (found, came) = machine.run_interrupted((at, &registers), (nth, &code), (forget, slab));
        registers[0] = 3;
        recorder.assert_kept(&found, &registers);
        if !came {
            assert!(nth > 30, "each of its instructions");
            return;
        }
    }
}
